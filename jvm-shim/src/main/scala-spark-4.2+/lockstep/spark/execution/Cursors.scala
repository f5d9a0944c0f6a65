package lockstep.spark.execution

import lockstep.spark.transactions.Transactions
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, OpenCursor}
import org.apache.spark.sql.lockstep.LockstepException
import org.apache.spark.sql.scripting.lockstep.OpenCursors

/**
 * Cursors of scripts: their rows are computed as they are fetched, and by no query that anybody analyzes or executes then. So
 * they are fetched where they were opened: outside of transactions, or in the transaction that they were opened in.
 */
private[spark] object Cursors {

  /** Notes where a cursor was opened, if that is what was just executed. */
  def executed(session: SparkSession, plan: LogicalPlan): Unit = plan match {
    case _: OpenCursor =>
      val moment = Transactions.moment(session)
      OpenCursors.replace {
        case noted: Rows => noted
        case rows => new Rows(rows, session, moment)
      }
    case _ => ()
  }

  private class Rows(rows: Iterator[InternalRow], session: SparkSession, opened: Option[Transactions.Moment])
      extends Iterator[InternalRow] {
    override def hasNext: Boolean = {
      if (Transactions.moment(session) != opened) throw refusal
      rows.hasNext
    }

    override def next(): InternalRow = rows.next()

    private def refusal = opened.fold(
      new LockstepException(
        "LOCKSTEP_ACTIVE_TRANSACTION",
        "a cursor that was opened before BEGIN is fetched from, whose rows need not be what the open transaction sees: " +
          "open it inside, or fetch before BEGIN or after the end.",
        "25001"
      ))(moment =>
      new LockstepException(
        "LOCKSTEP_NO_TRANSACTION",
        s"a cursor is fetched from that was opened in transaction ${moment.transaction}, which has ended or went back to a " +
          "savepoint: open it again.",
        "25P01"
      ))
  }
}
