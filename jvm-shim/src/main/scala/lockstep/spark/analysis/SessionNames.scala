package lockstep.spark.analysis

import java.util.Locale

import lockstep.spark.LockstepCatalog
import lockstep.spark.analysis.SessionNames.{Dropped, Made, SaidName, SessionCatalog, Used}
import lockstep.spark.catalog.SessionSchemas
import lockstep.spark.statements.StatementScope
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.{TableIdentifier, TimeTravel}
import org.apache.spark.sql.catalyst.analysis.{
  RelationTimeTravel,
  ResolvedIdentifier,
  ResolvedNamespace,
  ResolvedTable,
  UnresolvedIdentifier,
  UnresolvedRelation,
  UnresolvedTable,
  UnresolvedTableOrView,
  UnresolvedView
}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.connector.catalog.{CatalogPlugin, Identifier}
import org.apache.spark.sql.execution.command.{AlterTableRenameCommand, DropDatabaseCommand, DropTableCommand}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lockstep.LockstepException

import scala.jdk.CollectionConverters._

/**
 * Names of Spark's session catalog that mean tables of a lake, where that catalog's `session-names` says so. The class
 * that the session catalog is set to be is no place for it: Spark and Delta ask the metastore past it, to drop a table or
 * save a DataFrame for example. So the names are changed, before anything is looked up. What they become is a name of a
 * Lockstep catalog as any other. A statement in which a name is found in no way that is known here is one on another
 * catalog, and a transaction treats it as that.
 *
 * @param lake what stands for the session catalog
 */
private[spark] case class SessionNames(session: SparkSession, lake: LockstepCatalog) {

  /** Changes the names of a statement, all of which are asked about at once. */
  def place(plan: LogicalPlan): LogicalPlan = {
    var said = Set.empty[SaidName]
    changed(plan) { (parts, use, isDelta) =>
      said ++= named(parts).map(SaidName(_, use, isDelta))
      parts
    }
    val ours = among(said)
    if (ours.isEmpty) plan
    else
      renamed(changed(plan) { (parts, use, isDelta) =>
        named(parts).filter(name => ours(SaidName(name, use, isDelta))).fold(parts)(lake.name +: _)
      })
  }

  /** With the new name of what is the lake's, which must be one that the session catalog does not have. */
  private def renamed(plan: LogicalPlan): LogicalPlan = plan match {
    case rename @ RenameTable(either: UnresolvedTableOrView, to, _) if either.multipartIdentifier.head == lake.name =>
      val name = if (to.size == 1) Some(Seq(either.multipartIdentifier(1), to.head)) else named(to)
      val free = name.filter(said => among(Set(SaidName(said, Made, isDelta = true))).nonEmpty)
      rename.copy(newName = free.getOrElse(throw unsupported(
        s"RENAME TO ${LockstepCatalog.quoted(to)}: that is no new name of a schema that the lake ${lake.name} has, too")))
    case other => other
  }

  /** What a name means that a program of Spark's or Delta's has parsed, to look it up past all plans. */
  def parsed(parts: Seq[String]): Seq[String] =
    named(parts).filter(name => among(Set(SaidName(name, Used))).nonEmpty).fold(parts)(lake.name +: _)

  /**
   * Refuses to take from the session catalog what the lake has, too, in whatever way its name was found: Spark would delete
   * the files of tables that it manages.
   */
  def checkDrops(plan: LogicalPlan): Unit = plan match {
    case DropTable(ResolvedIdentifier(catalog, ident), _, _) if isSessionCatalog(catalog) => checkDrop(ident)
    case drop: DropTableCommand => checkDrop(drop.tableName)
    case RenameTable(ResolvedTable(catalog, ident, _, _), _, _) if isSessionCatalog(catalog) => checkDrop(ident)
    case rename: AlterTableRenameCommand => checkDrop(rename.oldName)
    case DropNamespace(ResolvedNamespace(catalog, namespace, _), _, _) if isSessionCatalog(catalog) =>
      checkDropOfSchema(namespace.last)
    case drop: DropDatabaseCommand => checkDropOfSchema(drop.databaseName)
    case _ =>
  }

  private def isSessionCatalog(catalog: CatalogPlugin) = catalog.name.equalsIgnoreCase(SessionCatalog)

  private def checkDrop(ident: Identifier): Unit =
    named((SessionCatalog +: ident.namespace.toSeq) :+ ident.name).foreach(name =>
      among(Set(SaidName(name, Dropped))))

  private def checkDrop(table: TableIdentifier): Unit = {
    val schema = table.database.getOrElse(session.sessionState.catalog.getCurrentDatabase)
    checkDrop(Identifier.of(Array(schema), table.table))
  }

  private def checkDropOfSchema(schema: String): Unit =
    if (lake.namespaceExists(Array(schema)))
      throw unsupported(
        s"DROP SCHEMA $schema: the lake ${lake.name} has a namespace of that name, whose tables may be the same. " +
          s"CALL ${lake.name}.system.release(namespace => …) or DROP NAMESPACE ${lake.name}.$schema first")

  /** The names of a namespace that only the lake has, for a list of what the session catalog has in it. */
  def onlyOurs(namespace: String, listed: Set[String]): Seq[String] = {
    val parts = Array(namespace)
    if (!lake.namespaceExists(parts)) Nil
    else {
      val known = listed.map(key)
      (lake.listTables(parts).map(_.name).toSeq ++ lake.describedViews(parts, "*").map(_._1)).filterNot(name =>
        known(key(name))).sorted
    }
  }

  private def key(name: String) = if (SQLConf.get.caseSensitiveAnalysis) name else name.toLowerCase(Locale.ROOT)

  /** Which of these names mean the lake's, as the statement was told of them first. */
  private def among(said: Set[SaidName]): Set[SaidName] =
    if (said.isEmpty) Set.empty
    else {
      val known = StatementScope.current.fold(Map.empty[Any, Boolean])(_.told)
      val asked = said.filterNot(known.contains).toSeq
      val answer =
        if (asked.isEmpty) Map.empty[Any, Boolean] else asked.zip(lake.meansOurs(asked.map(fields))).toMap[Any, Boolean]
      StatementScope.current.foreach(_.told ++= answer)
      said.filter(name => known.getOrElse(name, answer(name)))
    }

  private def fields(said: SaidName): Map[String, Any] = Map(
    "name" -> said.name,
    "use" -> said.use,
    "is_delta" -> said.isDelta,
    "there" -> SessionSchemas.table(session, said.name.head, said.name.last))

  /** Schema and name of what is one of the session catalog's, as far as its parts tell; no path, as of ``delta.`/t` ``. */
  private def named(parts: Seq[String]): Option[Seq[String]] =
    if (parts.last.contains('/') || StatementScope.isTemporary(session, parts)) None
    else
      StatementScope.qualified(session, parts) match {
        case Seq(catalog, schema, name) if catalog.equalsIgnoreCase(SessionCatalog) => Some(Seq(schema, name))
        case _ => None
      }

  private def unsupported(what: String) =
    new LockstepException("LOCKSTEP_UNSUPPORTED", s"$what. Nothing was done", "0A000")

  /** A plan with each name changed in it, of which is told what is done with what has it. */
  private def changed(plan: LogicalPlan)(change: (Seq[String], String, Boolean) => Seq[String]): LogicalPlan = {
    def used(parts: Seq[String]) = change(parts, Used, false)
    def of(name: LogicalPlan, use: String, isDelta: Boolean = false): LogicalPlan = name match {
      case one: UnresolvedIdentifier => one.copy(nameParts = change(one.nameParts, use, isDelta))
      case one: UnresolvedRelation => one.copy(multipartIdentifier = change(one.multipartIdentifier, use, isDelta))
      case one: UnresolvedTable => one.copy(multipartIdentifier = change(one.multipartIdentifier, use, isDelta))
      case one: UnresolvedTableOrView => one.copy(multipartIdentifier = change(one.multipartIdentifier, use, isDelta))
      case one: UnresolvedView => one.copy(multipartIdentifier = change(one.multipartIdentifier, use, isDelta))
      case other => other
    }
    AnalysisHelper.allowInvokingTransformsInAnalyzer {
      plan.transformDownWithSubqueries {
        case relation: UnresolvedRelation => of(relation, Used)
        case table: UnresolvedTable => of(table, Used)
        case either: UnresolvedTableOrView => of(either, Used)
        case view: UnresolvedView => of(view, Used)
        case travel: RelationTimeTravel => travel.copy(relation = of(travel.relation, Used))
        case travel: TimeTravel => travel.copy(relation = of(travel.relation, Used))
        case ChangesClause(table, changes) => changes(table.copy(multipartIdentifier = used(table.multipartIdentifier)))
        case insert: InsertIntoStatement => insert.copy(table = of(insert.table, Used))
        case write: V2WriteCommand => write.table match {
            case table: UnresolvedRelation =>
              write.withNewTable(table.copy(multipartIdentifier = used(table.multipartIdentifier)))
            case _ => write
          }
        case drop: DropTable => drop.copy(child = of(drop.child, Dropped))
        case drop: DropView => drop.copy(child = of(drop.child, Dropped))
        case rename: RenameTable => rename.copy(child = of(rename.child, Dropped))
        case view: CreateView => view.copy(child = of(view.child, Used))
        case make: CreateTable => make.copy(name = of(make.name, Made, isDelta(make.tableSpec)))
        case make: CreateTableAsSelect => make.copy(name = of(make.name, Made, isDelta(make.tableSpec)))
        case make: ReplaceTable => make.copy(name = of(make.name, Made, isDelta(make.tableSpec)))
        case make: ReplaceTableAsSelect => make.copy(name = of(make.name, Made, isDelta(make.tableSpec)))
        case clone: CloneTableStatement => clone.copy(target = of(clone.target, Made, isDelta = true))
      }
    }
  }

  /** Whether a new table is Delta's, in Spark's session catalog too. */
  private def isDelta(spec: TableSpecBase): Boolean = spec match {
    case built: TableSpec => built.serde.isEmpty && built.provider.exists(_.equalsIgnoreCase("delta"))
    case said: UnresolvedTableSpec =>
      val conf = session.sessionState.conf
      val isHives = said.serde.nonEmpty ||
        (said.provider.isEmpty && conf.getConf(SQLConf.LEGACY_CREATE_HIVE_TABLE_BY_DEFAULT))
      !isHives && said.provider.getOrElse(conf.defaultDataSourceName).equalsIgnoreCase("delta")
    case _ => false
  }
}

private[spark] object SessionNames {
  val SessionCatalog = "spark_catalog"

  val Used = "used"
  val Dropped = "dropped"
  val Made = "made"

  /** A name of the session catalog, as schema and name, and what a statement does with what has it. */
  final case class SaidName(name: Seq[String], use: String, isDelta: Boolean = false)

  /** Those of a session in which a catalog of ours stands for Spark's; none, where none does. */
  def in(session: SparkSession): Option[SessionNames] = {
    val catalogs = LockstepCatalog.standIns(session)
    if (catalogs.size > 1)
      throw new LockstepException(
        "LOCKSTEP_INVALID",
        s"the catalogs ${catalogs.map(_.name).sorted.mkString(", ")} say session-names, and only one of a session can",
        "22023")
    catalogs.headOption.map(SessionNames(session, _))
  }

  def place(session: SparkSession, plan: LogicalPlan): LogicalPlan = in(session).fold(plan)(_.place(plan))

  /**
   * What a name means that was parsed: to who then looks it up past all plans. Others put it into a plan, in which it is
   * changed, or parse the name of something else than a table.
   */
  def parsed(session: SparkSession, parts: Seq[String]): Seq[String] =
    in(session).filter(_ => isLookedUp).fold(parts)(_.parsed(parts))

  /** Who looks tables up so, whose classes' names begin like this. */
  private val LookUp = Seq(
    "org.apache.spark.sql.classic.DataFrameWriter",
    "org.apache.spark.sql.classic.DataStreamWriter",
    "org.apache.spark.sql.delta.CDCNameBased",
    "io.delta.tables.DeltaTable$"
  )

  /** Whether the name is parsed for one of these, behind all parsers that hand it on. */
  private def isLookedUp: Boolean = {
    def isParser(name: String) = name.startsWith("lockstep.") || name.startsWith("scala.") || name.contains("Parser")
    StackWalker.getInstance().walk[Boolean] { frames =>
      frames.iterator.asScala.map(_.getClassName).find(!isParser(_)).exists(asker => LookUp.exists(asker.startsWith))
    }
  }
}
