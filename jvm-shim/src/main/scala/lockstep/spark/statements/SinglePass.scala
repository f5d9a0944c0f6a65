package lockstep.spark.statements

import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lockstep.LockstepException

/**
 * Spark's other analyzer, still in development, which runs none of the rules of extensions: with it nobody would know
 * which statement a relation belongs to, and nothing would be refused that a ROLLBACK could not take back.
 */
private[spark] object SinglePass {

  private val Settings =
    Seq("enabled", "enabledTentatively", "dualRunWithLegacy").map(name =>
      s"spark.sql.analyzer.singlePassResolver.$name")

  def isOn: Boolean = on.nonEmpty

  private def on: Option[String] = Settings.find(SQLConf.get.getConfString(_, "false").toBoolean)

  def refuse(what: String): Unit =
    on.foreach { setting =>
      throw new LockstepException(
        "LOCKSTEP_UNSUPPORTED",
        s"$what while $setting is on: Spark's single-pass analyzer skips the rules by which Lockstep knows statements. " +
          s"Set $setting to false, by spark.conf.set(…) or where the session is configured",
        "0A000"
      )
    }
}
