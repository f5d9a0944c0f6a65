package lockstep.spark.scans

import com.fasterxml.jackson.databind.node.ObjectNode
import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import lockstep.spark.overlay.Overlay
import org.apache.spark.sql.catalyst.expressions.{
  Attribute,
  AttributeReference,
  Cast,
  ExprId,
  Expression,
  GetStructField,
  NonSQLExpression,
  PredicateHelper,
  SubqueryExpression,
  UserDefinedExpression
}
import org.apache.spark.sql.catalyst.planning.PhysicalOperation
import org.apache.spark.sql.catalyst.analysis.{SQLFunctionNode, SQLScalarFunction}
import org.apache.spark.sql.catalyst.catalog.CatalogTable
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, View}
import org.apache.spark.sql.catalyst.trees.TreeNodeTag
import org.apache.spark.sql.catalyst.trees.TreePattern.SQL_SCALAR_FUNCTION
import org.apache.spark.sql.catalyst.util.CharVarcharUtils
import org.apache.spark.sql.delta.{DeltaColumnMapping, NoMapping}
import org.apache.spark.sql.delta.commands.cdc.CDCReader.DeltaCDFRelation
import org.apache.spark.sql.delta.commands.{
  CloneSource,
  CloneTableCommand,
  CreateDeltaTableCommand,
  DeleteCommand,
  MergeIntoCommand,
  UpdateCommand
}
import org.apache.spark.sql.delta.files.{TahoeBatchFileIndex, TahoeFileIndex, TahoeLogFileIndex}
import org.apache.spark.sql.execution.{FileSourceScanExec, SparkPlan}
import org.apache.spark.sql.execution.adaptive.{AdaptiveSparkPlanExec, AdaptiveSparkPlanHelper}
import org.apache.spark.sql.execution.columnar.{InMemoryRelation, InMemoryTableScanExec}
import org.apache.spark.sql.execution.command.CreateViewCommand
import org.apache.spark.sql.execution.datasources.LogicalRelation
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.{ArrayType, DataType, MapType, StringType, StructType}

import scala.jdk.CollectionConverters._

/**
 * A scan of a table.
 *
 * @param version  the table version, of what is not seen through a transaction; none of what is read afresh each time
 * @param where    which rows it is after; none: any
 * @param isHead   whether it is not seen through a transaction
 * @param isCached whether its rows come from what Spark has cached: as old as that
 */
private[spark] case class Scan(
    table: String,
    version: Option[Long],
    where: Option[String],
    isHead: Boolean,
    isCached: Boolean = false) {

  def fields: Map[String, Any] =
    Map("table" -> table, "version" -> version, "where" -> where, "head" -> isHead, "cached" -> isCached)
}

/**
 * What plans read of the tables of Lockstep's catalogs. Looks, and keeps nothing: when a plan is looked at, and for which
 * transaction or statement, is decided in `reads/Reads.scala`.
 */
private[spark] object Scans extends PredicateHelper with AdaptiveSparkPlanHelper {

  /** The synthetic `CatalogTable` of a table whose reads count names the table's id under this key. */
  val Key = "lockstep.table"

  /** And under this one, which loading of the table it comes from: see `Transaction.touch`. */
  val Touch = "lockstep.touch"

  /** And under this one what was read to find out which version of the table is meant: see `askedFor`. */
  val Asked = "lockstep.asked"

  /**
   * What was read while a statement was analyzed, for a relation that was loaded after that to tell: Spark runs the query
   * in `TIMESTAMP AS OF (SELECT …)` by then, and leaves a literal in its place.
   */
  def asking(scans: Set[Scan]): Option[(String, String)] = {
    val read = scans.flatMap(scan => scan.version.filter(_ => scan.isHead).map(version => s"${scan.table}@$version"))
    Option.when(read.nonEmpty)(Asked -> read.toSeq.sorted.mkString(","))
  }

  /** What was read to find out which versions a plan reads: tables in whole. */
  def askedFor(plan: LogicalPlan): Seq[Scan] =
    fields(plan).flatMap(all).flatMap(_.catalogTable).flatMap(_.ignoredProperties.get(Asked)).distinct
      .flatMap(_.split(',')).map { read =>
        val (table, version) = read.splitAt(read.lastIndexOf('@'))
        Scan(table, Some(version.drop(1).toLong), None, isHead = true)
      }

  /** What a plan of the rows that changed between versions has: which transaction it was made in, nothing of none. */
  private val ChangesOf = TreeNodeTag[String]("lockstep_changes")

  /** Marks such a plan. */
  def markChanges(plan: LogicalPlan, transaction: Option[String]): Unit =
    plan.setTagValue(ChangesOf, transaction.getOrElse(""))

  /** In which transactions the changes that a plan reads were asked for; the empty text stands for none. */
  def changesOf(plan: LogicalPlan): Set[String] =
    fields(plan).flatMap(_.collectWithSubqueries(Function.unlift((node: LogicalPlan) =>
      node.getTagValue(ChangesOf)))).toSet

  /** The relations of a plan that are tables of a Lockstep catalog, or their changes. */
  def relations(plan: LogicalPlan): Seq[OverlaidRelation] =
    all(plan).flatMap(OverlaidRelation.of).filter(overlaid => overlaid.log.nonEmpty || overlaid.changes.nonEmpty)

  /** What a plan reads that is not seen through a transaction; `version` is said where it cannot become another. */
  def ofHead(plan: LogicalPlan): Seq[Scan] =
    for {
      overlaid <- relations(plan) if overlaid.isHead && !overlaid.changes.exists(haveEnded)
      table <- tableOf(overlaid.relation)
    } yield Scan(table, overlaid.log.filter(_.isTimeTravelQuery).map(_.version), None, isHead = true)

  /** Whether changes are read up to a version that was there when the plan was made: no later one can be among them. */
  private def haveEnded(changes: DeltaCDFRelation): Boolean =
    changes.endingVersion.exists(_ <= changes.snapshotWithSchemaMode.snapshot.version)

  /** What a plan reads, if it is executed as it stands: filters that are not at a relation yet are not seen. */
  def of(plan: LogicalPlan): Seq[Scan] = narrowed(plan) ++ plan.collect { case node =>
    node.expressions.flatMap(_.collect { case subquery: SubqueryExpression => subquery.plan })
  }.flatten.flatMap(of)

  /** What a plan reads that is executed like this: any row of it. */
  def whole(plan: LogicalPlan, executed: SparkPlan): Seq[Scan] =
    filled(withSubqueries(plan), executed) ++ cached(plan).flatMap(ofCache)

  /** Which loadings of tables the relations of a plan come from. */
  def touches(plan: LogicalPlan): Seq[Long] =
    fields(plan).flatMap(all).flatMap(_.catalogTable).flatMap(_.ignoredProperties.get(Touch)).map(_.toLong)

  /** The folders of the tables that a plan reads; a clone's files lie in that of its source. */
  def folders(plan: LogicalPlan): Seq[String] = {
    val sources = plan.collect { case node => cloned(node) }.flatten.map(_.dataPath)
    (fields(plan).flatMap(all).flatMap(OverlaidRelation.of).map(_.folder) ++ sources).map(_.toUri.getPath)
  }

  /** And a view names under this one which definition of it is used. */
  val Viewed = "lockstep.viewed"

  /** And under this one, if it is read as it was: in which database version, and what its catalog calls it. */
  private val AsOf = "lockstep.as_of"

  /** What says so of a view, among the settings that it was made with: those are the settings of its analysis. */
  def asOf(name: Seq[String], version: Long): (String, String) =
    AsOf -> json.createObjectNode().put("version", version).set[ObjectNode](
      "name",
      name.foldLeft(json.createArrayNode())(_.add(_))).toString

  /** Which view is analyzed, and as of which database version; None: none, or as it is now. */
  def asOf(settings: SQLConf): Option[(Seq[String], Long)] = Option(settings.getConfString(AsOf, null)).map(pastView)

  /** The same of a view of a plan. */
  def asOf(view: View): Option[(Seq[String], Long)] =
    view.desc.properties.get(s"${CatalogTable.VIEW_SQL_CONFIG_PREFIX}$AsOf").map(pastView)

  private def pastView(mark: String): (Seq[String], Long) = {
    val said = json.readTree(mark)
    said.get("name").elements().asScala.map(_.asText).toSeq -> said.get("version").asLong
  }

  private val json = new ObjectMapper()

  /** Which definition of a view a statement is told. */
  def viewed(catalog: String, name: JsonNode, version: JsonNode): Option[String] = Option(version).map { version =>
    json.createObjectNode().put(
      "catalog",
      catalog).set[ObjectNode]("name", name).set[ObjectNode]("version", version).toString
  }

  /** Such a definition, as plans have it. */
  def viewed(mark: String): JsonNode = json.readTree(mark)

  /** Whether a definition is one that a transaction has made itself, and not a database version's. */
  def isOwn(mark: JsonNode): Boolean = mark.get("version").asLong < 0

  /**
   * The definitions of views and functions that a plan uses, those below caches among them. A transaction's own are not looked
   * for there: a cache answers plans that are the same but for where they come from, and never used the definition.
   */
  def views(plan: LogicalPlan): Set[JsonNode] = {
    val used = fields(plan).flatMap(_.collectWithSubqueries { case view: View =>
      view.desc.properties.get(s"${CatalogTable.VIEW_SQL_CONFIG_PREFIX}$Viewed")
    }).flatten.map(viewed)
    (used ++ functions(plan) ++ fields(plan).flatMap(cached).flatMap(cache =>
      views(cache.cacheBuilder.logicalPlan).filterNot(isOwn))).toSet
  }

  /** The definitions of functions: where one is called, an analyzed plan has it around its body. */
  private def functions(plan: LogicalPlan): Seq[JsonNode] =
    fields(plan).flatMap(_.collectWithSubqueries {
      case SQLFunctionNode(function, _) => Seq(function.properties.get(Viewed))
      case node if node.containsPattern(SQL_SCALAR_FUNCTION) =>
        node.expressions.flatMap(_.collect { case call: SQLScalarFunction => call.function.properties.get(Viewed) })
    }).flatten.flatten.map(viewed)

  private def tableOf(relation: LogicalRelation): Option[String] =
    relation.catalogTable.flatMap(_.ignoredProperties.get(Key))

  private def withSubqueries(plan: LogicalPlan): Seq[LogicalRelation] =
    plan.collectWithSubqueries { case relation: LogicalRelation => relation }

  private[scans] def cached(plan: LogicalPlan): Seq[InMemoryRelation] =
    plan.collectWithSubqueries { case cache: InMemoryRelation => cache }

  /** The relations of a plan, those below caches among them. */
  private[scans] def all(plan: LogicalPlan): Seq[LogicalRelation] =
    withSubqueries(plan) ++ cached(plan).flatMap(cache => all(cache.cacheBuilder.logicalPlan))

  /**
   * An analyzed command has its query in a field. That of a view is not run. What Delta's commands set a column to may be a
   * query as well: it is in an expression of the command itself.
   */
  private[scans] def fields(plan: LogicalPlan): Seq[LogicalPlan] = plan match {
    case view: CreateViewCommand => Seq(view.plan)
    case delete: DeleteCommand => Seq(delete, delete.target)
    case update: UpdateCommand => Seq(update, update.target)
    case merge: MergeIntoCommand => Seq(merge, merge.target, merge.source)
    case other => Seq(other)
  }

  private def narrowed(plan: LogicalPlan): Seq[Scan] = plan match {
    case DeleteCommand(_, _, target, condition) => changed(target, condition)
    case update: UpdateCommand => changed(update.target, update.condition)
    case merge: MergeIntoCommand =>
      changed(merge.target, Some(merge.condition).filter(_ => merge.notMatchedBySourceClauses.isEmpty))
    case PhysicalOperation(_, filters, relation: LogicalRelation) => scan(relation, filters).toSeq
    case cache: InMemoryRelation => ofCache(cache)
    case other => cloned(other).flatMap(copied).toSeq ++ other.children.flatMap(narrowed)
  }

  /** What a command makes a clone of: it has that in a field of a field. */
  private[scans] def cloned(plan: LogicalPlan): Option[CloneSource] = plan match {
    case command: CreateDeltaTableCommand => command.query.collect { case clone: CloneTableCommand =>
        clone.sourceTable
      }
    case _ => None
  }

  /** A clone has all rows of its source as the statement found that. One of a version that is asked for has read none. */
  private def copied(source: CloneSource): Option[Scan] =
    for {
      described <- source.catalogTable
      table <- described.ignoredProperties.get(Key)
      if source.timeTravelOpt.forall(_.creationSource == described.identifier.catalog)
    } yield {
      val isHead = !Overlay.isOfTransaction(source.dataPath)
      Scan(table, source.snapshot.map(_.version).filter(_ => isHead), None, isHead)
    }

  /** The rows that a command looks for; that it reads and copies the rest of their files changes nothing. */
  private def changed(target: LogicalPlan, condition: Option[Expression]): Seq[Scan] =
    target.collectLeaves().collect { case relation: LogicalRelation => relation }.flatMap(scan(_, condition.toSeq))

  private def scan(relation: LogicalRelation, filters: Seq[Expression]): Option[Scan] =
    tableOf(relation).flatMap { table =>
      val overlaid = OverlaidRelation.of(relation)
      overlaid.flatMap(_.index) match {
        case Some(_: TahoeBatchFileIndex) => None // a command's own, see `changed`
        case Some(index) =>
          val ofHead = overlaid.exists(_.isHead)
          Some(Scan(table, Option.when(ofHead)(index.version), rendered(filters, relation, index), ofHead))
        case None => Some(Scan(table, None, None, isHead = false))
      }
    }

  /** What a cache was filled with: all rows of its tables, for Spark does not tell which of them its filters asked for. */
  private def ofCache(cache: InMemoryRelation): Seq[Scan] =
    filled(all(cache.cacheBuilder.logicalPlan), cache.cachedPlan).map(_.copy(isCached = true))

  /** A relation that is read afresh each time has been read at the version that the plan of the execution has. */
  private def filled(relations: Seq[LogicalRelation], executed: SparkPlan): Seq[Scan] = {
    lazy val indexes = files(executed)
    relations.flatMap { relation =>
      OverlaidRelation.of(relation).filter(_.isHead).flatMap(_.log).filterNot(_.isTimeTravelQuery) match {
        case Some(index) =>
          val versions = indexes.filter(_.path == index.path).map(_.version)
          tableOf(relation).map(Scan(_, versions.minOption, None, isHead = true))
        case None => scan(relation, Nil)
      }
    }
  }

  /** Indexes that say which version they read: that of a plan without statistics is read when it runs. */
  private def files(plan: SparkPlan): Seq[TahoeFileIndex] = flatMap(plan) { node =>
    val here = node match {
      case scan: FileSourceScanExec => Seq(scan.relation.location).collect {
          case index: TahoeFileIndex if !index.isInstanceOf[TahoeLogFileIndex] => index
        }
      case scan: InMemoryTableScanExec => files(scan.relation.cachedPlan)
      case adaptive: AdaptiveSparkPlanExec => files(adaptive.initialPlan) // a later plan may have lost some
      case _ => Nil
    }
    here ++ node.subqueries.flatMap(files)
  }

  /**
   * The filters on the relation's own columns, as SQL on their physical names; dropping one only widens the rest. A filter
   * calls a column as who wrote it did, in upper case perhaps: which column it is, its id says.
   */
  private def rendered(
      filters: Seq[Expression],
      relation: LogicalRelation,
      index: TahoeFileIndex): Option[String] = {
    val isMapped = index.metadata.columnMappingMode != NoMapping
    val columns = stored(relation, index)
    val texts = filters.flatMap(splitConjunctivePredicates).filter { filter =>
      filter.deterministic && filter.references.forall(column => columns.get(column.exprId).exists(isPlain)) &&
      !filter.exists(isLeftOut) && !(isMapped && filter.exists(_.isInstanceOf[GetStructField]))
    }.map { filter =>
      filter.transform {
        case column: AttributeReference => columns(column.exprId)
        case field: GetStructField => field.copy(name = None) // its own name, not as the filter spells it
      }
    }
    Option.when(texts.nonEmpty)(SQLConf.withExistingConf(utc)(texts.map(t => s"(${t.sql})").mkString(" AND ")))
  }

  /**
   * Whether the text of an expression says something else than it does: of a query, nothing; of a user's function its name,
   * which may be one of Spark's own (`double(5)`); of a cast to a struct, whose fields may be others then, nothing; and of a
   * collation nothing but at a literal.
   */
  private def isLeftOut(part: Expression): Boolean = part match {
    case _: SubqueryExpression | _: UserDefinedExpression | _: NonSQLExpression => true
    case cast: Cast if isNested(cast.dataType) => true
    case other => other.dataType match {
        case text: StringType => text.collationId != StringType.collationId
        case _ => false
      }
  }

  private def isNested(kind: DataType): Boolean = kind match {
    case _: ArrayType | _: MapType | _: StructType => true
    case _ => false
  }

  /** The columns that a relation has from its table, under the names that its files and their statistics have. */
  private def stored(relation: LogicalRelation, index: TahoeFileIndex): Map[ExprId, Attribute] = {
    val names = index.metadata.schema.map(field => field.name -> DeltaColumnMapping.getPhysicalName(field)).toMap
    relation.output.flatMap { column =>
      names.get(column.name).map(name => column.exprId -> column.withQualifier(Nil).withName(name))
    }.toMap
  }

  /** Not one whose name reads as a literal, nor a CHAR, whose values are padded as they are read. */
  private def isPlain(column: Attribute): Boolean =
    !Set("true", "false", "null")(column.name.toLowerCase(java.util.Locale.ROOT)) &&
      !CharVarcharUtils.getRawTypeString(column.metadata).exists(_.toLowerCase(java.util.Locale.ROOT).contains("char("))

  /** Literals of timestamps are written in the session's time zone. */
  private val utc = {
    val conf = new SQLConf
    conf.setConf(SQLConf.SESSION_LOCAL_TIMEZONE, "UTC")
    conf
  }
}
