package lockstep.spark.reads

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule

/**
 * Looks at every plan while it is optimized, and changes nothing.
 * @param catalogs
 *   a session's, with their settings
 */
private[spark] case class ReadRecorder(session: SparkSession, catalogs: SparkSession => Map[String, Any])
    extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = {
    Reads.optimizing(session, plan, catalogs(session))
    plan
  }
}
