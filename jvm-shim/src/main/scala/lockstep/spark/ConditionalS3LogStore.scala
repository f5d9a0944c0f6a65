package lockstep.spark

import java.io.{FileNotFoundException, InputStream, InterruptedIOException}
import java.net.{SocketTimeoutException, URI}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.FileAlreadyExistsException
import java.util
import java.util.UUID
import java.util.concurrent.{ConcurrentHashMap, ThreadLocalRandom}

import com.google.common.base.Throwables
import com.google.common.io.{ByteSource, FileBackedOutputStream}
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileSystem, Path}
import org.apache.hadoop.util.VersionInfo
import org.apache.spark.sql.lockstep.LockstepException

import io.delta.storage.S3SingleDriverLogStore

import scala.annotation.tailrec
import scala.jdk.CollectionConverters._
import scala.util.Try
import scala.util.control.NonFatal

/**
 * A log store for drivers of plain Delta that write the same tables on S3: the store itself decides who gets a version.
 *
 * Delta's own looks whether a version is taken and writes it a moment later, so that two drivers write over each other.
 * This one has S3A write `If-None-Match: *` (HADOOP-19256, in Hadoop 3.4.2 and newer). It uses nothing else of Lockstep,
 * which publishes with the same condition: a driver needs this jar, and `spark.delta.logStore.s3a.impl`.
 *
 * What is written with `overwrite` (`_last_checkpoint`, checkpoints), listed and read is so as ever.
 */
class ConditionalS3LogStore(conf: Configuration) extends S3SingleDriverLogStore(conf) {
  import ConditionalS3LogStore._

  override def write(
      path: Path,
      actions: util.Iterator[String],
      overwrite: java.lang.Boolean,
      hadoopConf: Configuration): Unit =
    if (overwrite) super.write(path, actions, overwrite, hadoopConf)
    else {
      val files = path.getFileSystem(hadoopConf)
      if (!files.hasPathCapability(path, OnlyIfAbsent)) throw tooOld(files, path)
      prove(files, path)
      // Actions come once, and may be needed again: to be compared, and to be sent again.
      val content = new FileBackedOutputStream(MostInMemory)
      try {
        actions.forEachRemaining(line => content.write((line + "\n").getBytes(UTF_8)))
        create(files, path, content.asByteSource, Pauses, isAgain = false)
      } finally { val _ = Try(content.reset()) } // be it that a temporary file stays: the commit may stand
    }
}

private[spark] object ConditionalS3LogStore {

  /** What asks for the condition: `Options.CreateFileOptionKeys` has its name, and older Hadoops have no such class. */
  private val OnlyIfAbsent = "fs.option.create.conditional.overwrite"

  private val MostInMemory = 8 * 1024 * 1024

  /** Milliseconds between tries of ours. S3A's own, of errors that may pass, are over by then. */
  private val Pauses = List(100, 200, 400, 800)

  /** The buckets of which this process knows that they honour the condition, each with where it is reached. */
  private val proven = ConcurrentHashMap.newKeySet[(URI, String)]()

  // --- one file -------------------------------------------------------------------------------------------------------

  sealed private trait Look
  private case object Mine extends Look
  private case object Theirs extends Look
  private case object Absent extends Look

  /**
   * Writes the file, or throws `FileAlreadyExistsException`, by which Delta goes on to the next version; or says that nobody
   * knows.
   *
   * No error says what became of a request: S3A and the SDK under it send one again whose answer was lost, and the second is
   * told (412) that the first is in the way; of two at once S3 says 409 to one, or to both. So it is looked what is there. If
   * nothing is, the same is sent again: should an earlier request arrive after all, it is the same file, and there once.
   */
  @tailrec
  private def create(files: FileSystem, path: Path, content: ByteSource, pauses: List[Int], isAgain: Boolean): Unit = {
    val error =
      try put(files, path, content)
      catch { case NonFatal(e) if isAgain => Some(e) } // what was sent before may be written all the same
    error match {
      case None => ()
      case Some(e) if isInterrupt(e) => throw interrupted(path, e)
      case Some(e) =>
        (look(files, path, content, e), pauses) match {
          case (Mine, _) => ()
          case (Theirs, _) => throw new FileAlreadyExistsException(path.toString)
          case (Absent, Nil) => throw unknown(path, e)
          case (Absent, pause :: rest) =>
            try Thread.sleep(pause / 2 + ThreadLocalRandom.current.nextLong(pause.toLong))
            catch { case e: InterruptedException => throw interrupted(path, e) }
            create(files, path, content, rest, isAgain = true)
        }
    }
  }

  /** Sends the file, only if there is none. What is thrown came before it could be written, what is returned after that. */
  private def put(files: FileSystem, path: Path, content: ByteSource): Option[Throwable] = {
    // `must`: what does not know it, or has it switched off, refuses. S3A opens the stream without a look at what is there.
    val out = files.createFile(path).recursive().must(OnlyIfAbsent, true).build()
    try content.copyTo(out)
    catch {
      case NonFatal(e) => // a stream that is not closed has written nothing
        val _ = Try(out.abort())
        throw e
    }
    try {
      out.close()
      None
    } catch { case NonFatal(e) => Some(e) }
  }

  /**
   * What is there now. The same bytes are ours: a commit has an id of its transaction and names of files that nobody else makes
   * up. Where it has neither, two drivers have said the same thing, and it is true of the table as often as it is said.
   */
  private def look(files: FileSystem, path: Path, content: ByteSource, error: Throwable): Look = {
    val there = new ByteSource {
      override def openStream(): InputStream = files.open(path)
    }
    try if (content.contentEquals(there)) Mine else Theirs
    catch {
      case _: FileNotFoundException => Absent
      case NonFatal(e) if isInterrupt(e) => throw interrupted(path, e)
      case NonFatal(e) =>
        error.addSuppressed(e)
        throw unknown(path, error)
    }
  }

  /** Java says so of a socket that waited for too long, too. */
  private def isInterrupt(error: Throwable): Boolean =
    error.isInstanceOf[InterruptedIOException] && !error.isInstanceOf[SocketTimeoutException]

  // --- what the store must do -----------------------------------------------------------------------------------------

  /** How S3A, or a newer one, says that a file is there: S3's 412. */
  private val Refusals = Set("RemoteFileChangedException", "FileAlreadyExistsException")

  /**
   * Refuses a store that ignores the condition, once for each process and bucket: it answers as any other, and two drivers
   * would lose each other's commits. A file beside the commits is written, and then another under its name.
   */
  private def prove(files: FileSystem, path: Path): Unit = {
    val place = (files.getUri, files.getConf.get("fs.s3a.endpoint", ""))
    if (!proven.contains(place)) {
      val probe = new Path(path.getParent, s"_lockstep_race-${UUID.randomUUID}")
      def isRefused(text: String): Boolean =
        put(files, probe, ByteSource.wrap(text.getBytes(UTF_8))).exists { error =>
          val isRefusal = Throwables.getCausalChain(error).asScala.exists(each => Refusals(each.getClass.getSimpleName))
          if (isRefusal) true else throw error
        }
      try {
        val _ = isRefused("first") // as it is where its answer was lost, and S3A has sent it again
        if (!isRefused("second")) throw ignored(files, path)
      } finally {
        val _ = Try(files.delete(probe, false)) // who may not delete may commit
      }
      val _ = proven.add(place)
    }
  }

  // --- errors ---------------------------------------------------------------------------------------------------------

  private def tooOld(files: FileSystem, path: Path) = unsupported(
    s"$path was not written: ${files.getClass.getName} of Hadoop ${VersionInfo.getVersion} cannot write a file only if " +
      "there is none, or is told not to. lockstep.spark.ConditionalS3LogStore needs hadoop-aws 3.4.2 or newer, of the same " +
      "version as Spark's Hadoop, and fs.s3a.create.conditional.enabled must not be false.")

  private def ignored(files: FileSystem, path: Path) = unsupported(
    s"$path was not written: ${files.getUri} wrote over a file that it was to write only if there was none " +
      "(If-None-Match), so drivers would lose each other's commits there. Let one driver alone write the tables of this " +
      "store, or use a store that honours the condition.")

  private def unsupported(message: String) = new LockstepException("LOCKSTEP_UNSUPPORTED", message, "0A000")

  private def unknown(path: Path, error: Throwable): LockstepException = {
    val unknown = new LockstepException("LOCKSTEP_COMMIT_UNKNOWN", doubt(path, error), "40003")
    unknown.addSuppressed(error) // it has no room for a cause
    unknown
  }

  /** Not a condition of ours: a stream that is stopped knows by the class that this is no failure. */
  private def interrupted(path: Path, error: Throwable): InterruptedIOException = {
    val interrupted = new InterruptedIOException(doubt(path, error))
    val _ = interrupted.initCause(error)
    interrupted
  }

  private def doubt(path: Path, cause: Throwable): String =
    s"Nobody knows whether $path was written, or will be: the store neither confirmed nor denied it, and what is there could " +
      s"not be found out. Look into that file before you run the statement again. The last error: $cause"
}
