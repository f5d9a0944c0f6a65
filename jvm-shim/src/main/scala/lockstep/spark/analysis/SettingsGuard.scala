package lockstep.spark.analysis

import lockstep.spark.Bridge
import lockstep.spark.host.SessionSettings
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.execution.command.SetCommand

/**
 * Refuses `SET lockstep.<name> = <value>` of a setting that Lockstep does not have, or of a value that it cannot have: Spark
 * takes any. Which there are, Python says. What is set in another way is told at the next BEGIN or write.
 */
private[spark] case class SettingsGuard(session: SparkSession) extends (LogicalPlan => Unit) {

  override def apply(plan: LogicalPlan): Unit = plan match {
    case SetCommand(Some((name, Some(value))))
        if name.toLowerCase(java.util.Locale.ROOT).startsWith(SessionSettings.Prefix) =>
      Bridge.tell("check_setting", session, "name" -> name, "value" -> value)
    case _ =>
  }
}
