package lockstep.spark.execution

import lockstep.spark.grammar.TransactionStatement
import lockstep.spark.transactions.Transactions
import org.apache.spark.sql.{Row, SparkSession}
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.CompoundBody
import org.apache.spark.sql.execution.command.LeafRunnableCommand
import org.apache.spark.sql.lockstep.Internals

/** `BEGIN ATOMIC … END`: a script in a transaction of its own. It returns what COMMIT returns. */
private[spark] case class AtomicBlock(body: CompoundBody) extends LeafRunnableCommand {
  override val output: Seq[Attribute] = TransactionCommand(TransactionStatement("commit")).output

  override def run(session: SparkSession): Seq[Row] = {
    if (Transactions.isOpen(session)) TransactionCommand(TransactionStatement("begin")).run(session) // which refuses it
    OwnTransaction.around(session)(Internals.runScript(session, body))._2
  }
}
