package lockstep.spark.analysis

import lockstep.spark.catalog.WriterFormat
import lockstep.spark.execution.Clients
import lockstep.spark.scans.NoTables
import lockstep.spark.statements.{AnalyzedQuery, StatementScope, SystemTime}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule

/** Runs first in every analysis, before any relation is loaded; changes nothing but what Spark or Delta would misread. */
private[spark] case class StatementRule(session: SparkSession) extends Rule[LogicalPlan] {
  private val places: Seq[(SparkSession, LogicalPlan) => LogicalPlan] =
    Seq(
      WriterFormat.place,
      RowChanges.place,
      PastRelations.place,
      DeltaTravel.place,
      CloneTarget.place,
      ProcedureCalls.place,
      FunctionStatements.place,
      TableFunctionCalls.place
    )

  override def apply(plan: LogicalPlan): LogicalPlan = {
    SettingsGuard.checkSession(session, plan)
    Clients.enter(session)
    TransactionGuard.checkCalls(session, plan)
    AnalyzedQuery.mark(plan) // before any name in it is changed: Spark keeps it as it came
    // Whatever the statement is, it has the catalogs that stand for Spark's own loaded, by the settings of this session.
    val named = SessionNames.place(session, CatalogNames.place(session, AnalyzedQuery.place(plan)))
    StatementScope.open(session, named)
    // What was looked up to be written is not written by what has no table.
    if (NoTables.in(named)) WriterFormat.place(session, named)
    else places.foldLeft(SystemTime.mark(named))((before, place) => place(session, before))
  }
}

/** Runs behind what resolves a plan, and changes nothing. */
private[spark] object AnalyzedRule extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = {
    // Not only one that is resolved: Spark resolves some behind this, and the last analysis would then be a view's of it.
    StatementScope.current.foreach(_.became(plan))
    plan
  }
}
