package lockstep.spark

import java.nio.file.FileAlreadyExistsException
import java.util

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.SparkSession

import io.delta.storage.HadoopFileSystemLogStore

import scala.jdk.CollectionConverters._

/**
 * Where Delta's commits become Lockstep's. Writing `<version>.json`
 *
 *   - under `head` is the moment an autocommitted statement commits: Python ratifies and publishes it, or says that
 *     the table version is taken, and then Delta's own conflict check and retry do the rest;
 *   - under a transaction's URI stages it, and tells Python so.
 *
 * Every other log file (checksums, checkpoints) is written where the overlay puts it.
 */
class LockstepLogStore(conf: Configuration) extends HadoopFileSystemLogStore(conf) {
  private val Commit = "^(\\d{20})\\.json$".r

  override def write(
      path: Path,
      actions: util.Iterator[String],
      overwrite: java.lang.Boolean,
      hadoopConf: Configuration): Unit =
    path.getName match {
      case Commit(version) if !overwrite => commit(path, version.toLong, actions, hadoopConf)
      case _ => writeWithRename(path, actions, overwrite, hadoopConf)
    }

  private def commit(path: Path, version: Long, actions: util.Iterator[String], hadoopConf: Configuration): Unit = {
    val session = SparkSession.active
    val table = path.getParent.getParent.toString
    if (Overlay.parse(path.toUri.getAuthority).transaction.isEmpty) {
      val content = actions.asScala.map(_ + "\n").mkString
      val answer = Bridge.call(
        "write",
        session,
        "uri" -> table,
        "version" -> version,
        "actions" -> content,
        "reads" -> Reads.ofExecution(session),
        "isolation" -> Extensions.settings(session).get("isolation")
      )
      if (answer.get("outcome").asText == "taken") throw new FileAlreadyExistsException(path.toString)
    } else {
      writeWithRename(path, actions, false, hadoopConf)
      Bridge.tell("staged", session, "uri" -> table, "version" -> version)
    }
  }

  /** What Delta writes down for other readers (symlink manifests) names files as they know them. */
  override def resolvePathOnPhysicalStorage(path: Path, hadoopConf: Configuration): Path =
    super.resolvePathOnPhysicalStorage(Overlay.parse(path.toUri.getAuthority).real(path), hadoopConf)

  /** A commit is written under a temporary name first, staged or not. */
  override def isPartialWriteVisible(path: Path, hadoopConf: Configuration): java.lang.Boolean = false
}
