package lockstep.spark.analysis

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan

/** CREATE and DROP FUNCTION are refused by a Spark that takes functions of its own catalog alone into a plan. */
private[spark] object FunctionStatements {
  val place: (SparkSession, LogicalPlan) => LogicalPlan = (_, plan) => plan
}
