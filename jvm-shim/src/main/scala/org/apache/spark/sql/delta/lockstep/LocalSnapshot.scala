package org.apache.spark.sql.delta.lockstep

import org.apache.hadoop.fs.Path
import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation
import org.apache.spark.sql.delta.{
  AdaptiveMetadataTableFeature,
  CheckpointProvider,
  DataFrameUtils,
  DeltaLog,
  Snapshot,
  SnapshotState
}
import org.apache.spark.sql.delta.actions.SingleAction
import org.apache.spark.sql.delta.commands.DeletionVectorUtils
import org.apache.spark.sql.delta.coordinatedcommits.TableCommitCoordinatorClient
import org.apache.spark.sql.delta.implicits._
import org.apache.spark.sql.delta.sources.DeltaSQLConf
import org.apache.spark.sql.{DataFrame, Dataset, SparkSession}

import scala.util.control.NonFatal

/** A snapshot of a small table, whose state is in the driver's memory. What Delta asks of it needs no job of Spark. */
private class LocalSnapshot(own: Snapshot, view: TableStates.View, limit: Int)
    extends Snapshot(own.path, own.version, own.logSegment, own.deltaLog, own.checksumOpt) {

  /** None for a table that is too large: all is as in Delta's own snapshot then. */
  private lazy val local: Option[TableState] = {
    val found =
      try TableStates.of(own, view, limit)(stateReconstruction.collect().map(_.unwrap))
      catch {
        case NonFatal(error) => // Delta's own way meets it again, and has a message for it
          LocalSnapshot.warn(s"the state of $path at version $version is computed by Spark", error)
          None
      }
    // There is nothing to be cached: Delta makes plans of it instead of RDDs from now on, and `parsed` takes one.
    if (found.nonEmpty) uncache()
    found
  }

  override def stateDF: DataFrame = local.fold(super.stateDF)(state => rows(state.relation))

  override def stateDS: Dataset[SingleAction] = local.fold(super.stateDS)(_ => stateDF.as[SingleAction])

  override protected def withStatsInternal: DataFrame =
    local.fold(super.withStatsInternal)(_ => parsed.fold(super.withStatsInternal)(rows))

  /** The files with their statistics, which are read from JSON once. */
  private lazy val parsed: Option[LocalRelation] =
    Some(super.withStatsInternal.queryExecution.optimizedPlan).collect { case relation: LocalRelation => relation }

  override protected def extractComputedState(stateDF: DataFrame): SnapshotState =
    local.fold(super.extractComputedState(stateDF)) { state =>
      def isSet(key: org.apache.spark.internal.config.ConfigEntry[Boolean]) = spark.sessionState.conf.getConf(key)
      state.summary(
        hasSizes = fileSizeHistogramEnabled,
        hasVectors =
          isSet(DeltaSQLConf.DELTA_CHECKSUM_DV_METRICS_ENABLED) && DeletionVectorUtils.deletionVectorsWritable(this),
        hasVectorSizes = isSet(DeltaSQLConf.DELTA_DELETED_RECORD_COUNTS_HISTOGRAM_ENABLED)
      )
    }

  private def rows(relation: LocalRelation): DataFrame = DataFrameUtils.ofRows(SparkSession.active, relation)

  // What the other has found out already.

  override protected def protocolMetadataICTAndLMCReconstruction(): Array[ReconstructedProtocolMetadataICTAndLMC] =
    Array(
      ReconstructedProtocolMetadataICTAndLMC(own.protocol, null, None, None),
      ReconstructedProtocolMetadataICTAndLMC(null, own.metadata, None, None),
      ReconstructedProtocolMetadataICTAndLMC(null, null, own.getInCommitTimestampOpt, own.lastManifestCommitOpt)
    )

  override protected def computeTableCommitCoordinatorClientOpt: Option[TableCommitCoordinatorClient] =
    own.tableCommitCoordinatorClientOpt

  override lazy val checkpointProvider: CheckpointProvider = own.checkpointProvider
}

object LocalSnapshot extends Logging {

  /** Delta's own way to put another snapshot into a log, which it keeps to itself. */
  private lazy val install = {
    val method = classOf[DeltaLog].getMethod("installSnapshot", classOf[Snapshot], classOf[Long])
    method.setAccessible(true)
    method
  }

  /**
   * Has a log answer with a local snapshot from now on, for as long as it stays at this version. A snapshot of an earlier
   * version stays as it is.
   *
   * @param head
   *   the published table's log.
   * @param pin
   *   the last version of it that the log shows.
   * @param limit
   *   the files and tombstones of a table that is not small any more.
   */
  def installed(log: DeltaLog, snapshot: Snapshot, head: Path, pin: Long, limit: Int): Unit =
    if (isDeltasOwn(snapshot) && snapshot.checksumOpt.forall(_.numFiles <= limit))
      try {
        val local = new LocalSnapshot(snapshot, TableStates.View(head, pin), limit)
        log.withSnapshotLockInterruptibly {
          val current = log.getCapturedSnapshot()
          if (current.snapshot eq snapshot) { val _ = install.invoke(log, local, Long.box(current.updateTimestamp)) }
        }
      } catch {
        case error @ (_: LinkageError | _: ReflectiveOperationException) => // another Delta than the one this was made for
          warn(
            "this Delta takes no snapshots but its own: tables' states are computed once for each transaction",
            error)
      }

  /** Whether it is one all of whose state stands in the files of its log. */
  private def isDeltasOwn(snapshot: Snapshot): Boolean =
    snapshot.getClass == classOf[Snapshot] && snapshot.version >= 0 &&
      snapshot.tableCommitCoordinatorClientOpt.isEmpty && !snapshot.isCatalogOwned &&
      !snapshot.protocol.isFeatureSupported(AdaptiveMetadataTableFeature)

  private def warn(text: String, error: Throwable): Unit = logWarning(text, error)
}
