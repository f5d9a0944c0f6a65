package lockstep.spark.host

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.lockstep.LockstepException

/** What Python is told of a session's settings. */
private[spark] object SessionSettings {

  /** Whether names that differ in case alone are two, for every request about names. */
  def caseSensitive(session: SparkSession): (String, Any) =
    "case_sensitive" -> session.sessionState.conf.caseSensitiveAnalysis

  /** What a session sets for its transactions (`SET lockstep.isolation = …`), by Python's names: before the catalog's. */
  def ofTransactions(session: SparkSession): (String, Any) =
    "settings" -> Seq("isolation", "record_reads", "on_statement_error", "shared_transaction_timeout").flatMap(name =>
      session.conf.getOption(s"lockstep.$name").map(name -> _)).toMap

  /** The files of a table whose state is kept in the driver. */
  def driverStateFiles(session: SparkSession): Int = {
    val name = "lockstep.driver_state_files"
    session.conf.getOption(name).fold(2000)(value =>
      value.toIntOption.filter(_ >= 0).getOrElse(
        throw new LockstepException("LOCKSTEP_INVALID", s"$name is '$value': expected a whole number", "22023")))
  }
}
