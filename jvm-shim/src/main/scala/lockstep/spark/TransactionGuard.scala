package lockstep.spark

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis.{ResolvedIdentifier, ResolvedNamespace, ResolvedPersistentView, ResolvedTable}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.connector.catalog.{CatalogPlugin, Table}
import org.apache.spark.sql.delta.catalog.DeltaTableV2
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation

/**
 * Refuses, while a transaction is open, what a ROLLBACK could not take back: writes to anything that is not a table of
 * a Lockstep catalog, and commands that delete files. Whether it is refused or allowed by a setting, Python says.
 */
private[spark] case class TransactionGuard(session: SparkSession) extends (LogicalPlan => Unit) {

  override def apply(plan: LogicalPlan): Unit =
    if (Transactions.isOpen(session)) outside(plan).foreach(what => Bridge.call("outside", session, "what" -> what))

  private def outside(plan: LogicalPlan): Option[String] = plan.collectFirst {
    case node if what(node).isDefined => what(node).get
  }

  private def what(plan: LogicalPlan): Option[String] = plan match {
    case write: V2WriteCommand => write.table.collectFirst { case r: DataSourceV2Relation if !ours(r.table) => described(write, r.name) }
    case vacuum if vacuum.nodeName.startsWith("VacuumTable") => Some("VACUUM")
    case _: TransactionCommand => None
    case command: Command if Harmless.contains(command.nodeName) || isReading(command) => None
    case command: Command => foreignCatalog(command).orElse(foreignPath(command)).map(described(command, _))
    case _ => None
  }

  private def described(command: LogicalPlan, target: String) = s"${command.nodeName} on $target"

  private def ours(table: Table): Boolean = table match {
    case delta: DeltaTableV2 => delta.path.toUri.getScheme == Overlay.Scheme
    case _ => false
  }

  private def isReading(command: Command): Boolean =
    Seq("Show", "Describe", "Explain", "Set", "Use", "List", "Cache", "Uncache", "Refresh", "Reset", "Analyze", "Declare", "Call")
      .exists(command.nodeName.startsWith)

  /** The target of a command, if its catalog is not Lockstep's. A command that names no catalog works on files or on V1 tables. */
  private def foreignCatalog(command: Command): Option[String] = {
    val targets = command.children.flatMap(_.collect {
      case ResolvedTable(catalog, ident, _, _) => catalog -> ident.toString
      case ResolvedIdentifier(catalog, ident) => catalog -> ident.toString
      case ResolvedNamespace(catalog, namespace, _) => catalog -> namespace.mkString(".")
      case ResolvedPersistentView(catalog, ident, _) => catalog -> ident.toString
    })
    targets.collectFirst { case (catalog, target) if !isLockstep(catalog) => s"${catalog.name}.$target" }
  }

  private def isLockstep(catalog: CatalogPlugin) = catalog.isInstanceOf[LockstepCatalog]

  /** V1 and Delta commands hold their target in a field; the words of a Lockstep path are in what they print of it. */
  private def foreignPath(command: Command): Option[String] = {
    val writesByPath = command.nodeName.matches(
      ".*(InsertInto|SaveInto|CreateTable|CreateDataSource|DropTable|AlterTable|Truncate|CreateDatabase|DropDatabase|CreateDeltaTable|Optimize|Restore|Clone|WriteIntoDelta|UpdateCommand|DeleteCommand|MergeIntoCommand|Convert).*")
    val fields = command.productIterator.map(String.valueOf).mkString(" ")
    if (writesByPath && command.children.isEmpty && !fields.contains(s"${Overlay.Scheme}:")) Some(firstWords(fields)) else None
  }

  private def firstWords(text: String) = if (text.length > 80) text.take(80) + "…" else text

  /** Changes nothing outside the session. */
  private val Harmless = Set("CreateViewCommand", "DropTempViewCommand", "CreateFunctionCommand", "DropFunctionCommand", "AddJarsCommand", "AddFilesCommand")
}
