package lockstep.spark.host

import java.io.IOException
import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import lockstep.spark.host.HadoopFiles.{Place, parent, plainly, status}
import org.apache.hadoop.fs.{FSDataOutputStream, FileAlreadyExistsException, Path}
import org.apache.hadoop.fs.Options.Rename
import org.apache.hadoop.hdfs.protocol.HdfsFileStatus

import scala.jdk.CollectionConverters._
import scala.util.Try
import scala.util.control.NonFatal

/**
 * How a file of HDFS is made such that it is there whole or not at all, and by one of several writers alone. HDFS shows a file
 * from its creation on, so it is written under a hidden name, closed when it is on the disks of its data nodes, and then renamed:
 * that is one step of the name node, which refuses a name that is taken unless it is told to replace.
 *
 * The hidden name is random, and so tells what became of a rename whose answer is missing: whoever deletes that file has shown
 * that it was not renamed and never will be, and where it is gone, it was renamed.
 */
private[host] object HadoopWrites {

  /** A rename whose answer is missing, and nobody could tell what became of it. */
  class Doubt(cause: Throwable) extends IOException(cause)

  private val Temporary = "\\.[0-9a-f]{32}\\.tmp".r

  def isTemporary(name: String): Boolean = Temporary.matches(name)

  private def temporaryFor(place: Place): Place = {
    val folder = parent(place.path).stripSuffix("/")
    place.copy(path = s"$folder/.${UUID.randomUUID.toString.replace("-", "")}.tmp")
  }

  /** Whether the file was written; else something has its name, or had it a moment ago, which may be this very file. */
  def put(place: Place, content: Array[Byte], replace: Boolean, sync: Boolean): Boolean =
    // Who comes second mostly learns it from one look, without writing its data first. The rename still decides.
    (replace || status(place).isEmpty) && {
      val temporary = temporaryFor(place)
      written(temporary) {
        val out = create(temporary, sync)
        try out.write(content)
        finally out.close()
      }
      renamed(temporary, place, replace)
    }

  /**
   * Folders are made, too. Under a policy of erasure coding it is replicated all the same: only that can be synced.
   *
   * Synced is each block when it ends, and with it the data node's directory that it is moved to. An `hsync` before the close
   * is not that: it syncs the last block where it lies while it is written, and of the move that follows nobody syncs anything.
   */
  private def create(place: Place, sync: Boolean): FSDataOutputStream = {
    val uri = place.files.getUri
    val path = new Path(uri.getScheme, uri.getAuthority, place.path)
    val file = place.files.createFile(path).overwrite(false).recursive().replicate()
    (if (sync) file.syncBlock() else file).build()
  }

  /** Leaves nothing behind that is half written, as far as it can. */
  private def written(temporary: Place)(write: => Unit): Unit =
    try write
    catch {
      case NonFatal(e) =>
        val _ = Try(temporary.files.getClient.delete(temporary.path, false))
        throw e
    }

  private def renamed(temporary: Place, place: Place, replace: Boolean): Boolean =
    try {
      val how = if (replace) Rename.OVERWRITE else Rename.NONE
      plainly(temporary.files.getClient.rename(temporary.path, place.path, how))
      true
    } catch {
      case e: FileAlreadyExistsException =>
        // A request that was repeated is told of the source first, so this is of another writer's file. It is looked at anyway.
        val _ = Try(temporary.files.getClient.delete(temporary.path, false))
        if (replace) throw e else false
      case NonFatal(e) =>
        val isUnnamed =
          try plainly(temporary.files.getClient.delete(temporary.path, false))
          catch { case NonFatal(_) => throw new Doubt(e) }
        if (isUnnamed) throw e else if (replace) throw new Doubt(e) else false
    }

  // --- files that come in pieces --------------------------------------------------------------------------------------

  private class Opened(val place: Place, val temporary: Place, val out: FSDataOutputStream) {
    @volatile var usedAt: Long = System.nanoTime
  }

  private val streams = new ConcurrentHashMap[String, Opened]()

  /** So many files may be open at a time. */
  private val MostOpen = 256

  /** Who asked for one and has not come back for so long has ended. */
  private val IdleNanos = 3600L * 1000 * 1000 * 1000

  def begin(place: Place, stream: String): Unit = {
    val now = System.nanoTime
    streams.asScala.collect { case (name, each) if now - each.usedAt > IdleNanos => name }.foreach(abort)
    if (streams.size >= MostOpen) throw new IOException(s"$MostOpen files are being written in pieces already")
    val temporary = temporaryFor(place)
    val _ = streams.put(stream, new Opened(place, temporary, create(temporary, sync = true)))
  }

  def piece(stream: String, content: Array[Byte]): Unit = {
    val opened = streams.get(stream)
    if (opened == null) throw new IOException("the file that this is a piece of was given up: it waited for too long")
    opened.usedAt = System.nanoTime
    opened.out.write(content)
  }

  def finish(stream: String, replace: Boolean): Boolean = {
    val opened = streams.remove(stream)
    if (opened == null) throw new IOException("the file that this was the end of was given up: it waited for too long")
    written(opened.temporary)(opened.out.close())
    renamed(opened.temporary, opened.place, replace)
  }

  /** The files that are being written. */
  def open: Seq[String] = streams.keySet.asScala.toSeq

  def abort(stream: String): Unit =
    Option(streams.remove(stream)).foreach { opened =>
      val _ = Try(opened.out.close())
      val _ = Try(opened.temporary.files.getClient.delete(opened.temporary.path, false))
    }

  // --- what the dead leave ----------------------------------------------------------------------------------------------

  private val DeadMillis = 24L * 3600 * 1000

  /**
   * A writer that was killed leaves its hidden file. Whoever lists the folder a day later removes it, if it may. One that is
   * written for so long is not closed, and has the time of its creation; those of the dead the name node closes in an hour.
   */
  def removeDead(folder: Place, found: HdfsFileStatus): Unit =
    if (System.currentTimeMillis - found.getModificationTime > DeadMillis) {
      val client = folder.files.getClient
      val path = s"${folder.path.stripSuffix("/")}/${found.getLocalName}"
      val _ = Try(client.isFileClosed(path) && client.delete(path, false))
    }
}
