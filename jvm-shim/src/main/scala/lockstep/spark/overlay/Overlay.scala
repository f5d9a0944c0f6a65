package lockstep.spark.overlay

import java.nio.charset.StandardCharsets
import java.util.HexFormat

import org.apache.hadoop.fs.Path

/** How an overlay URI is read: pure functions of the URI and of paths. */
private[spark] object Overlay {
  val Scheme = "lockstep"
  val Log = "_delta_log"
  val LastCheckpoint = "_last_checkpoint"

  /** The timeline's folder in a lake, and that of staged files in a log. */
  val Lockstep = "_lockstep"
  val Manifests = "_symlink_format_manifest"

  /** Separates a transaction's id, which is hexadecimal, from its epoch: all of them share the staged files. */
  private val Epoch = 'x'

  /** Separates from that the folder of what is kept of the table's log for tags, in hexadecimal: see `View.kept`. */
  private val Kept = 'k'
  private val Head = "head"
  private val Sidecars = "_sidecars"
  private val Versioned = "^(\\d{20})\\..*".r

  /** The commits from one version to another put together, as some writers do. */
  private val Compacted = "^\\d{20}\\.(\\d{20})\\.compacted\\.json".r
  private val Checkpoint = "\"version\"\\s*:\\s*(\\d+)".r.unanchored

  /**
   * `transaction` is none at the head, with an epoch after ROLLBACK TO; `pin` is -1 for a table that does not exist yet.
   * `kept` is a log that has what tags need of the table's: at the head it is shown in place of that, and to a transaction
   * together with it.
   */
  case class View(
      transaction: Option[String],
      pin: Long,
      scheme: String,
      authority: Option[String],
      kept: Option[Path] = None) {
    def real(path: Path): Path = new Path(scheme, authority.orNull, path.toUri.getPath)

    /** The transaction's id, the same in all of its epochs. */
    def id: Option[String] = transaction.map(_.takeWhile(_ != Epoch))

    def staging(log: Path): Path = new Path(real(log), s"$Lockstep/${id.getOrElse("head")}")

    def target(path: Path): Path =
      if (isStaged(path)) new Path(staging(path.getParent), path.getName)
      else stagedManifest(path).getOrElse(real(path))

    /** Whether a folder is a log of which this view shows something else than what is there. */
    def isLog(path: Path): Boolean = (transaction.isDefined || isKept) && path.getName == Log

    /** Whether it shows a table at one version as it is kept for tags, and nothing may be changed. */
    def isKept: Boolean = transaction.isEmpty && kept.isDefined

    /** Where a file of a log, or a sidecar, lies among what is kept; none of any other file, and where nothing is kept. */
    def amongKept(path: Path): Option[Path] = kept.flatMap { log =>
      Overlay.parts(path) match {
        case _ :+ Log :+ name => Some(new Path(log, name))
        case _ :+ Log :+ Sidecars :+ name => Some(new Path(new Path(log, Sidecars), name))
        case _ => None
      }
    }

    def sees(version: Long): Boolean = version <= pin

    /** Whether a table may be made in it: by the transaction, or by a statement alone. */
    def mayBeNew: Boolean = transaction.isEmpty || pin < 0

    def isStaged(path: Path): Boolean =
      path.getParent != null && transaction.isDefined && isLog(path.getParent) &&
        (path.getName match {
          case Compacted(last) => !sees(last.toLong)
          case Versioned(version) => !sees(version.toLong)
          case LastCheckpoint => true
          case name => name.startsWith(".")
        })

    /** Manifests for other readers name files, and those of a transaction are nobody else's before its COMMIT. */
    private def stagedManifest(path: Path): Option[Path] =
      Option.when(transaction.isDefined)(Overlay.parts(path).span(_ != Manifests)).collect {
        case (table, manifest) if manifest.nonEmpty =>
          new Path(staging(new Path((table :+ Log).mkString("/", "/", ""))), manifest.mkString("/"))
      }
  }

  def parse(authority: String): View = authority.split("\\.", 3) match {
    case Array(view, scheme, rest @ _*) =>
      view.lastIndexOf('-') match {
        case -1 => View(None, Long.MaxValue, scheme, rest.headOption)
        case dash =>
          val (viewer, pin) = (view.take(dash), version(view.drop(dash + 1)))
          val kept = Option.when(viewer.contains(Kept))(keptIn(viewer.dropWhile(_ != Kept).drop(1)))
          View(Option.unless(viewer.startsWith(s"$Head$Kept"))(viewer), pin, scheme, rest.headOption, kept)
      }
    case _ =>
      throw new IllegalArgumentException(
        s"Not a Lockstep URI: $Scheme://$authority (expected <view>.<scheme>[.<authority>])")
  }

  private def keptIn(hexadecimal: String): Path =
    new Path(new Path(new String(HexFormat.of.parseHex(hexadecimal), StandardCharsets.UTF_8)), Log)

  private def version(pin: String): Long = if (pin == "new") -1L else pin.toLong

  def checkpointVersion(lastCheckpoint: String): Option[Long] = lastCheckpoint match {
    case Checkpoint(version) => Some(version.toLong)
    case _ => None
  }

  /** Whether something lies in a view of a lake's table, be it a transaction's or not. */
  def isOurs(path: Path): Boolean = path.toUri.getScheme == Scheme

  /** Whether something lies in a view of a transaction's, which somebody may yet roll back. */
  def isOfTransaction(path: Path): Boolean = isOurs(path) && parse(path.toUri.getAuthority).transaction.isDefined

  /** Whether something lies in a view that shows what is kept of a log for tags. */
  def isKept(path: Path): Boolean = isOurs(path) && parse(path.toUri.getAuthority).kept.isDefined

  /** Where a folder of a transaction's view is as published. */
  def head(path: Path): Path =
    new Path(Scheme, s"head.${path.toUri.getAuthority.split("\\.", 2).last}", path.toUri.getPath)

  /** The names that a path is made of, from the root. */
  def parts(path: Path): Seq[String] = path.toUri.getPath.split('/').toSeq.filter(_.nonEmpty)
}
