package lockstep.spark.scans

import lockstep.spark.overlay.Overlay
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.delta.commands.cdc.CDCReader.DeltaCDFRelation
import org.apache.spark.sql.delta.files.{TahoeFileIndex, TahoeLogFileIndex}
import org.apache.spark.sql.execution.datasources.{HadoopFsRelation, LogicalRelation}

/**
 * A relation that reads a table through the overlay, be it the table's files or its changes. Everything that asks whether a
 * relation is one, and in which view, asks here.
 *
 * @param folder where the table lies, in the overlay
 */
final private[spark] case class OverlaidRelation(relation: LogicalRelation, folder: Path) {
  val view: Overlay.View = Overlay.parse(folder.toUri.getAuthority)

  /** Whether it is not seen through a transaction. */
  def isHead: Boolean = view.transaction.isEmpty

  /** The files that it reads, if it reads files: those of a version, or the ones that a command of Delta's has chosen. */
  def index: Option[TahoeFileIndex] = relation.relation match {
    case HadoopFsRelation(index: TahoeFileIndex, _, _, _, _, _) => Some(index)
    case _ => None
  }

  /** The files that it reads, if these are all of a version: what users' plans have, before they are optimized. */
  def log: Option[TahoeLogFileIndex] = index.collect { case log: TahoeLogFileIndex => log }

  /** The changes that it reads, if it reads those. */
  def changes: Option[DeltaCDFRelation] = relation.relation match {
    case changes: DeltaCDFRelation => Some(changes)
    case _ => None
  }
}

private[spark] object OverlaidRelation {

  def of(relation: LogicalRelation): Option[OverlaidRelation] = {
    val folder = relation.relation match {
      case HadoopFsRelation(index: TahoeFileIndex, _, _, _, _, _) => Some(index.path)
      case changes: DeltaCDFRelation => Some(changes.snapshotWithSchemaMode.snapshot.deltaLog.dataPath)
      case _ => None
    }
    folder.filter(_.toUri.getScheme == Overlay.Scheme).map(new OverlaidRelation(relation, _))
  }
}
