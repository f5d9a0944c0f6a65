package lockstep.spark.scans

import java.io.IOException

import lockstep.spark.overlay.Overlay
import org.apache.hadoop.fs.Path
import org.apache.hadoop.fs.viewfs.ViewFileSystem
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.catalog.{CatalogTable, HiveTableRelation}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.delta.DeltaLogFileIndex
import org.apache.spark.sql.delta.commands.cdc.CDCReader.DeltaCDFRelation
import org.apache.spark.sql.delta.files.{TahoeFileIndex, TahoeLogFileIndex}
import org.apache.spark.sql.execution.datasources.v2.{DataSourceV2Relation, DataSourceV2ScanRelation, FileTable}
import org.apache.spark.sql.execution.datasources.{CatalogFileIndex, HadoopFsRelation, LogicalRelation}

/**
 * What a plan reads by where it lies, and not as a table of a Lockstep catalog: it may be one's all the same.
 *
 * @param places where files lie: real paths, whichever the plan has
 * @param tables tables of other catalogs of which each partition may lie anywhere; to ask where takes a metastore
 */
final private[spark] case class ByPath(places: Set[String], tables: Set[CatalogTable]) {
  def isEmpty: Boolean = places.isEmpty && tables.isEmpty

  /** All places, those of partitions among them. */
  def all(session: SparkSession): Set[String] =
    places ++ tables.flatMap { table =>
      session.sessionState.catalog.listPartitions(table.identifier).flatMap(_.storage.locationUri).map(uri =>
        ByPath.real(session, new Path(uri)).toString)
    }
}

private[spark] object ByPath {

  /** What Delta reads of a log to know a table's state is none of it. */
  def of(session: SparkSession, plan: LogicalPlan): ByPath = {
    val fields = Scans.fields(plan)
    val relations = fields.flatMap(Scans.all)
    val hive = fields.flatMap(ofHive)
    val sources = plan.collect { case node => Scans.cloned(node) }.flatten
      .filterNot(source => isOverlaid(source.dataPath) && source.catalogTable.exists(isNamed)).map(_.dataPath)
    val paths = relations.flatMap(ofFiles) ++ fields.flatMap(ofFileTables) ++ sources ++
      hive.flatMap(_.storage.locationUri).map(new Path(_))
    ByPath(
      paths.map(real(session, _).toString).toSet,
      (relations.flatMap(ofCatalog) ++ hive).filter(_.partitionColumnNames.nonEmpty).toSet)
  }

  /**
   * The transactions whose staged files a plan reads by their URIs, as `inputFiles` shows these. What reads a table is
   * told by its view; a command of Delta's may run in a clone of the transaction's session, and is none of these.
   */
  def transactions(plan: LogicalPlan): Set[String] = {
    val files = Scans.all(plan).map(_.relation).flatMap {
      case HadoopFsRelation(_: TahoeFileIndex | _: DeltaLogFileIndex, _, _, _, _, _) => Nil
      case HadoopFsRelation(index, _, _, _, _, _) => index.rootPaths
      case _ => Nil
    }
    (files ++ ofFileTables(plan)).filter(isOverlaid).flatMap(path => Overlay.parse(path.toUri.getAuthority).id).toSet
  }

  /**
   * A table that a name led to has a description that says so (`Scans.Touch`), as a command's own queries of it have. Of
   * what else is in the overlay, a whole version or its changes are what somebody gave the URI of; chosen files are those
   * of a command of Delta's.
   */
  private def ofFiles(relation: LogicalRelation): Seq[Path] = {
    lazy val isByName = relation.catalogTable.exists(isNamed)
    relation.relation match {
      case HadoopFsRelation(_: DeltaLogFileIndex, _, _, _, _, _) => Nil
      case HadoopFsRelation(index: TahoeFileIndex, _, _, _, _, _) if isOverlaid(index.path) =>
        Option(index).collect {
          case log: TahoeLogFileIndex if !isByName && !log.catalogTableOpt.exists(isNamed) => log.path
        }.toSeq
      case HadoopFsRelation(index, _, _, _, _, _) => index.rootPaths
      case changes: DeltaCDFRelation =>
        Seq(changes.snapshotWithSchemaMode.snapshot.deltaLog.dataPath).filterNot(isOverlaid(_) && isByName)
      case _ => Nil
    }
  }

  private def isNamed(table: CatalogTable): Boolean = table.ignoredProperties.contains(Scans.Touch)

  private def ofCatalog(relation: LogicalRelation): Option[CatalogTable] = relation.relation match {
    case HadoopFsRelation(_: CatalogFileIndex, _, _, _, _, _) => relation.catalogTable
    case _ => None
  }

  /** The paths of Spark's file sources of the second kind, see `spark.sql.sources.useV1SourceList`. */
  private def ofFileTables(plan: LogicalPlan): Seq[Path] =
    plan.collectWithSubqueries {
      case relation: DataSourceV2Relation => relation.table
      case scan: DataSourceV2ScanRelation => scan.relation.table
    }.collect { case files: FileTable => files.fileIndex.rootPaths }.flatten ++
      Scans.cached(plan).flatMap(cache => ofFileTables(cache.cacheBuilder.logicalPlan))

  /** The tables that Hive's own code reads. */
  private def ofHive(plan: LogicalPlan): Seq[CatalogTable] =
    plan.collectWithSubqueries { case relation: HiveTableRelation => relation.tableMeta } ++
      Scans.cached(plan).flatMap(cache => ofHive(cache.cacheBuilder.logicalPlan))

  /** Hadoop finds a file system by a scheme of whatever case. */
  private def isOverlaid(path: Path): Boolean = Overlay.Scheme.equalsIgnoreCase(path.toUri.getScheme)

  /** Where something lies that a path is of: behind the overlay, or a mount of Hadoop's. */
  private def real(session: SparkSession, path: Path): Path =
    if (isOverlaid(path)) Overlay.parse(path.toUri.getAuthority).real(path)
    else
      try
        path.getFileSystem(session.sessionState.newHadoopConf()) match {
          case mounts: ViewFileSystem => mounts.resolvePath(path)
          case _ => path
        }
      catch {
        case _: IOException => path // not there, or out of reach: who reads it is told
      }
}
