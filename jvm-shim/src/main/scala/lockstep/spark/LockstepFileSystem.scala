package lockstep.spark

import java.io.FileNotFoundException
import java.net.URI
import java.nio.charset.StandardCharsets
import java.util.concurrent.ConcurrentHashMap

import lockstep.spark.execution.KeptLogs
import lockstep.spark.overlay.{FilePermissions, Overlay}
import lockstep.spark.transactions.EndedTransactions
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs._
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.util.Progressable

import scala.annotation.unused

/**
 * The overlay. Under `lockstep://<view>.<scheme>[.<authority>]/<path>` lies `<scheme>://<authority>/<path>`, except in
 * `_delta_log` folders, which show a transaction its own world:
 *
 *   - the real log up to the pinned table version; what comes after it does not exist;
 *   - the transaction's staged files, which stand in `_delta_log/_lockstep/<transaction>/`.
 *
 * `<view>` is `head` (no overlay), `<transaction>-<pin>`, or `<transaction>-new` for a table that the transaction makes. Of a
 * version that the table's log does not tell of any more, what is kept for tags is shown, see `Overlay.View.kept`.
 * A file with a version above the pin is read and written in the staging folder, whatever kind of log file it is (of
 * commits that were put together, the last one's version counts); so are hidden (temporary) ones and `_last_checkpoint`. The URI says it all: there is no other state, so executors and
 * driver see the same, and everything a file system may offer for reading data files is the underlying one's.
 *
 * Nothing that is there can be changed through it but what [[FilePermissions]] allows. Of Hadoop's methods that change
 * something, those that are not overridden here come down to the ones that are, or are offered by no file system that does
 * not say so.
 */
class LockstepFileSystem extends FileSystem {
  private var uri: URI = _
  private var view: Overlay.View = _
  private var base: FileSystem = _

  override def initialize(name: URI, conf: Configuration): Unit = {
    super.initialize(name, conf)
    setConf(conf)
    uri = new URI(name.getScheme, name.getAuthority, "/", null, null)
    view = Overlay.parse(name.getAuthority)
    base = FileSystem.get(view.real(new Path("/")).toUri, conf)
  }

  override def getScheme: String = Overlay.Scheme
  override def getUri: URI = uri

  private def cooked(path: Path): Path = new Path(Overlay.Scheme, uri.getAuthority, path.toUri.getPath)

  /**
   * A path of the underlying file system is the same path here. Delta asks so where a log names files by whole paths, as those
   * of shallow clones are: `VACUUM` then sees whether such a file lies in the table's folder.
   */
  override def makeQualified(path: Path): Path = {
    val (asked, own) = (path.toUri, base.getUri)
    val isBases = asked.getScheme == own.getScheme && asked.getAuthority == own.getAuthority
    super.makeQualified(if (isBases) cooked(path) else path)
  }

  /** Built field by field: the copying constructor asks the local file system for permissions, by forking `ls`. */
  private def cook(status: FileStatus, path: Path): FileStatus =
    new FileStatus(
      status.getLen,
      status.isDirectory,
      status.getReplication.toInt,
      status.getBlockSize,
      status.getModificationTime,
      path)

  override def open(path: Path, bufferSize: Int): FSDataInputStream = {
    val (files, place) = readable(path)
    files.open(place, bufferSize)
  }

  override def openFile(path: Path): FutureDataInputStreamBuilder = {
    val (files, place) = readable(path)
    files.openFile(place)
  }

  override def create(
      path: Path,
      permission: FsPermission,
      overwrite: Boolean,
      bufferSize: Int,
      replication: Short,
      blockSize: Long,
      progress: Progressable): FSDataOutputStream = {
    val place = FilePermissions.of(view, path)
    if (!place.mayBeMade) refuse("write", path)
    // Whoever would replace what stays finds out as one who did not want to replace anything.
    val replaces = overwrite && place.mayBeReplaced
    base.create(view.target(path), permission, replaces, bufferSize, replication, blockSize, progress)
  }

  override def append(path: Path, bufferSize: Int, progress: Progressable): FSDataOutputStream =
    refuse("append to", path)

  override def truncate(path: Path, length: Long): Boolean = refuse("truncate", path)

  override def concat(path: Path, sources: Array[Path]): Unit = refuse("append to", path)

  /** Only into its final name, and nothing is replaced: that is how a put-if-absent by rename is noticed. */
  override def rename(from: Path, to: Path): Boolean = {
    if (!FilePermissions.of(view, from).mayBeReplaced) refuse("rename", from)
    if (!FilePermissions.of(view, to).mayBeMade) refuse("write", to)
    !base.exists(view.target(to)) && base.rename(view.target(from), view.target(to))
  }

  /** Hadoop's own deletes first what is to be replaced, and looks then whether it may. */
  override protected def rename(from: Path, to: Path, @unused options: Options.Rename*): Unit =
    if (!rename(from, to)) throw new FileAlreadyExistsException(to.toString)

  override def delete(path: Path, recursive: Boolean): Boolean = {
    val place = FilePermissions.of(view, path)
    if (place.isKept) false
    else if (!place.mayBeDeleted || (recursive && !place.mayBeReplaced)) refuse("delete", path)
    else if (view.id.isEmpty && KeptLogs.keep(cooked(path))) false
    else base.delete(view.target(path), recursive)
  }

  override def mkdirs(path: Path, permission: FsPermission): Boolean =
    if (FilePermissions.isFolder(path)) base.mkdirs(view.target(path), permission) else refuse("make a folder at", path)

  override def setPermission(path: Path, permission: FsPermission): Unit = refuse("set the permission of", path)
  override def setOwner(path: Path, owner: String, group: String): Unit = refuse("set the owner of", path)
  override def setTimes(path: Path, modified: Long, accessed: Long): Unit = refuse("set the times of", path)
  override def setReplication(path: Path, replication: Short): Boolean = refuse("set the replication of", path)

  private def refuse(action: String, path: Path): Nothing = throw FilePermissions.refusal(view, action, path)

  override def getFileStatus(path: Path): FileStatus = {
    val (files, place) = readable(path)
    cook(files.getFileStatus(place), cooked(path))
  }

  override def listStatus(path: Path): Array[FileStatus] =
    if (!view.isLog(path)) listBelow(path)
    else {
      EndedTransactions.check(view)
      val shown = if (view.isKept) Array.empty[FileStatus] else shownOfLog(path)
      val kept = view.kept.fold(Array.empty[FileStatus])(log => listed(log.getFileSystem(getConf), log))
      val names = kept.map(_.getPath.getName).toSet
      (shown.filterNot(s => names(s.getPath.getName)) ++ kept).map(s =>
        cook(s, new Path(cooked(path), s.getPath.getName)))
    }

  /** What a transaction sees of a table's own log. */
  private def shownOfLog(path: Path): Array[FileStatus] = {
    val (real, staged) = (listOrNone(view.real(path)), listOrNone(view.staging(path)))
    if (real.isEmpty && staged.isEmpty && view.kept.isEmpty) throw new FileNotFoundException(s"No such folder: $path")
    val visible = real.getOrElse(Array.empty).filterNot(s => view.isStaged(new Path(path, s.getPath.getName)))
    visible ++ staged.getOrElse(Array.empty[FileStatus])
  }

  /** What is listed lies in the folder; a file is listed as itself. */
  private def listBelow(path: Path): Array[FileStatus] = {
    val target = view.target(path)
    base.listStatus(target).filterNot(isUnusedLog).map { status =>
      val isItself = status.getPath.toUri.getPath == target.toUri.getPath
      cook(status, if (isItself) cooked(path) else new Path(cooked(path), status.getPath.getName))
    }
  }

  /**
   * Whether it is the log's folder where no table is yet, and only other folders are in it. In object stores Hadoop makes
   * folders by markers, which nobody removes after a ROLLBACK, and Delta makes a table only where it finds nothing. What
   * may lie there is Python's to say, before Delta looks.
   */
  private def isUnusedLog(status: FileStatus): Boolean =
    view.mayBeNew && status.isDirectory && status.getPath.getName == Overlay.Log &&
      !base.listFiles(status.getPath, true).hasNext

  private def listOrNone(path: Path): Option[Array[FileStatus]] =
    try Some(base.listStatus(path))
    catch { case _: FileNotFoundException => None }

  private def listed(files: FileSystem, path: Path): Array[FileStatus] =
    try files.listStatus(path)
    catch { case _: FileNotFoundException => Array.empty }

  /** Where to read a file, which may be kept for tags in another place than the table's. */
  private def readable(path: Path): (FileSystem, Path) =
    view.amongKept(path).map(kept => (kept.getFileSystem(getConf), kept)).filter { case (files, kept) =>
      view.isKept || keptNames(files, kept.getParent)(kept.getName)
    }.getOrElse((base, readableHere(path)))

  /** The names in a folder of what is kept: looked for once, for what is kept never changes. */
  private def keptNames(files: FileSystem, folder: Path): Set[String] =
    namesByFolder.computeIfAbsent(folder, _ => listed(files, folder).map(_.getPath.getName).toSet)

  private val namesByFolder = new ConcurrentHashMap[Path, Set[String]]

  /** The real `_last_checkpoint` serves a transaction too, unless it tells of a checkpoint that it must not see. */
  private def readableHere(path: Path): Path = {
    val target = view.target(path)
    if (!view.isStaged(path) || path.getName != Overlay.LastCheckpoint || base.exists(target)) target
    else {
      val real = view.real(path)
      val version = Overlay.checkpointVersion(new String(read(real), StandardCharsets.UTF_8))
      if (version.exists(view.sees)) real else throw new FileNotFoundException(path.toString)
    }
  }

  private def read(path: Path): Array[Byte] = {
    val stream = base.open(path)
    try stream.readAllBytes()
    finally stream.close()
  }

  override def getFileBlockLocations(file: FileStatus, start: Long, length: Long): Array[BlockLocation] =
    if (file == null) null else getFileBlockLocations(file.getPath, start, length)

  override def getFileBlockLocations(path: Path, start: Long, length: Long): Array[BlockLocation] = {
    val (files, place) = view.amongKept(path).fold((base, view.target(path)))(_ => readable(path))
    files.getFileBlockLocations(place, start, length)
  }

  override def hasPathCapability(path: Path, capability: String): Boolean =
    base.hasPathCapability(view.target(path), capability)

  override def createBulkDelete(path: Path): BulkDelete =
    throw new UnsupportedOperationException(s"bulk delete under ${Overlay.Scheme}: is not offered; delete file by file")

  override def getDefaultBlockSize(path: Path): Long = base.getDefaultBlockSize(view.target(path))
  override def getDefaultReplication(path: Path): Short = base.getDefaultReplication(view.target(path))
  override def getServerDefaults(path: Path): FsServerDefaults = base.getServerDefaults(view.target(path))
  override def getStatus(path: Path): FsStatus = base.getStatus(if (path == null) null else view.target(path))
  override def getWorkingDirectory: Path = new Path(uri)
  override def setWorkingDirectory(path: Path): Unit = ()
}
