package org.apache.spark.sql.delta.lockstep

import java.lang.ref.SoftReference

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
import org.apache.spark.sql.lockstep.Internals
import org.apache.spark.sql.{DataFrame, Dataset, SparkSession}

import scala.util.control.NonFatal

/** A snapshot that another has been found to be: the same version of the same log. */
abstract private class OtherSnapshot(own: Snapshot)
    extends Snapshot(own.path, own.version, own.logSegment, own.deltaLog, own.checksumOpt) {

  protected def rows(relation: LocalRelation): DataFrame = DataFrameUtils.ofRows(SparkSession.active, relation)

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

/** Has Delta read the statistics of a state's files from JSON. Delta keeps the plan for that, so this is to be let go. */
private class StatisticsReader(own: Snapshot, state: TableState) extends OtherSnapshot(own) {
  uncache() // so that Delta makes a plan of it instead of an RDD

  override def stateDF: DataFrame = rows(state.relation)
  override def stateDS: Dataset[SingleAction] = stateDF.as[SingleAction]

  /** None if Spark's optimizer does not evaluate that plan. */
  def parsed: Option[LocalRelation] =
    Some(withStatsInternal.queryExecution.optimizedPlan).collect { case relation: LocalRelation => relation }
}

/**
 * A snapshot of a small table, whose state is in the driver's memory. What Delta asks of it needs no job of Spark.
 *
 * Delta keeps the snapshots of many tables for a long time, so this holds on to no state: `TableStates` has those that are
 * used, and another is computed again once the memory was needed.
 */
private class LocalSnapshot(own: Snapshot, view: TableStates.View, limit: Int) extends OtherSnapshot(own) {

  /** A state, and its files with their statistics, which are read from JSON once. */
  private class Local(val state: TableState) {
    lazy val parsed: Option[LocalRelation] = new StatisticsReader(own, state).parsed
  }

  @volatile private var held = new SoftReference[Local](null)

  /** Not once a table was found to be too large: all is as in Delta's own snapshot then. */
  @volatile private var isLocal = true

  private def local: Option[Local] =
    if (isLocal) Option(held.get).orElse(synchronized(Option(held.get).orElse(find()))) else None

  private def find(): Option[Local] = {
    val state =
      try
        TableStates
          .of(own, view, limit)(stateReconstruction.collect().map(_.unwrap))
          .filter(isAsCounted)
          .map(new Local(_))
      catch {
        case NonFatal(
              error) if !Internals.isCancelled(error) => // Delta's own way meets it again, and has a message for it
          LocalSnapshot.warn(s"the state of $path at version $version is computed by Spark", error)
          None
        case error: LinkageError =>
          DeltaInternals.giveUp(error)
          None
      }
    isLocal = state.nonEmpty
    state.foreach { local =>
      uncache() // there is nothing to be cached
      held = new SoftReference(local)
    }
    state
  }

  /** Whether it has as many files and bytes as whoever wrote this version's checksum has counted, which may be nobody. */
  private def isAsCounted(state: TableState): Boolean = {
    val sum = state.summary(hasSizes = false, hasVectors = false, hasVectorSizes = false)
    val isSo = checksumOpt.forall(counted =>
      counted.numFiles == sum.numOfFiles && counted.tableSizeBytes == sum.sizeInBytes)
    if (!isSo)
      LocalSnapshot.warn(
        s"the state of $path at version $version is computed by Spark: in the driver it comes to ${sum.numOfFiles} files " +
          s"of ${sum.sizeInBytes} bytes together, and the version's checksum says otherwise")
    isSo
  }

  override def stateDF: DataFrame = local.fold(super.stateDF)(local => rows(local.state.relation))

  override def stateDS: Dataset[SingleAction] = local.fold(super.stateDS)(_ => stateDF.as[SingleAction])

  override protected def withStatsInternal: DataFrame =
    local.flatMap(_.parsed).fold(super.withStatsInternal)(rows)

  override protected def extractComputedState(stateDF: DataFrame): SnapshotState =
    local.fold(super.extractComputedState(stateDF)) { local =>
      def isSet(key: org.apache.spark.internal.config.ConfigEntry[Boolean]) = spark.sessionState.conf.getConf(key)
      local.state.summary(
        hasSizes = fileSizeHistogramEnabled,
        hasVectors =
          isSet(DeltaSQLConf.DELTA_CHECKSUM_DV_METRICS_ENABLED) && DeletionVectorUtils.deletionVectorsWritable(this),
        hasVectorSizes = isSet(DeltaSQLConf.DELTA_DELETED_RECORD_COUNTS_HISTOGRAM_ENABLED)
      )
    }
}

private object LocalSnapshot extends Logging {

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
   * @return
   *   what the log has now, if it is of the same version of the same log; else the given snapshot.
   */
  def installed(log: DeltaLog, snapshot: Snapshot, head: Path, pin: Long, limit: Int): Snapshot =
    if (!isDeltasOwn(snapshot) || snapshot.checksumOpt.exists(_.numFiles > limit)) snapshot
    else {
      val local = new LocalSnapshot(snapshot, TableStates.View(head, pin), limit)
      log.withSnapshotLockInterruptibly {
        val current = log.getCapturedSnapshot()
        if (current.snapshot eq snapshot) {
          val _ = install.invoke(log, local, Long.box(current.updateTimestamp))
          local
        } else if (current.snapshot.logSegment == snapshot.logSegment) current.snapshot // another thread was first
        else snapshot
      }
    }

  /** Whether it is one all of whose state stands in the files of its log. */
  private def isDeltasOwn(snapshot: Snapshot): Boolean =
    snapshot.getClass == classOf[Snapshot] && snapshot.version >= 0 &&
      snapshot.tableCommitCoordinatorClientOpt.isEmpty && !snapshot.isCatalogOwned &&
      !snapshot.protocol.isFeatureSupported(AdaptiveMetadataTableFeature)

  private def warn(text: String): Unit = logWarning(text)
  private def warn(text: String, error: Throwable): Unit = logWarning(text, error)
}
