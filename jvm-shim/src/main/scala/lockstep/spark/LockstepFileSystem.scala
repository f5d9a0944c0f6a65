package lockstep.spark

import java.io.FileNotFoundException
import java.net.URI
import java.nio.charset.StandardCharsets

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs._
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.util.Progressable

/**
 * The overlay. Under `lockstep://<view>.<scheme>[.<authority>]/<path>` lies `<scheme>://<authority>/<path>`, except in
 * `_delta_log` folders, which show a transaction its own world:
 *
 *   - the real log up to the pinned table version; what comes after it does not exist;
 *   - the transaction's staged files, which stand in `_delta_log/_lockstep/<transaction>/`.
 *
 * `<view>` is `head` (no overlay), `<transaction>-<pin>`, or `<transaction>-new` for a table that the transaction makes.
 * A file with a version above the pin is read and written in the staging folder, whatever kind of log file it is;
 * so are hidden (temporary) ones and `_last_checkpoint`. The URI says it all: there is no other state, so executors and
 * driver see the same, and everything a file system may offer for data files is the underlying one's.
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

  /** Built field by field: the copying constructor asks the local file system for permissions, by forking `ls`. */
  private def cook(status: FileStatus, path: Path): FileStatus =
    new FileStatus(
      status.getLen,
      status.isDirectory,
      status.getReplication.toInt,
      status.getBlockSize,
      status.getModificationTime,
      path)

  override def open(path: Path, bufferSize: Int): FSDataInputStream = base.open(readable(path), bufferSize)

  override def openFile(path: Path): FutureDataInputStreamBuilder = base.openFile(readable(path))

  override def create(
      path: Path,
      permission: FsPermission,
      overwrite: Boolean,
      bufferSize: Int,
      replication: Short,
      blockSize: Long,
      progress: Progressable): FSDataOutputStream =
    base.create(view.target(path), permission, overwrite, bufferSize, replication, blockSize, progress)

  override def append(path: Path, bufferSize: Int, progress: Progressable): FSDataOutputStream =
    base.append(view.target(path), bufferSize, progress)

  /** A staged log file is never replaced by a rename: that is how a put-if-absent by rename is noticed. */
  override def rename(from: Path, to: Path): Boolean =
    !(view.isStaged(to) && base.exists(view.target(to))) && base.rename(view.target(from), view.target(to))

  override def delete(path: Path, recursive: Boolean): Boolean = base.delete(view.target(path), recursive)

  override def mkdirs(path: Path, permission: FsPermission): Boolean = base.mkdirs(view.target(path), permission)

  override def getFileStatus(path: Path): FileStatus = cook(base.getFileStatus(readable(path)), cooked(path))

  override def listStatus(path: Path): Array[FileStatus] =
    if (!view.isLog(path)) listReal(path)
    else {
      Ended.check(view)
      val (real, staged) = (listOrNone(view.real(path)), listOrNone(view.staging(path)))
      if (real.isEmpty && staged.isEmpty) throw new FileNotFoundException(s"No such folder: $path")
      val visible = real.getOrElse(Array.empty).filterNot(s => view.isStaged(new Path(path, s.getPath.getName)))
      (visible ++ staged.getOrElse(Array.empty[FileStatus])).map(s =>
        cook(s, new Path(cooked(path), s.getPath.getName)))
    }

  private def listReal(path: Path): Array[FileStatus] =
    base.listStatus(view.real(path)).map(s => cook(s, cooked(s.getPath)))

  private def listOrNone(path: Path): Option[Array[FileStatus]] =
    try Some(base.listStatus(path))
    catch { case _: FileNotFoundException => None }

  /** The real `_last_checkpoint` serves a transaction too, unless it tells of a checkpoint that it must not see. */
  private def readable(path: Path): Path = {
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
    if (file == null) null else base.getFileBlockLocations(view.target(file.getPath), start, length)

  override def getFileBlockLocations(path: Path, start: Long, length: Long): Array[BlockLocation] =
    base.getFileBlockLocations(view.target(path), start, length)

  override def hasPathCapability(path: Path, capability: String): Boolean =
    base.hasPathCapability(view.target(path), capability)

  override def createBulkDelete(path: Path): BulkDelete =
    throw new UnsupportedOperationException(s"bulk delete under ${Overlay.Scheme}: is not offered; delete file by file")

  override def getDefaultBlockSize(path: Path): Long = base.getDefaultBlockSize(view.target(path))
  override def getDefaultReplication(path: Path): Short = base.getDefaultReplication(view.target(path))
  override def getServerDefaults(path: Path): FsServerDefaults = base.getServerDefaults(view.target(path))
  override def getStatus(path: Path): FsStatus = base.getStatus(if (path == null) null else view.target(path))
  override def setPermission(path: Path, permission: FsPermission): Unit =
    base.setPermission(view.target(path), permission)
  override def setTimes(path: Path, modified: Long, accessed: Long): Unit =
    base.setTimes(view.target(path), modified, accessed)
  override def getWorkingDirectory: Path = new Path(uri)
  override def setWorkingDirectory(path: Path): Unit = ()
}

/** How an overlay URI is read: pure functions of the URI and of paths. */
private[spark] object Overlay {
  val Scheme = "lockstep"
  val LastCheckpoint = "_last_checkpoint"

  /** Separates a transaction's id, which is hexadecimal, from its epoch: all of them share the staged files. */
  private val Epoch = 'x'
  private val Versioned = "^(\\d{20})\\..*".r
  private val Checkpoint = "\"version\"\\s*:\\s*(\\d+)".r.unanchored

  /** `transaction` is none at the head, with an epoch after ROLLBACK TO; `pin` is -1 for a table that does not exist yet. */
  case class View(transaction: Option[String], pin: Long, scheme: String, authority: Option[String]) {
    def real(path: Path): Path = new Path(scheme, authority.orNull, path.toUri.getPath)

    /** The transaction's id, the same in all of its epochs. */
    def id: Option[String] = transaction.map(_.takeWhile(_ != Epoch))

    def staging(log: Path): Path = new Path(real(log), s"_lockstep/${id.getOrElse("head")}")

    def target(path: Path): Path = if (isStaged(path)) new Path(staging(path.getParent), path.getName) else real(path)

    def isLog(path: Path): Boolean = transaction.isDefined && path.getName == "_delta_log"

    def sees(version: Long): Boolean = version <= pin

    def isStaged(path: Path): Boolean =
      path.getParent != null && isLog(path.getParent) &&
        (path.getName match {
          case Versioned(version) => !sees(version.toLong)
          case LastCheckpoint => true
          case name => name.startsWith(".")
        })
  }

  def parse(authority: String): View = authority.split("\\.", 3) match {
    case Array(view, scheme, rest @ _*) =>
      view.lastIndexOf('-') match {
        case -1 => View(None, Long.MaxValue, scheme, rest.headOption)
        case dash => View(Some(view.take(dash)), version(view.drop(dash + 1)), scheme, rest.headOption)
      }
    case _ =>
      throw new IllegalArgumentException(
        s"Not a Lockstep URI: $Scheme://$authority (expected <view>.<scheme>[.<authority>])")
  }

  private def version(pin: String): Long = if (pin == "new") -1L else pin.toLong

  def checkpointVersion(lastCheckpoint: String): Option[Long] = lastCheckpoint match {
    case Checkpoint(version) => Some(version.toLong)
    case _ => None
  }
}
