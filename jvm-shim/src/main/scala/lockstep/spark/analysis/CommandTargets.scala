package lockstep.spark.analysis

import java.net.URI

import lockstep.spark.LockstepCatalog
import lockstep.spark.overlay.Overlay
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.catalyst.{FunctionIdentifier, TableIdentifier}
import org.apache.spark.sql.catalyst.analysis.{
  ResolvedIdentifier,
  ResolvedNamespace,
  ResolvedPersistentView,
  ResolvedTable
}
import org.apache.spark.sql.catalyst.catalog.CatalogTable
import org.apache.spark.sql.catalyst.plans.logical.{Command, LogicalPlan}
import org.apache.spark.sql.connector.catalog.{CatalogPlugin, Identifier}
import org.apache.spark.sql.delta.DeltaLog
import org.apache.spark.sql.delta.catalog.DeltaTableV2
import org.apache.spark.sql.delta.files.TahoeFileIndex
import org.apache.spark.sql.execution.datasources.{HadoopFsRelation, LogicalRelation}
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation

/** Something that a command changes: what to call it, whether a Lockstep catalog has it, and whether it is a Delta path. */
private[spark] case class ChangedThing(name: String, isOurs: Boolean, isByPath: Boolean = false)

/**
 * What an analyzed command changes, by the types of what its fields hold, never by what they print. A Delta table is known
 * by where it lies, because commands of Delta's API say the current catalog, whosever table they have.
 */
private[spark] object CommandTargets {

  /** What a command's fields of these names hold. A field that is not there names nothing that is ours. */
  def of(command: Command, fields: Seq[String]): Seq[ChangedThing] = {
    val values = command.productElementNames.zip(command.productIterator).toMap
    fields.flatMap(field => values.get(field).fold(Seq(strange(s"$field of ${command.nodeName}")))(things))
  }

  def of(table: CatalogTable): Seq[ChangedThing] = things(table)

  /** What to call the target of a command of Spark's own catalog, or of files. */
  def named(command: Command): String = {
    val target = command.productIterator.collectFirst {
      case table: CatalogTable => table.identifier.unquotedString
      case table: TableIdentifier => table.unquotedString
      case function: FunctionIdentifier => function.unquotedString
      case path: Path => path.toString
      case text: String if text.nonEmpty => text
    }
    shortened(target.getOrElse("files or another format"))
  }

  private def things(value: Any): Seq[ChangedThing] = value match {
    case plan: LogicalPlan => plan.collectLeaves().map(leaf)
    case table: CatalogTable => Seq(ChangedThing(table.identifier.unquotedString, isOurs(table)))
    case table: DeltaTableV2 => Seq(delta(table))
    case log: DeltaLog => Seq(at(log.dataPath))
    case index: TahoeFileIndex => Seq(at(index.path))
    case path: Path => Seq(at(path))
    case other => Seq(strange(String.valueOf(other)))
  }

  private def leaf(plan: LogicalPlan): ChangedThing = plan match {
    case ResolvedTable(_, _, table: DeltaTableV2, _) => delta(table)
    case ResolvedTable(catalog, ident, _, _) => in(catalog, ident)
    case ResolvedIdentifier(catalog, ident) => in(catalog, ident)
    case ResolvedNamespace(catalog, namespace, _) => in(catalog, namespace)
    case ResolvedPersistentView(catalog, ident, _) => in(catalog, ident)
    case relation: DataSourceV2Relation => relation.table match {
        case table: DeltaTableV2 => delta(table)
        case staged => ChangedThing(shortened(staged.name), relation.catalog.exists(isLockstep)) // that of a CTAS
      }
    case relation: LogicalRelation => relation.relation match {
        case HadoopFsRelation(index: TahoeFileIndex, _, _, _, _, _) =>
          ChangedThing(index.path.toString, isOurs(index.path.toUri) && relation.catalogTable.forall(isOurs))
        case other => strange(other.toString)
      }
    case other => strange(other.nodeName)
  }

  private def in(catalog: CatalogPlugin, ident: Identifier): ChangedThing =
    in(catalog, ident.namespace.toSeq :+ ident.name)

  private def in(catalog: CatalogPlugin, name: Seq[String]) =
    ChangedThing((catalog.name +: name).mkString("."), isLockstep(catalog))

  private def isLockstep(catalog: CatalogPlugin) = catalog.isInstanceOf[LockstepCatalog]

  private def delta(table: DeltaTableV2) =
    ChangedThing(table.name, isOurs(table.path.toUri) && table.catalogTable.forall(isOurs), table.catalogTable.isEmpty)

  private def at(path: Path) = ChangedThing(path.toString, isOurs(path.toUri))

  private def strange(what: String) = ChangedThing(shortened(what), isOurs = false)

  private def shortened(text: String) = if (text.length > 80) text.take(80) + "…" else text

  private def isOurs(uri: URI): Boolean = uri.getScheme == Overlay.Scheme

  /** A table of Spark's own catalog may lie at such a path too, and be changed there and in its metastore. */
  private def isOurs(table: CatalogTable): Boolean =
    table.storage.locationUri.exists(isOurs) &&
      (table.identifier.catalog.exists(LockstepCatalog.isOne) || isByPath(table))

  private def isByPath(table: CatalogTable): Boolean = table.identifier.database.contains("delta") &&
    table.storage.locationUri.exists(uri => new Path(uri) == new Path(table.identifier.table))
}
