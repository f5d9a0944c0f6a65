package lockstep.spark.scans

import org.apache.spark.sql.catalyst.plans.logical.{
  Aggregate,
  Distinct,
  Filter,
  GlobalLimit,
  Join,
  LocalLimit,
  LocalRelation,
  LogicalPlan,
  Offset,
  OneRowRelation,
  Project,
  Range,
  ReturnAnswer,
  Sort,
  SubqueryAlias,
  Union
}
import org.apache.spark.sql.catalyst.trees.TreePattern.{PLAN_EXPRESSION, SQL_SCALAR_FUNCTION}

/**
 * Plans that surely read no table, use no view or function of a catalog and change nothing, as that of `SELECT 1`. Nothing
 * that Lockstep looks for can be in one, and it looks at each plan some thirty times from analysis to execution, so this is
 * asked first.
 *
 * A plan is one only if all of it is listed here. Whatever is not listed may hold what `Scans` and `ByPath` find, if only in
 * a field: commands, views, what was cached, RDDs, streams, system tables, references of CTEs, what Spark or an extension
 * comes to have.
 */
private[spark] object NoTables {

  /** Whether a plan is one, analyzed or not. A subquery is a plan in an expression, and a function's definition is read. */
  def in(plan: LogicalPlan): Boolean =
    !plan.containsAnyPattern(PLAN_EXPRESSION, SQL_SCALAR_FUNCTION) && isListed(plan)

  private def isListed(plan: LogicalPlan): Boolean = plan match {
    case _: OneRowRelation | _: Range => true
    case rows: LocalRelation => !rows.isStreaming
    case _: Project | _: Filter | _: Aggregate | _: Sort | _: Distinct | _: GlobalLimit | _: LocalLimit | _: Offset |
        _: SubqueryAlias | _: Join | _: Union | _: ReturnAnswer =>
      plan.children.forall(isListed)
    case _ => false
  }
}
