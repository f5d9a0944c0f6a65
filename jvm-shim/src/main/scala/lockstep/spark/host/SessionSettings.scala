package lockstep.spark.host

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.lockstep.LockstepException

/** What Python is told of a session's settings. */
private[spark] object SessionSettings {

  /** Whether names that differ in case alone are two, for every request about names. */
  def caseSensitive(session: SparkSession): (String, Any) =
    "case_sensitive" -> session.sessionState.conf.caseSensitiveAnalysis

  /** What every setting of a session that is Lockstep's begins with. */
  val Prefix = "lockstep."

  /**
   * All that a session sets as Lockstep's (`SET lockstep.isolation = …`), without the prefix: it goes before what the catalog
   * says. Which of these there are Python knows, and refuses the others.
   */
  def ofTransactions(session: SparkSession): (String, Any) =
    "settings" -> session.conf.getAll.collect {
      case (name, value) if name.startsWith(Prefix) => name.stripPrefix(Prefix) -> value
    }

  /** The files of a table whose state is kept in the driver. */
  def driverStateFiles(session: SparkSession): Int = {
    val name = "lockstep.driver_state_files"
    session.conf.getOption(name).fold(10000)(value =>
      value.toIntOption.filter(_ >= 0).getOrElse(
        throw new LockstepException("LOCKSTEP_INVALID", s"$name is '$value': expected a whole number", "22023")))
  }
}
