package org.apache.spark.sql.delta.lockstep

import java.lang.reflect.Modifier
import java.util.concurrent.atomic.AtomicBoolean

import org.apache.hadoop.fs.Path
import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.catalog.CatalogTable
import org.apache.spark.sql.delta.actions.{AddFile, InMemoryLogReplay, Metadata, Protocol, RemoveFile, SetTransaction}
import org.apache.spark.sql.delta.catalog.DeltaTableV2
import org.apache.spark.sql.delta.{CapturedSnapshot, CheckpointProvider, DeltaLog, LogSegment, Snapshot, SnapshotState}
import org.apache.spark.sql.lockstep.Internals
import org.apache.spark.sql.{Dataset, SparkSession}

import scala.util.control.NonFatal

/**
 * What is put in the place of Delta's own objects, so that a table's state is known to all and its log is listed once:
 * `LocalSnapshot` and `ReadTable`. They override and call what Delta promises nobody to keep. Whether it is as they need it
 * is looked at once a driver, before the first of them is made. Where it is not, or where a member turns out to be missing
 * later, a warning says so once, and Delta's own objects are used from then on: they are as right, and slower.
 *
 * This names neither class itself: a class whose members do not fit those of Delta's fails as soon as whoever names it is
 * loaded.
 */
object DeltaInternals extends Logging {
  private val isGivenUp = new AtomicBoolean

  private lazy val isAsExpected: Boolean = {
    try {
      val missing = Expected.missing
      if (missing.isEmpty) Expected.replay() else giveUp(s"${missing.mkString(", ")} is not there")
    } catch { case error @ (_: LinkageError | NonFatal(_)) => giveUp(error) }
    !isGivenUp.get
  }

  /**
   * Has a log answer with a local snapshot from now on, as `LocalSnapshot.installed` does.
   *
   * @return
   *   the snapshot to be used in the place of the given one: of the same version of the same log.
   */
  def installed(log: DeltaLog, snapshot: Snapshot, head: Path, pin: Long, limit: Int): Snapshot =
    ours(snapshot)(
      try LocalSnapshot.installed(log, snapshot, head, pin, limit)
      catch {
        case NonFatal(error) if !Internals.isCancelled(error) => // what Delta, too, may meet, or need not
          logWarning(s"the state of ${snapshot.path} is Delta's own, which computes it for each transaction", error)
          snapshot
      }
    )

  /** Delta's table, described as a catalog's, with the snapshot that was read of it; Delta's own copy reads it once more. */
  def described(table: DeltaTableV2, as: CatalogTable, snapshot: Snapshot): DeltaTableV2 =
    ours(table.copy(catalogTable = Some(as)))(ReadTable.of(table, as, snapshot))

  private def ours[T](deltas: => T)(ours: => T): T =
    if (isGivenUp.get || !isAsExpected) deltas
    else
      try ours
      catch {
        case error: LinkageError =>
          giveUp(error)
          deltas
      }

  /** From now on Delta's own objects are used: a member is missing, or is not as expected. */
  private[lockstep] def giveUp(error: Throwable): Unit = giveUp(error.toString, Some(error))

  private def giveUp(why: String, error: Option[Throwable] = None): Unit =
    if (isGivenUp.compareAndSet(false, true)) {
      val text =
        s"Delta ${io.delta.VERSION} is not as the one that Lockstep was made for: $why. So Delta's own snapshots are used. " +
          "Results are right, but jobs of Spark compute which files a table has once for each transaction that writes it " +
          "and again after COMMIT, and each use of a table lists its log up to four times. `python -m lockstep jars` " +
          "names the Delta to use."
      error.fold(logWarning(text))(logWarning(text, _))
    }
}

/** What `LocalSnapshot`, `TableStates` and `ReadTable` need of Delta. */
private object Expected {

  sealed private trait Needed {
    def isThere: Boolean
  }

  /** A class's only constructor that others may call. */
  private case class Constructor(owner: Class[_], parameters: Class[_]*) extends Needed {
    override def toString: String = s"new ${owner.getSimpleName}"

    override def isThere: Boolean = owner.getConstructors.map(_.getParameterTypes.toSeq).toSeq == Seq(parameters)
  }

  /** A method as its callers are compiled to find it. */
  private case class Member(owner: Class[_], name: String, result: Class[_], parameters: Class[_]*) extends Needed {
    override def toString: String = s"${owner.getSimpleName}.$name"

    override def isThere: Boolean = owner.getMethods.exists { method =>
      method.getName == name && method.getReturnType == result && method.getParameterTypes.toSeq == parameters &&
      !Modifier.isFinal(method.getModifiers) && !Modifier.isStatic(method.getModifiers)
    }
  }

  private def frame = classOf[Dataset[_]]

  private def members: Seq[Member] = Seq(
    // These are overridden. One of another name or shape would not be: some answers would be ours then, and some not.
    Member(classOf[Snapshot], "stateDF", frame),
    Member(classOf[Snapshot], "stateDS", frame),
    Member(classOf[Snapshot], "withStatsInternal", frame),
    Member(classOf[Snapshot], "extractComputedState", classOf[SnapshotState], frame),
    Member(
      classOf[Snapshot],
      "protocolMetadataICTAndLMCReconstruction",
      classOf[Array[Snapshot#ReconstructedProtocolMetadataICTAndLMC]]),
    Member(classOf[Snapshot], "computeTableCommitCoordinatorClientOpt", classOf[Option[_]]),
    Member(classOf[Snapshot], "checkpointProvider", classOf[CheckpointProvider]),
    Member(classOf[DeltaTableV2], "initialSnapshot", classOf[Snapshot]),
    // And these are called where a snapshot is installed.
    Member(classOf[DeltaLog], "installSnapshot", classOf[Snapshot], classOf[Snapshot], classOf[Long]),
    Member(classOf[DeltaLog], "getCapturedSnapshot", classOf[CapturedSnapshot]),
    Member(classOf[DeltaLog], "withSnapshotLockInterruptibly", classOf[Object], classOf[Function0[_]])
  )

  private def constructors: Seq[Constructor] = Seq(
    Constructor(
      classOf[Snapshot],
      classOf[Path],
      classOf[Long],
      classOf[LogSegment],
      classOf[DeltaLog],
      classOf[Option[_]]),
    Constructor(
      classOf[DeltaTableV2],
      classOf[SparkSession],
      classOf[Path],
      classOf[Option[_]],
      classOf[Option[_]],
      classOf[Option[_]],
      classOf[Map[_, _]])
  )

  /** What is not there, by name. */
  def missing: Seq[String] = (members ++ constructors).filterNot(_.isThere).map(_.toString)

  /** Makes a state of two commits, and sums it up: it is known what they come to. */
  def replay(): Unit = {
    def add(path: String) = AddFile(path, Map.empty, size = 1, modificationTime = 1, dataChange = true)
    val replay = new InMemoryLogReplay(Some(0L), None)
    replay.append(0, Iterator(Protocol(1, 2), Metadata(id = "table", schemaString = "{}"), add("gone"), add("kept")))
    replay.append(1, Iterator(RemoveFile("gone", deletionTimestamp = Some(1L)), SetTransaction("stream", 7, None)))
    val state = new TableState(replay.checkpoint.toIndexedSeq)
    val sum = state.summary(hasSizes = true, hasVectors = true, hasVectorSizes = true)
    require(
      Seq(sum.numOfFiles, sum.sizeInBytes, sum.numOfRemoves, sum.numOfSetTransactions).forall(_ == 1) &&
        sum.metadata.id == "table" && sum.protocol == Protocol(1, 2) && state.relation.data.size == state.actions.size,
      "two commits come to something else than they should"
    )
  }
}
