package lockstep.spark.analysis

import lockstep.spark.LockstepCatalog
import lockstep.spark.execution.AtomicInserts
import lockstep.spark.statements.StatementScope
import lockstep.spark.transactions.Transactions
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.plans.logical.{Command, CompoundBody, LogicalPlan, Union, WithCTE}
import org.apache.spark.sql.lockstep.LockstepException

/** Has a statement of several INSERTs, outside a transaction, be one (`AtomicInserts`). */
private[spark] object SeveralInserts {

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
