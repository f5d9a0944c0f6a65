package lockstep.spark.analysis

import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan

/** `table CHANGES FROM …` is a syntax error before Spark 4.2: there the options of a table say it. */
private[analysis] object ChangesClause {
  def unapply(node: LogicalPlan): Option[(UnresolvedRelation, UnresolvedRelation => LogicalPlan)] = None

  def of(node: LogicalPlan): Option[RowChanges] = None
}
