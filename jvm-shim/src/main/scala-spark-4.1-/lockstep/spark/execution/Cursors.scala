package lockstep.spark.execution

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan

import scala.annotation.unused

/** Scripts have no cursors before Spark 4.2. */
private[spark] object Cursors {
  def executed(@unused session: SparkSession, @unused plan: LogicalPlan): Unit = ()
}
