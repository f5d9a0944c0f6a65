package lockstep.spark.analysis

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule

import scala.annotation.unused

/** A Spark that makes functions in its own catalog alone calls none of a Lockstep catalog's. */
private[spark] case class TableFunctionCalls(@unused session: SparkSession) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan
}

private[spark] object TableFunctionCalls {
  val place: (SparkSession, LogicalPlan) => LogicalPlan = (_, plan) => plan
}
