package lockstep.spark.execution

import lockstep.spark.LockstepCatalog
import lockstep.spark.analysis.CommandTargets
import lockstep.spark.grammar.TransactionStatement
import lockstep.spark.statements.StatementScope
import lockstep.spark.transactions.Transactions
import org.apache.spark.sql.{Row, SparkSession}
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.{Command, CompoundBody, LogicalPlan, Union, WithCTE}
import org.apache.spark.sql.execution.command.LeafRunnableCommand
import org.apache.spark.sql.lockstep.{Internals, LockstepException}

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

private[spark] object AtomicInserts {

  /** A statement as it is to be run, before anything in it is resolved. */
  def place(session: SparkSession, plan: LogicalPlan): LogicalPlan = {
    lazy val catalogs = StatementScope.inserted(session, plan).map(_.head)
    if (Transactions.isOpen(session) || plan.isInstanceOf[CompoundBody] || catalogs.size < 2) plan
    else catalogs.find(LockstepCatalog.isOne).fold(plan)(AtomicInserts(plan, _))
  }

  /** Refuses a resolved statement of several INSERTs whose names could not be read before. */
  def check(session: SparkSession, plan: LogicalPlan): Unit =
    if (!Transactions.isOpen(session)) {
      val commands = several(plan)
      if (commands.size > 1 && commands.exists(CommandTargets.of(_, Seq("table")).exists(_.isOurs)))
        throw new LockstepException(
          "LOCKSTEP_UNSUPPORTED",
          "Several INSERTs in one statement, with IDENTIFIER(…) for a table, would be visible one after the other: write " +
            "the tables' names, or run it between BEGIN and COMMIT.",
          "0A000"
        )
    }

  private def several(plan: LogicalPlan): Seq[Command] = plan match {
    case WithCTE(inner, _) => several(inner)
    case union: Union => union.children.collect { case command: Command => command }
    case _ => Nil
  }
}
