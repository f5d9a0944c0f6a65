package lockstep.spark.execution

import lockstep.spark.grammar.TransactionStatement
import org.apache.spark.sql.{Row, SparkSession}
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.execution.command.LeafRunnableCommand
import org.apache.spark.sql.lockstep.Internals

/**
 * `FROM … INSERT INTO … INSERT INTO …` outside a transaction. To Spark each INSERT is a command of its own; to its user the
 * statement is one, so it is a transaction.
 */
private[spark] case class AtomicInserts(inserts: LogicalPlan, catalog: String) extends LeafRunnableCommand {
  override val output: Seq[Attribute] = Nil

  override def run(session: SparkSession): Seq[Row] = {
    val begin = TransactionCommand(TransactionStatement("begin"), Some(catalog))
    AtomicBlock.around(session, begin)(Internals.run(session, inserts))
    Nil
  }
}
