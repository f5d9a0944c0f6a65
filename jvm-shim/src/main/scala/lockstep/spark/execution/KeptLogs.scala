package lockstep.spark.execution

import lockstep.spark.{Bridge, LockstepCatalog}
import lockstep.spark.overlay.Overlay
import org.apache.hadoop.fs.Path
import org.apache.spark.internal.Logging
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.lockstep.LockstepException

/** Which files of tables' logs stay, whoever cleans up: those that tell of versions which tags keep. */
private[spark] object KeptLogs extends Logging {
  private val Versioned = "(\\d{20})\\..*".r

  /** Whether a file of a published table's log stays. Where nobody can tell, it does: Delta takes it another time. */
  def keep(path: Path): Boolean = path.getName match {
    case Versioned(version) if Option(path.getParent).exists(_.getName == Overlay.Log) =>
      try first(path.getParent.getParent).exists(version.toLong >= _)
      catch {
        case error: LockstepException =>
          logWarning(s"$path stays, for whether a tag keeps it is not known", error)
          true
      }
    case _ => false
  }

  /** The first version of which a table's log is needed; none if all of it may go. */
  private def first(table: Path): Option[Long] =
    SparkSession.getActiveSession.orElse(SparkSession.getDefaultSession) match {
      case None => Some(0) // an executor: no clean-up of Delta's runs there
      case Some(session) =>
        val about = Seq("uri" -> table.toString, "catalogs" -> LockstepCatalog.in(session))
        Option(Bridge.call("kept_log", session, about: _*).get("first")).filterNot(_.isNull).map(_.asLong)
    }
}
