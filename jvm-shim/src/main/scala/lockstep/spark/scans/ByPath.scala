package lockstep.spark.scans

import java.io.IOException

import lockstep.spark.overlay.Overlay
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.hadoop.fs.viewfs.ViewFileSystem
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.catalog.{CatalogTable, HiveTableRelation}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.delta.{DeltaLogFileIndex, OptimisticTransaction}
import org.apache.spark.sql.delta.commands.cdc.CDCReader.DeltaCDFRelation
import org.apache.spark.sql.delta.files.{TahoeFileIndex, TahoeLogFileIndex}
import org.apache.spark.sql.execution.datasources.v2.{DataSourceV2Relation, DataSourceV2ScanRelation, FileTable}
import org.apache.spark.sql.execution.datasources.{CatalogFileIndex, HadoopFsRelation, LogicalRelation}

/**
 * What a plan reads by where it lies, and not as a table of a Lockstep catalog: it may be one's all the same.
 *
 * @param paths  where files lie, as the plan has it
 * @param tables tables of other catalogs of which each partition may lie anywhere
 */
final private[spark] case class ByPath(paths: Set[Path], tables: Set[CatalogTable]) {
  def isEmpty: Boolean = paths.isEmpty && tables.isEmpty

  /** Without what only a metastore knows, which may have many thousand partitions of a table. */
  def withoutPartitions: ByPath = ByPath(paths, Set.empty)

  /** Where all of it really lies, partitions among it. File systems and metastores are asked for that: most plans do not. */
  def places(session: SparkSession): Set[String] =
    if (isEmpty) Set.empty
    else {
      val partitions = tables.flatMap(table => session.sessionState.catalog.listPartitions(table.identifier))
      val all = paths ++ partitions.flatMap(_.storage.locationUri).map(new Path(_))
      val hadoop = session.sessionState.newHadoopConf()
      // A file system that Hadoop does not keep is made for each question, so one path asks for all of it.
      val mounts = all.filterNot(ByPath.isOverlaid).groupBy(ByPath.system).flatMap { case (system, some) =>
        ByPath.mounts(hadoop, some.head).map(system -> _)
      }
      all.map(ByPath.real(mounts, _).toString)
    }
}

private[spark] object ByPath {
  val Nothing: ByPath = ByPath(Set.empty, Set.empty)

  /** What Delta reads of a log to know a table's state is none of it. */
  def of(plan: LogicalPlan): ByPath = {
    val fields = Scans.fields(plan)
    val relations = fields.flatMap(Scans.all)
    val hive = fields.flatMap(ofHive)
    val sources = plan.collect { case node => Scans.cloned(node) }.flatten
      .filterNot(source => isOverlaid(source.dataPath) && source.catalogTable.exists(isNamed)).map(_.dataPath)
    val paths = relations.flatMap(relation => ofFiles(relation) ++ ofTable(relation)) ++ fields.flatMap(ofFileTables)
    // Where the optimizer has chosen partitions, the rest of the table is not read; Spark's own relations are of files then.
    val chosen = hive.flatMap(_.prunedPartitions).flatten.flatMap(_.storage.locationUri)
    val whole = hive.filter(_.prunedPartitions.isEmpty).map(_.tableMeta)
    val folders = chosen ++ hive.flatMap(_.tableMeta.storage.locationUri)
    ByPath(
      (paths ++ sources ++ folders.map(new Path(_))).toSet,
      (relations.flatMap(ofCatalog) ++ whole).filter(_.partitionColumnNames.nonEmpty).toSet
    )
  }

  /**
   * The transactions whose staged files a plan reads by their URIs, as `inputFiles` shows these. What reads a table is
   * told by its view; a command of Delta's may run in a clone of the transaction's session, and is none of these.
   */
  def transactions(plan: LogicalPlan)
      : Set[String] = (Scans.all(plan).flatMap(ofFiles) ++ ofFileTables(plan)).filter(isOverlaid).flatMap(path =>
    Overlay.parse(path.toUri.getAuthority).id).toSet

  /** The paths of files that are read as such, be they a table's. */
  private def ofFiles(relation: LogicalRelation): Seq[Path] = relation.relation match {
    case HadoopFsRelation(_: TahoeFileIndex | _: DeltaLogFileIndex, _, _, _, _, _) => Nil
    case HadoopFsRelation(index, _, _, _, _, _) => index.rootPaths
    case _ => Nil
  }

  /**
   * The path of a Delta table that no name led to: one that a name led to has a description that says so (`Scans.Touch`),
   * as a command's own queries of it have. Of what else is in the overlay, a whole version or its changes are what somebody
   * gave the URI of; chosen files are those of a command of Delta's.
   */
  private def ofTable(relation: LogicalRelation): Seq[Path] = relation.relation match {
    case HadoopFsRelation(log: TahoeLogFileIndex, _, _, _, _, _) =>
      unlessNamed(log.path, relation.catalogTable ++ log.catalogTableOpt)
    case HadoopFsRelation(index: TahoeFileIndex, _, _, _, _, _) => index.rootPaths.filterNot(isOverlaid)
    case changes: DeltaCDFRelation =>
      unlessNamed(changes.snapshotWithSchemaMode.snapshot.deltaLog.dataPath, relation.catalogTable)
    case _ => Nil
  }

  private def unlessNamed(path: Path, described: Iterable[CatalogTable]): Seq[Path] =
    if (isOverlaid(path) && (described.exists(isNamed) || isBeingWritten(path))) Nil else Seq(path)

  /**
   * Whether Delta writes the table in this thread: in a clone of the session it looks for the rows that it replaces, and
   * for `saveAsTable` it opens the table without its description.
   */
  private def isBeingWritten(path: Path): Boolean =
    OptimisticTransaction.getActive().exists(_.deltaLog.dataPath == path)

  private def isNamed(table: CatalogTable): Boolean = table.ignoredProperties.contains(Scans.Touch)

  private def ofCatalog(relation: LogicalRelation): Option[CatalogTable] = relation.relation match {
    case HadoopFsRelation(_: CatalogFileIndex, _, _, _, _, _) => relation.catalogTable
    case _ => None
  }

  /** The paths of Spark's file sources of the second kind, see `spark.sql.sources.useV1SourceList`. */
  private def ofFileTables(plan: LogicalPlan): Seq[Path] = withCaches(plan).flatMap(_.collectWithSubqueries {
    case relation: DataSourceV2Relation => relation.table
    case scan: DataSourceV2ScanRelation => scan.relation.table
  }).collect { case files: FileTable => files.fileIndex.rootPaths }.flatten

  /** The tables that Hive's own code reads. */
  private def ofHive(plan: LogicalPlan): Seq[HiveTableRelation] =
    withCaches(plan).flatMap(_.collectWithSubqueries { case relation: HiveTableRelation => relation })

  private def withCaches(plan: LogicalPlan): Seq[LogicalPlan] =
    plan +: Scans.cached(plan).flatMap(cache => withCaches(cache.cacheBuilder.logicalPlan))

  /** Hadoop finds a file system by a scheme of whatever case. */
  private def isOverlaid(path: Path): Boolean = Overlay.Scheme.equalsIgnoreCase(path.toUri.getScheme)

  private def system(path: Path): (String, String) = (path.toUri.getScheme, path.toUri.getAuthority)

  /** The mounts of Hadoop's that a path goes through, if any; one out of reach is told of by whoever reads it. */
  private def mounts(hadoop: Configuration, path: Path): Option[ViewFileSystem] =
    try
      Option(path.getFileSystem(hadoop)).collect { case mounts: ViewFileSystem => mounts }
    catch {
      case _: IOException => None
    }

  /** Where something lies that a path is of: behind the overlay, or a mount of Hadoop's. */
  private def real(mounts: Map[(String, String), ViewFileSystem], path: Path): Path =
    if (isOverlaid(path)) Overlay.parse(path.toUri.getAuthority).real(path)
    else
      try mounts.get(system(path)).fold(path)(_.resolvePath(path))
      catch {
        case _: IOException => path // not there: who reads it is told
      }
}
