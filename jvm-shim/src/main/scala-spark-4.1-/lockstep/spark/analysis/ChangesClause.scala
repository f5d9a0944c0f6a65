package lockstep.spark.analysis

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan

/** `table CHANGES FROM …` is a syntax error before Spark 4.2: there the options of a table say it. */
private[analysis] object ChangesClause {
  def of(node: LogicalPlan): Option[RowChanges] = None
}
