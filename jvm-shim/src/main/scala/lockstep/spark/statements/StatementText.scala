package lockstep.spark.statements

import org.apache.spark.sql.catalyst.analysis.ParameterizedQuery
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.trees.TreeNodeTag

/** The SQL that a plan was parsed from. A DataFrame's plan has none, whatever the queries in it were. */
private[spark] object StatementText {
  private val Tag = TreeNodeTag[String]("lockstep.text")

  /** Notes the text of a statement whose parser does not: Delta's own. */
  def mark(plan: LogicalPlan, sql: String): LogicalPlan = {
    if (plan.origin.sqlText.isEmpty) plan.setTagValue(Tag, sql)
    plan
  }

  def of(plan: LogicalPlan): Option[String] = plan match {
    case parameterized: ParameterizedQuery => of(parameterized.child)
    case _ => plan.origin.sqlText.orElse(plan.getTagValue(Tag))
  }
}
