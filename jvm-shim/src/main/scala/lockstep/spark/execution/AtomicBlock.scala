package lockstep.spark.execution

import lockstep.spark.grammar.TransactionStatement
import lockstep.spark.transactions.Transactions
import org.apache.spark.sql.{Row, SparkSession}
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.CompoundBody
import org.apache.spark.sql.execution.command.LeafRunnableCommand
import org.apache.spark.sql.lockstep.Internals

import scala.util.control.NonFatal

/**
 * `BEGIN ATOMIC … END`: a script in a transaction of its own. It returns what COMMIT returns; an error that leaves it
 * rolls all of it back, and is raised as it was.
 */
private[spark] case class AtomicBlock(body: CompoundBody) extends LeafRunnableCommand {
  override val output: Seq[Attribute] = AtomicBlock.end.output

  override def run(session: SparkSession): Seq[Row] =
    AtomicBlock.around(session, AtomicBlock.begin)(Internals.runScript(session, body))
}

private[spark] object AtomicBlock {
  val begin: TransactionCommand = TransactionCommand(TransactionStatement("begin"))
  private val end = TransactionCommand(TransactionStatement("commit"))

  /** Does some work in a transaction of its own, which nothing in it ends, and returns what COMMIT returns. */
  def around(session: SparkSession, begin: TransactionCommand)(work: => Unit): Seq[Row] = {
    val transaction = Transactions.exclusively(session) {
      begin.run(session)
      Transactions.block(session, isOpen = true)
      Transactions.current(session)
    }
    try {
      work
      Transactions.exclusively(session) {
        Transactions.block(session, isOpen = false)
        end.run(session)
      }
    } catch {
      case cause: Throwable =>
        transaction.foreach(undo(session, _, cause))
        throw cause
    }
  }

  /** A refused COMMIT has rolled back already. */
  private def undo(session: SparkSession, transaction: String, cause: Throwable): Unit =
    try TransactionCommand.abandon(session, transaction)
    catch {
      case NonFatal(e) => cause.addSuppressed(e)
    }
}
