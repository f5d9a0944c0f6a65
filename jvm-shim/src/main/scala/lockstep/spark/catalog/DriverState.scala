package lockstep.spark.catalog

import lockstep.spark.host.SessionSettings
import lockstep.spark.overlay.Overlay
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.delta.lockstep.DeltaInternals
import org.apache.spark.sql.delta.{DeltaLog, Snapshot}

/** Which files tables have: of a small one the driver keeps it, for the published table and all views of it together. */
private[spark] object DriverState {

  /**
   * Has a log answer from the driver's memory, if its newest snapshot is this one, and the table a small one.
   *
   * @return
   *   the snapshot to be used: the same version of the table. A log that shows what is kept for tags keeps Delta's own: its
   *   files are copies, and nothing that is known of the table's is of them.
   */
  def keep(session: SparkSession, log: DeltaLog, snapshot: Snapshot): Snapshot =
    if (Overlay.isKept(log.logPath)) snapshot
    else
      DeltaInternals.installed(
        log,
        snapshot,
        head = Overlay.head(log.logPath),
        pin = Overlay.parse(log.logPath.toUri.getAuthority).pin,
        limit = SessionSettings.driverStateFiles(session)
      )
}
