package lockstep.spark.host

import java.io.InputStream
import java.security.MessageDigest

import com.fasterxml.jackson.databind.JsonNode
import lockstep.spark.overlay.Overlay
import org.apache.hadoop.fs.{FileSystem, Path}
import org.apache.hadoop.util.functional.FutureIO
import org.apache.spark.sql.SparkSession

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

/**
 * What Spark's side sees of a file that Python has seen in a lake's root. It is observed here, as every table's file is read:
 * by the file system that Hadoop has for the root. Whether the two are the same root, Python judges.
 */
private[spark] object RootLook {

  /**
   * The fields of `saw_root`, but for whose it is: what is asked for is in `look`.
   *
   * @param isOfDriver whether the options of the catalog that it is about are those of the whole driver
   */
  def at(look: JsonNode, session: SparkSession, isOfDriver: Boolean): Seq[(String, Any)] = {
    val path = pathOf(look)
    val opened = observed(StoreSettings.open(look, path, session, isOfDriver))
    val told = opened.toOption
    val files = told.flatMap(_.files)
    val seen = opened.flatMap(_ => files.toRight(new IllegalStateException("not looked at")))
      .flatMap(known => observed(content(known, path, look)))
    val conf = session.sessionState.newHadoopConf()
    val settings = look.get("settings").elements().asScala.map(_.asText).flatMap(name =>
      Option(conf.getTrimmed(name)).filter(_.nonEmpty).map(name -> _))
    Seq(
      "root" -> look.get("root").asText,
      "settings" -> settings.toMap,
      "file_system" -> files.map(_.getClass.getName),
      "length" -> seen.map(_.length).toOption,
      "digest" -> seen.map(digest).toOption,
      "failures" -> seen.swap.map(kinds).getOrElse(Seq.empty),
      "message" -> seen.swap.map(causes(_).map(_.toString).mkString("; ")).toOption,
      "kept" -> told.toSeq.flatMap(_.kept),
      "others" -> told.map(_.others).getOrElse(Map.empty),
      "untold" -> told.flatMap(_.untold),
      "beside" ->
        look.get("beside").elements().asScala.filter(_ => seen.isRight).map(beside(_, session, isOfDriver)).toSeq
    )
  }

  /** The same of another store, in which nothing is looked at. */
  private def beside(place: JsonNode, session: SparkSession, isOfDriver: Boolean): Map[String, Any] = {
    val opened = observed(StoreSettings.open(place, pathOf(place), session, isOfDriver))
    Map(
      "others" -> opened.map(_.others).getOrElse(Map.empty),
      "untold" -> opened.toOption.flatMap(_.untold),
      "failures" -> opened.swap.map(kinds).getOrElse(Seq.empty),
      "message" -> opened.swap.map(causes(_).map(_.toString).mkString("; ")).toOption
    )
  }

  private def pathOf(place: JsonNode): Path = {
    val uri = new Path(place.get("uri").asText)
    Overlay.parse(uri.toUri.getAuthority).real(uri)
  }

  /** What comes of it, or what is thrown: of a file system's jars, some may be missing. */
  private def observed[T](look: => T): Either[Throwable, T] =
    try Right(look)
    catch { case e @ (NonFatal(_) | _: LinkageError) => Left(e) }

  /** The first bytes of a file, whose size need not be asked for. */
  private def content(files: FileSystem, path: Path, look: JsonNode): Array[Byte] = {
    val opening = files.openFile(path).opt("fs.option.openfile.length", look.get("size").asText).build()
    val stream: InputStream = FutureIO.awaitFuture(opening)
    try stream.readNBytes(look.get("length").asInt)
    finally stream.close()
  }

  private def digest(content: Array[Byte]): String =
    MessageDigest.getInstance("SHA-256").digest(content).map(byte => f"$byte%02x").mkString

  /** The classes of what was thrown, with those that they are kinds of, the outermost first. */
  private def kinds(thrown: Throwable): Seq[String] =
    causes(thrown).flatMap { each =>
      Iterator.iterate[Class[_]](each.getClass)(_.getSuperclass).takeWhile(_ != classOf[Throwable]).map(_.getName)
    }

  private def causes(thrown: Throwable): Seq[Throwable] =
    Iterator.iterate(thrown)(_.getCause).takeWhile(_ != null).take(MostCauses).toSeq

  private val MostCauses = 10
}
