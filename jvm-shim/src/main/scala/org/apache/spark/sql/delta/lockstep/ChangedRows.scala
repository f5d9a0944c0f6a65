package org.apache.spark.sql.delta.lockstep

import org.apache.spark.SparkThrowable
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.plans.logical.{LocalRelation, LogicalPlan}
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.delta.actions.Metadata
import org.apache.spark.sql.delta.commands.cdc.CDCReader
import org.apache.spark.sql.delta.{DeltaLog, Snapshot}
import org.apache.spark.sql.lockstep.LockstepException

import java.sql.Timestamp

/**
 * The rows that versions of a table's log added and removed, read by Delta.
 *
 * @param plan       the table's columns, and Delta's three that say how, by which version and when a row changed
 * @param isFromFeed whether the change data feed tells it: of an update both rows are called one's then, and rows that were
 *                   only copied into another file are not among these. Else it is what was in the files that came and went.
 */
final case class ChangedRows(plan: LogicalPlan, isFromFeed: Boolean)

object ChangedRows {

  /**
   * @param versions those to read, in their order
   * @param shown    the snapshot that has the columns
   */
  def of(session: SparkSession, shown: Snapshot, versions: Seq[Long]): ChangedRows = {
    val log = shown.deltaLog
    def isFed(metadata: Metadata) = CDCReader.isCDCEnabledOnTable(metadata, session)
    val schema = CDCReader.cdcReadSchema(shown.schema)
    if (versions.isEmpty) ChangedRows(LocalRelation(DataTypeUtils.toAttributes(schema)), isFed(shown.metadata))
    else {
      val changes = log.getChanges(versions.head, versions.last, None, failOnDataLoss = false)
        .filter { case (version, _) => versions.contains(version) }.toIndexedSeq
      val gone = versions.diff(changes.map(_._1))
      gone.headOption.foreach(version => throw missing(log, version))
      val first = at(log, versions.head)
      val isFromFeed = isFed(first.metadata) && changes.forall(_._2.forall {
        case metadata: Metadata => isFed(metadata)
        case _ => true
      })
      val read = CDCReader.changesToDF(
        shown,
        versions.head,
        versions.last,
        changes.iterator,
        session,
        None,
        useCoarseGrainedCDC = !isFromFeed,
        startVersionSnapshot = Some(first))
      ChangedRows(read.fileChangeDf.queryExecution.analyzed, isFromFeed)
    }
  }

  /** A table as of a version of its log, which may be gone. */
  def at(log: DeltaLog, version: Long): Snapshot =
    try log.getSnapshotAt(version)
    catch {
      case error: Throwable with SparkThrowable if Untold.contains(error.getCondition) => throw missing(log, version)
    }

  /** What Delta says where files of a log are gone that tell of a version. */
  private val Untold = Set("DELTA_LOG_FILE_NOT_FOUND", "DELTA_VERSION_NOT_FOUND", "DELTA_VERSIONS_NOT_CONTIGUOUS")

  private def missing(log: DeltaLog, version: Long) = new LockstepException(
    "LOCKSTEP_MISSING_FILES",
    s"version $version of ${log.dataPath.getName} is among what is asked for, and its log file is gone: Delta " +
      "cleans up logs after delta.logRetentionDuration. Ask for changes between later versions.",
    "58P01"
  )

  /** The last version of a log that was committed at a time or before, and whether it was just then; none if all are later. */
  def lastAt(log: DeltaLog, micros: Long): Option[(Long, Boolean)] = {
    val millis = Math.floorDiv(micros, 1000L)
    val commit = log.history.getActiveCommitAtTime(
      new Timestamp(millis),
      None,
      canReturnLastCommit = true,
      mustBeRecreatable = false,
      canReturnEarliestCommit = true)
    Option.when(commit.timestamp <= millis)(commit.version -> (commit.timestamp * 1000 == micros))
  }
}
