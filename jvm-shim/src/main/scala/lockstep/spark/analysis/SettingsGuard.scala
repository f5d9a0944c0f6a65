package lockstep.spark.analysis

import lockstep.spark.Bridge
import lockstep.spark.host.SessionSettings
import lockstep.spark.statements.CatalogSettings
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.execution.command.{ResetCommand, SetCommand}
import org.apache.spark.sql.internal.SQLConf

/**
 * Refuses `SET lockstep.<name> = <value>` of a setting that Lockstep does not have, or of a value that it cannot have: Spark
 * takes any. Which there are, Python says. What is set in another way is told at the next BEGIN or write; a catalog of ours in
 * the place of Spark's own at the next statement (`checkSession`).
 */
private[spark] case class SettingsGuard(session: SparkSession) extends (LogicalPlan => Unit) {

  override def apply(plan: LogicalPlan): Unit = plan match {
    case SetCommand(Some((name, Some(value))))
        if name.toLowerCase(java.util.Locale.ROOT).startsWith(SessionSettings.Prefix) =>
      Bridge.tell("check_setting", session, "name" -> name, "value" -> value)
    case SetCommand(Some((CatalogSettings.OfSpark, value))) => CatalogSettings.checkOfSpark(value)
    case _ =>
  }
}

private[spark] object SettingsGuard {

  /** Before any name is looked up. What sets the settings right goes on. */
  def checkSession(session: SparkSession, plan: LogicalPlan): Unit = plan match {
    case _: SetCommand | _: ResetCommand =>
    case _ =>
      CatalogSettings.checkOfSpark(Option(session.sessionState.conf.getConf(SQLConf.V2_SESSION_CATALOG_IMPLEMENTATION)))
  }
}
