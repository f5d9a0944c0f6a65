package org.apache.spark.sql.delta.lockstep

import org.apache.spark.sql.delta.Snapshot
import org.apache.spark.sql.delta.catalog.DeltaTableV2
import org.apache.spark.sql.lockstep.Internals

import scala.util.control.NonFatal

/** What a table shows, for few listings of its log. */
object Snapshots {

  /**
   * The snapshot that Delta's table has. For a version Delta lists the log once for the oldest version that can be read, and
   * once for the newest; if this is another, once for a checkpoint before it, and once more for its commits. Of these only
   * the second and the last are needed.
   *
   * @param since
   *   a log that was listed at this time or later is not listed again for its newest version, in ms since 1970.
   */
  def of(table: DeltaTableV2, since: Long): Snapshot =
    table.timeTravelOpt.flatMap(_.version).fold(table.initialSnapshot)(at(table, _, since))

  private def at(table: DeltaTableV2, version: Long, since: Long): Snapshot =
    try {
      val log = table.deltaLog
      val newest = log.update(checkIfUpdatedSinceTs = Some(since))
      if (newest.version == version) newest
      else if (newest.version < version) log.getSnapshotAt(version)
      else log.getSnapshotAt(version, None, Some(newest.checkpointProvider), None, false)
    } catch {
      case NonFatal(error) if !Internals.isCancelled(error) => table.initialSnapshot // which says what is wrong with it
    }
}
