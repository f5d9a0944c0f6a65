package lockstep.spark.execution

import lockstep.spark.grammar.TransactionStatement
import lockstep.spark.transactions.Transactions
import org.apache.spark.sql.{Row, SparkSession}

import scala.util.control.NonFatal

/** A transaction that begins and ends with some work; other threads of its session have no part in it. */
private[spark] object OwnTransaction {

  /**
   * Does the work, and returns what it made and what COMMIT returned. An error that leaves the work rolls all of it back, and
   * is raised as it was.
   *
   * @param options what is said with its BEGIN
   */
  def around[T](session: SparkSession, options: Map[String, Any] = Map.empty)(work: => T): (T, Seq[Row]) =
    Transactions.ofItsOwn(session) {
      val transaction = Transactions.exclusively(session) {
        TransactionCommand(TransactionStatement("begin", options)).run(session)
        Transactions.block(session, isOpen = true)
        Transactions.current(session)
      }
      try {
        val made = work
        val committed = Transactions.exclusively(session) {
          Transactions.block(session, isOpen = false)
          TransactionCommand(TransactionStatement("commit")).run(session)
        }
        (made, committed)
      } catch {
        case cause: Throwable =>
          transaction.foreach(undo(session, _, cause))
          throw cause
      }
    }

  /** A refused COMMIT has rolled back already. What cannot be rolled back now its timeouts end, or who aborts it by its id. */
  private def undo(session: SparkSession, transaction: String, cause: Throwable): Unit =
    try TransactionCommand.abandon(session, transaction)
    catch {
      case NonFatal(e) => cause.addSuppressed(e)
    } finally if (Transactions.current(session).contains(transaction)) Transactions.block(session, isOpen = false)
}
