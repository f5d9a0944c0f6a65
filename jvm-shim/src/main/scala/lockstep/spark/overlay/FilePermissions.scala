package lockstep.spark.overlay

import org.apache.hadoop.fs.Path
import org.apache.hadoop.security.AccessControlException

/** What may happen to a file through the overlay; what is not said here may not. */
private[spark] object FilePermissions {

  /** What kind of file a path is, which decides what may be done to it. */
  sealed abstract class Kind {

    /** It may be made where there is none. */
    def mayBeMade = false

    /** It may be replaced, or taken away with all that is below it. */
    def mayBeReplaced = false

    /** It may be taken away alone. */
    def mayBeDeleted = false

    /** Who wants to delete it hears that it was not, and no error: Delta's clean-up of logs takes no refusal. */
    def isKept = false
  }

  /** A log file of this transaction, save for its commits, and anything temporary: its to do with as it likes. */
  case object Own extends Kind {
    override val mayBeMade = true
    override val mayBeReplaced = true
    override val mayBeDeleted = true
  }

  /** What is made once and then stays: data, and what a transaction's statement has staged. */
  case object Once extends Kind {
    override val mayBeMade = true
  }

  /** The same, of a log. */
  case object LogOnce extends Kind {
    override val mayBeMade = true
    override val isKept = true
  }

  /** What is made once, and what Delta deletes when nobody needs it any more. */
  case object Expiring extends Kind {
    override val mayBeMade = true
    override val mayBeDeleted = true
  }

  /** A commit in a table's log, as Delta sees it outside of transactions: made by Lockstep, deleted by Delta's clean-up. */
  case object Published extends Kind {
    override val mayBeDeleted = true
  }

  /** A file of the table's log, as a transaction sees it. */
  case object Real extends Kind {
    override val isKept = true
  }

  /** All else. */
  case object Nobodys extends Kind

  private val Commit = "\\d{20}\\.json".r

  /** Checksums, checkpoints of each format, compacted commits. */
  private val Derived = "\\d{20}\\.(crc|checkpoint(\\.[^/]+)?\\.(parquet|json)|\\d{20}\\.compacted\\.json)".r

  private val Sidecars = "_sidecars"

  /** Folders that Delta makes in a log. */
  private val Folders = Set(Sidecars, "_staged_commits")

  def of(view: Overlay.View, path: Path): Kind = {
    val isOpen = view.transaction.isDefined
    val parts = Overlay.parts(path)
    parts.dropWhile(_ != Overlay.Log).drop(1) match {
      case _ if view.isKept || parts.contains(Overlay.Lockstep) || parts.lastOption.contains(Overlay.Log) => Nobodys
      case Seq() if parts.contains(Overlay.Manifests) => Own
      case Seq() => if (isOpen) Once else Expiring
      case Seq(name) => ofLog(name, isOpen, view.isStaged(path))
      case Seq(Sidecars, name) if isTemporary(name) => Own
      case Seq(Sidecars, _) => if (isOpen) LogOnce else Expiring
      case _ => Nobodys
    }
  }

  private def ofLog(name: String, isOpen: Boolean, isStaged: Boolean): Kind = name match {
    case Commit() => if (isStaged) LogOnce else if (isOpen) Real else Published
    case Derived(_*) | Overlay.LastCheckpoint => if (isStaged || !isOpen) Own else Real
    case _ if isTemporary(name) => Own
    case _ => Nobodys
  }

  /** As Delta names what it renames later. Other hidden files are the local file system's checksums. */
  private def isTemporary(name: String): Boolean = name.startsWith(".") && name.endsWith(".tmp")

  /** Folders come to no harm by being made again. */
  def isFolder(path: Path): Boolean = {
    val parts = Overlay.parts(path)
    !parts.contains(Overlay.Lockstep) &&
    (parts.dropWhile(_ != Overlay.Log).drop(1) match {
      case Seq() => true
      case Seq(name) => Folders(name)
      case _ => false
    })
  }

  def refusal(view: Overlay.View, action: String, path: Path): AccessControlException =
    new AccessControlException(view.id match {
      case Some(id) =>
        s"Transaction $id may not $action $path: it is not committed, and changes nothing but what it staged itself. It may " +
          "make new files; what is there already stays as it is."
      case None =>
        s"No statement may $action $path: through Lockstep, tables' files are made, and deleted by VACUUM and by Delta's " +
          "clean-up of logs, one by one, and nothing else."
    })
}
