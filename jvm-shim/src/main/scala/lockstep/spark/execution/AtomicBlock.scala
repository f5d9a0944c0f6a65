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
  private val end = TransactionCommand(TransactionStatement("commit"))

  override val output: Seq[Attribute] = end.output

  override def run(session: SparkSession): Seq[Row] = {
    val transaction = Transactions.exclusively(session) {
      TransactionCommand(TransactionStatement("begin")).run(session)
      Transactions.block(session, isOpen = true)
      Transactions.current(session)
    }
    try {
      Internals.runScript(session, body)
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

  /** A refused COMMIT has rolled back already. What cannot be rolled back now can be by a ROLLBACK: the block is over. */
  private def undo(session: SparkSession, transaction: String, cause: Throwable): Unit =
    try TransactionCommand.abandon(session, transaction)
    catch {
      case NonFatal(e) => cause.addSuppressed(e)
    } finally if (Transactions.current(session).contains(transaction)) Transactions.block(session, isOpen = false)
}
