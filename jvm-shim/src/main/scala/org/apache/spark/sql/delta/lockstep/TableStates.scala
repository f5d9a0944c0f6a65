package org.apache.spark.sql.delta.lockstep

import java.io.FileNotFoundException
import java.util

import org.apache.hadoop.fs.{FileStatus, Path}
import org.apache.spark.sql.delta.Snapshot
import org.apache.spark.sql.delta.actions.{Action, AddFile, InMemoryLogReplay, RemoveFile}
import org.apache.spark.sql.delta.util.FileNames

import scala.jdk.CollectionConverters._
import scala.util.Using

/**
 * The states of small tables, by what they are the states of: computed once a driver, whoever asks. Delta computes one for
 * each URI of a table, by jobs of Spark. But what lies at a version is the same in the published log and in the view of a
 * transaction that has pinned it, and what comes after it are a few commits: Delta's own replay adds them, in the driver.
 *
 * A state is known by its last commit's file, as Delta tells the segments of a log apart: `LogSegment.equals`. But what
 * Delta computes of a segment is gone with the next version, and this goes on from it. So the other commits since the last
 * checkpoint have to be the same files as well: on S3, plain Delta can write over one that is not the last.
 */
private[lockstep] object TableStates {

  /** The bytes of commits and checkpoints that the driver reads for a state; those of a small table are less. */
  private val MaxBytes: Long = 8L << 20

  /** The commits that a state is told by; a checkpoint is due after ten. */
  private val MaxCommits = 100

  /** What all states together may have of the driver's heap, in bytes as `TableState.bytes` estimates them. */
  private val KeptBytes = Runtime.getRuntime.maxMemory / 16

  /** Where the commits of a view are: up to the pin in the published log, then in the transaction's. */
  case class View(head: Path, pin: Long)

  /** The last commit's file, where it is published or staged: a version, and what a listing says of it. */
  private case class Key(log: Path, version: Long, modified: Long, length: Long)

  /** What has been found out, the least recently used first. */
  private val known = new util.LinkedHashMap[Key, Known](16, 0.75f, true)

  /** What was found out of a log that was listed with these commits, by version. */
  private case class Known(size: Size, commits: Map[Long, FileStatus])

  sealed private trait Size
  private case class Small(state: TableState) extends Size

  /** Nothing is tried for the next versions, either: it was so many actions when they were counted last. */
  private case class Large(actions: Int, counted: Long) extends Size

  /**
   * The state of a snapshot.
   *
   * @param view
   *   where its log has its commits from.
   * @param limit
   *   the files and tombstones of a table that is not small any more.
   * @param reconstructed
   *   has Spark compute the state, for a small table whose log begins with a checkpoint.
   * @return
   *   none if the table is not small, or a file of its log is not there.
   */
  def of(snapshot: Snapshot, view: View, limit: Int)(reconstructed: => Array[Action]): Option[TableState] = {
    val commits = new Commits(snapshot, view)
    def sizeOf(key: Key) =
      commits.known(key).orElse {
        computed(commits, snapshot, limit, reconstructed).map { size =>
          remember(key, Known(size, commits.listed))
          size
        }
      }
    commits.key(snapshot.version).flatMap(sizeOf).collect { case Small(state) if state.actions.size <= limit => state }
  }

  private def computed(
      commits: Commits,
      snapshot: Snapshot,
      limit: Int,
      reconstructed: => Array[Action]): Option[Size] =
    commits.base match {
      case Some((_, large @ Large(actions, counted)))
          if actions > limit && snapshot.version - counted < MaxCommits => Some(large)
      case base =>
        val from = base.collect { case (version, Small(state)) => version -> state.actions }
        from.flatMap { case (version, actions) => commits.replayed(version + 1, actions) }
          .orElse(if (snapshot.logSegment.checkpointProvider.isEmpty) commits.replayed(0, IndexedSeq.empty) else None)
          .orElse(if (isReadable(snapshot)) Some(reconstructed.toIndexedSeq) else None)
          .map { actions =>
            if (actions.size <= limit) Small(new TableState(actions)) else Large(actions.size, snapshot.version)
          }
    }

  /** Whether a checkpoint is small enough to be read for the driver; how many files it has, a checksum says. */
  private def isReadable(snapshot: Snapshot): Boolean =
    snapshot.checksumOpt.nonEmpty && snapshot.checkpointSizeInBytes() <= MaxBytes

  private def remember(key: Key, found: Known): Unit = synchronized {
    known.put(key, found)
    var kept = known.values.asScala.map(weight).sum
    val oldest = known.entrySet.iterator
    while (kept > KeptBytes) {
      kept -= weight(oldest.next().getValue)
      oldest.remove()
    }
  }

  /** An entry costs something although it has no actions; a file's status is about as large as one. */
  private def weight(each: Known): Long = {
    val actions = each.size match {
      case Small(state) => state.bytes
      case _: Large => 0L
    }
    actions + TableState.ActionBytes * (1L + each.commits.size)
  }

  /** The commits that a snapshot's log has. */
  private class Commits(snapshot: Snapshot, view: View) {
    private val conf = snapshot.deltaLog.newDeltaHadoopConf()

    /** Those since the last checkpoint. */
    val listed: Map[Long, FileStatus] =
      snapshot.logSegment.deltas.collect { case status @ FileNames.DeltaFile(_, version) => version -> status }.toMap

    /** The file of a commit; none if it is not there, for a checkpoint stands in its place. */
    private def file(version: Long): Option[FileStatus] = listed.get(version).orElse {
      val path = FileNames.unsafeDeltaFile(snapshot.logPath, version)
      try Some(path.getFileSystem(conf).getFileStatus(path))
      catch { case _: FileNotFoundException => None }
    }

    def key(version: Long): Option[Key] = file(version).map { status =>
      Key(log(version), version, status.getModificationTime, status.getLen)
    }

    /** What is known of the log up to here. */
    def known(key: Key): Option[Size] =
      TableStates.synchronized(Option(TableStates.known.get(key))).filter(isOfThis).map(_.size)

    /** What is known of the newest of the earlier versions that this log goes on from. */
    def base: Option[(Long, Size)] = {
      val earlier = TableStates.synchronized {
        TableStates.known.asScala.collect {
          case (key, found) if isEarlier(key) && isOfThis(found) => key -> found.size
        }
          .toSeq
      }
      earlier.sortBy(-_._1.version).collectFirst {
        case (base, size) if key(base.version).contains(base) => base.version -> size
      }
    }

    /** Whether those of its commits that this log is listed with are the same files here. */
    private def isOfThis(found: Known): Boolean = found.commits.forall { case (version, commit) =>
      listed.get(version).forall { now =>
        now.getModificationTime == commit.getModificationTime && now.getLen == commit.getLen
      }
    }

    private def isEarlier(key: Key): Boolean =
      key.version < snapshot.version && snapshot.version - key.version <= MaxCommits && key.log == log(key.version)

    private def log(version: Long): Path = if (version <= view.pin) view.head else snapshot.path

    /** The state that commits from a version on make of an earlier one; none if one is missing, or they are too many. */
    def replayed(from: Long, base: IndexedSeq[Action]): Option[IndexedSeq[Action]] = {
      val files = if (snapshot.version - from < MaxCommits) (from to snapshot.version).map(file) else Seq(None)
      if (files.contains(None) || files.flatten.map(_.getLen).sum > MaxBytes) None
      else {
        val replay = new InMemoryLogReplay(
          Some(snapshot.minFileRetentionTimestamp),
          snapshot.minSetTransactionRetentionTimestamp)
        replay.append(from - 1, base.iterator)
        files.flatten.zipWithIndex.foreach { case (commit, i) => replay.append(from + i, read(commit.getPath)) }
        Some(replay.checkpoint.toIndexedSeq)
      }
    }

    private def read(commit: Path): Iterator[Action] =
      Using.resource(snapshot.deltaLog.store.readAsIterator(commit, conf)) { lines =>
        lines.map(Action.fromJson).map(canonical).toVector
      }.iterator

    private lazy val canonicalPath = snapshot.deltaLog.getCanonicalPathFunction(runsOnExecutors = false)

    /**
     * As Spark reads it for `Snapshot.stateReconstruction`: a file is the same one however its path is written, and a map
     * that is not there is not an empty one.
     */
    private def canonical(action: Action): Action = action match {
      case add: AddFile => add.copy(path = canonicalPath(add.path), tags = present(add.tags))
      case remove: RemoveFile => remove.copy(path = canonicalPath(remove.path), tags = present(remove.tags))
      case other => other
    }

    private def present(map: Map[String, String]): Map[String, String] = Option(map).filter(_.nonEmpty).orNull
  }
}
