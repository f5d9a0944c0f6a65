package lockstep.spark

import java.nio.file.FileAlreadyExistsException
import java.util

import com.fasterxml.jackson.databind.JsonNode
import lockstep.spark.catalog.NewTables
import lockstep.spark.host.SessionSettings
import lockstep.spark.overlay.{FilePermissions, Overlay}
import lockstep.spark.reads.Reads
import lockstep.spark.statements.StatementScope
import lockstep.spark.transactions.Transactions
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.SparkEnv
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.delta.storage.LogStore

import io.delta.storage.HadoopFileSystemLogStore

import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._

/**
 * Where Delta's commits become Lockstep's. Writing `<version>.json`
 *
 *   - under `head` is the moment an autocommitted statement commits: Python ratifies and publishes it, or says that
 *     the table version is taken, and then Delta's own conflict check and retry do the rest;
 *   - under a transaction's URI stages it: Python writes the file, or is told of one that is too long for a request.
 *
 * Every other log file (checksums, checkpoints) is written where the overlay puts it, and replaced if the overlay lets it be.
 */
class LockstepLogStore(conf: Configuration) extends HadoopFileSystemLogStore(conf) {
  private val Commit = "^(\\d{20})\\.json$".r

  override def write(
      path: Path,
      actions: util.Iterator[String],
      overwrite: java.lang.Boolean,
      hadoopConf: Configuration): Unit =
    path.getName match {
      case Commit(_) if overwrite =>
        throw FilePermissions.refusal(Overlay.parse(path.toUri.getAuthority), "replace", path)
      case _ if Overlay.parse(path.toUri.getAuthority).isKept =>
        throw FilePermissions.refusal(Overlay.parse(path.toUri.getAuthority), "write", path)
      case Commit(version) => commit(path, version.toLong, actions, hadoopConf)
      case _ => writeWithRename(path, actions, overwrite, hadoopConf)
    }

  private def commit(path: Path, version: Long, actions: util.Iterator[String], hadoopConf: Configuration): Unit = {
    val commit = Seq("uri" -> path.getParent.getParent.toString, "version" -> version)
    Overlay.parse(path.toUri.getAuthority).id match {
      case None =>
        val table = path.getParent.getParent.toString
        commitAlone(path, commit :+ ("creation" -> Option.when(version == 0)(table).flatMap(NewTables.at)), actions)
      case Some(transaction) =>
        Transactions.checkWriter(transaction)
        val session = Transactions.holder(transaction).getOrElse(SparkSession.active)
        val staged = Transactions.exclusively(session) {
          val lines = new Lines(actions.asScala)
          val more = Seq(
            "text" -> StatementScope.shownText,
            "has_read" -> Transactions.reads(session).exists(_.knows(path.toUri.getPath)))
          lines.whole match {
            case Some(content) =>
              unlessTaken(path, Bridge.call("stage", session, commit ++ more :+ ("actions" -> content): _*))
            case None =>
              unlessTaken(path, Bridge.call("staging", session, commit: _*))
              writeWithRename(path, lines.all.asJava, false, hadoopConf)
              Bridge.call("staged", session, commit ++ more: _*)
          }
        }
        // It may wait for another transaction. Nothing of ours is held meanwhile, so this one can be rolled back.
        if (staged.get("claims").asBoolean) Bridge.tell("claim", session, commit: _*)
    }
  }

  private def commitAlone(path: Path, commit: Seq[(String, Any)], actions: util.Iterator[String]): Unit = {
    val session = SparkSession.active
    val more = Seq(
      "actions" -> actions.asScala.map(_ + "\n").mkString,
      "text" -> StatementScope.shownText,
      "reads" -> Reads.ofExecution(session),
      "has_read" -> Reads.hasRead(session, path),
      "paths" -> Reads.pathsOfExecution(session),
      "views" -> Reads.viewsOfExecution(session),
      "catalogs" -> LockstepCatalog.in(session),
      SessionSettings.ofTransactions(session)
    )
    val _ = unlessTaken(path, Bridge.call("write", session, commit ++ more: _*))
  }

  /** Delta looks at who took the version, and tries the next one if the two do not conflict. */
  private def unlessTaken(path: Path, answer: JsonNode): JsonNode =
    if (answer.get("outcome").asText == "taken") throw new FileAlreadyExistsException(path.toString) else answer

  /** What Delta writes down for other readers (symlink manifests) names files as they know them. */
  override def resolvePathOnPhysicalStorage(path: Path, hadoopConf: Configuration): Path =
    super.resolvePathOnPhysicalStorage(Overlay.parse(path.toUri.getAuthority).real(path), hadoopConf)

  /**
   * As Delta has it where the files really are: whether a file can be seen before it is whole, so that a checkpoint is
   * written under a temporary name first.
   */
  override def isPartialWriteVisible(path: Path, hadoopConf: Configuration): java.lang.Boolean = {
    val real = Overlay.parse(path.toUri.getAuthority).real(path)
    LogStore(SparkEnv.get.conf, hadoopConf).isPartialWriteVisible(real, hadoopConf)
  }
}

/** The lines of a commit. Those of a long one are not all in memory at once. */
final private class Lines(lines: Iterator[String]) {
  private val MostCharacters = 256 * 1024

  private val first = new ArrayBuffer[String]
  private var characters = 0
  while (lines.hasNext && characters < MostCharacters) {
    first += lines.next()
    characters += first.last.length
  }

  /** All that it says; none if that is long. */
  val whole: Option[String] =
    Option.unless(lines.hasNext || characters >= MostCharacters)(first.map(_ + "\n").mkString)

  /** All of its lines, once. */
  def all: Iterator[String] = first.iterator ++ lines
}
