package lockstep.spark.analysis

import lockstep.spark.LockstepCatalog
import lockstep.spark.analysis.SessionNames.{Dropped, Made, SaidName, SessionCatalog, Used}
import lockstep.spark.transactions.Commands
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.TableIdentifier
import org.apache.spark.sql.catalyst.analysis.{PersistedView, ResolvedIdentifier, ResolvedNamespace, ResolvedTable}
import org.apache.spark.sql.catalyst.catalog.CatalogTable
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.connector.catalog.{CatalogPlugin, Identifier}
import org.apache.spark.sql.execution.command.{
  AlterTableRenameCommand,
  CreateTableLikeCommand,
  CreateViewCommand,
  DropDatabaseCommand,
  DropTableCommand
}

/**
 * What a statement takes from Spark's session catalog, or makes there, while a lake stands for that, in whatever way its names
 * were found: Spark would delete the files of tables that it manages, and a new table of a name that the lake has would make
 * that name mean two things to everybody.
 */
private[spark] case class SessionDrops(session: SparkSession, names: SessionNames) {

  def check(plan: LogicalPlan): Unit = plan match {
    case DropTable(ResolvedIdentifier(catalog, ident), _, _) if isSessionCatalog(catalog) => checkDrop(dropped(ident))
    case drop: DropTableCommand => checkDrop(said(drop.tableName, Dropped))
    case RenameTable(ResolvedTable(catalog, ident, _, _), to, _) if isSessionCatalog(catalog) =>
      check("RENAME", dropped(ident))
      check("RENAME", names.named(inSchema(ident.namespace.last, to), mayBeTemporary = false).map(SaidName(_, Used)))
    case rename: AlterTableRenameCommand if !Commands.isTemporary(session, rename.oldName) =>
      check("RENAME", said(rename.oldName, Dropped))
      check(
        "RENAME",
        said(rename.newName.copy(database = rename.newName.database.orElse(rename.oldName.database)), Used))
    case DropNamespace(ResolvedNamespace(catalog, namespace, _), _, _) if isSessionCatalog(catalog) =>
      names.checkDropOfSchema(namespace.last)
    case drop: DropDatabaseCommand => names.checkDropOfSchema(drop.databaseName)
    case _ => checkMade(plan)
  }

  private def checkMade(plan: LogicalPlan): Unit = plan match {
    case make: CreateTable => check("CREATE", made(make.name, make.tableSpec))
    case make: CreateTableAsSelect => check("CREATE", made(make.name, make.tableSpec))
    case make: ReplaceTable => check("REPLACE", made(make.name, make.tableSpec))
    case make: ReplaceTableAsSelect => check("REPLACE", made(make.name, make.tableSpec))
    case CreateLike(ResolvedIdentifier(catalog, ident)) if isSessionCatalog(catalog) =>
      check("CREATE", said(ident, Made))
    case make: CreateTableLikeCommand => check("CREATE", said(make.targetTable, Made))
    case view: CreateViewCommand if view.viewType == PersistedView => check("CREATE", said(view.name, Used))
    case make: Command if SessionDrops.Makers(make.getClass.getSimpleName) =>
      make.productIterator.collectFirst { case table: CatalogTable => table.identifier }.foreach(name =>
        check("CREATE", said(name, Made)))
    case _ =>
  }

  /** Refuses what is the lake's, and was not found to be so when the statement was read; Python refuses the rest. */
  private def check(what: String, said: Option[SaidName]): Unit = said.foreach { each =>
    if (names.among(Set(each)).nonEmpty)
      throw names.unsupported(
        s"$what of ${LockstepCatalog.quoted(each.name)} in $SessionCatalog: that name is the lake's, and was said in a way in " +
          "which it is not found to be, as by IDENTIFIER(…) or LIKE. Write the name itself, or the lake's")
  }

  /** What nobody has may be dropped IF EXISTS, in whatever catalog that is. */
  private def checkDrop(said: Option[SaidName]): Unit =
    check("DROP", said.filter(each => names.among(Set(each)).nonEmpty).map(_.copy(use = Used)))

  private def dropped(ident: Identifier) = said(ident, Dropped)

  private def made(name: LogicalPlan, spec: TableSpecBase): Option[SaidName] = name match {
    case ResolvedIdentifier(catalog, ident) if isSessionCatalog(catalog) => said(ident, Made, names.isDelta(spec))
    case _ => None
  }

  private def said(ident: Identifier, use: String, isDelta: Boolean = false): Option[SaidName] =
    names.named((SessionCatalog +: ident.namespace.toSeq) :+ ident.name, mayBeTemporary = false).map(
      SaidName(_, use, isDelta))

  private def said(table: TableIdentifier, use: String): Option[SaidName] = {
    val schema = table.database.getOrElse(session.sessionState.catalog.getCurrentDatabase)
    said(Identifier.of(Array(schema), table.table), use)
  }

  /** A new name, as Spark takes it: of the session catalog, and of the old one's schema where it says none. */
  private def inSchema(schema: String, parts: Seq[String]) = parts match {
    case Seq(name) => Seq(SessionCatalog, schema, name)
    case Seq(other, name) => Seq(SessionCatalog, other, name)
    case more => more
  }

  private def isSessionCatalog(catalog: CatalogPlugin) = catalog.name.equalsIgnoreCase(SessionCatalog)
}

private[spark] object SessionDrops {

  /** What makes a table that is not Delta's, when plans are checked: one of them is Hive's, one of a DataFrame's writer. */
  private val Makers = Set(
    "CreateDataSourceTableCommand",
    "CreateDataSourceTableAsSelectCommand",
    "CreateTableCommand",
    "CreateHiveTableAsSelectCommand",
    "SaveAsV1TableCommand"
  )

  def check(session: SparkSession, plan: LogicalPlan): Unit =
    SessionNames.in(session).foreach(SessionDrops(session, _).check(plan))
}

/** The name of a table that is made like another, in the Sparks that have a plan of their own for that. */
private object CreateLike {
  def unapply(plan: LogicalPlan): Option[LogicalPlan] =
    if (plan.nodeName == "CreateTableLike") plan.children.headOption else None
}
