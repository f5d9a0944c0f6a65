package lockstep.spark.catalog

import lockstep.spark.host.SessionSettings
import lockstep.spark.overlay.Overlay
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.delta.lockstep.LocalSnapshot
import org.apache.spark.sql.delta.{DeltaLog, Snapshot}

/** Which files tables have: of a small one the driver keeps it, for the published table and all views of it together. */
private[spark] object DriverState {

  /** Has a log answer from the driver's memory, if its newest snapshot is this one, and the table a small one. */
  def keep(session: SparkSession, log: DeltaLog, snapshot: Snapshot): Unit =
    LocalSnapshot.installed(
      log,
      snapshot,
      head = Overlay.head(log.logPath),
      pin = Overlay.parse(log.logPath.toUri.getAuthority).pin,
      limit = SessionSettings.driverStateFiles(session)
    )
}
