package lockstep.spark

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis.{
  PersistedView,
  ResolvedIdentifier,
  ResolvedNamespace,
  ResolvedPersistentView,
  ResolvedTable
}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.connector.catalog.{CatalogPlugin, Table}
import org.apache.spark.sql.delta.catalog.DeltaTableV2
import org.apache.spark.sql.delta.commands.CreateDeltaTableCommand
import org.apache.spark.sql.execution.command.{
  CreateFunctionCommand,
  CreateSQLFunctionCommand,
  CreateViewCommand,
  DropFunctionCommand
}
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation

/**
 * Refuses, while a transaction is open, what a ROLLBACK could not take back: writes to anything that is not a table of
 * a Lockstep catalog, and commands that delete files. Whether it is refused or allowed by a setting, Python says.
 */
private[spark] case class TransactionGuard(session: SparkSession) extends (LogicalPlan => Unit) {

  override def apply(plan: LogicalPlan): Unit = {
    Ended.check(plan)
    if (Transactions.isOpen(session)) {
      outside(plan).foreach(what => Bridge.call("outside", session, "what" -> what))
      Transactions.checkSnapshot(session, plan)
    }
  }

  /** A stream's batches would join the transaction, while its checkpoint goes on whatever becomes of it. */
  private def outside(plan: LogicalPlan): Option[String] =
    if (plan.isStreaming) Some("STREAM") else plan.collectFirst(Function.unlift(what))

  private def what(plan: LogicalPlan): Option[String] = plan match {
    case vacuum if vacuum.nodeName.startsWith("VacuumTable") => Some("VACUUM")
    case generate if generate.nodeName.startsWith("DeltaGenerate") => Some("GENERATE")
    case write: V2WriteCommand =>
      write.table.collectFirst {
        case r: DataSourceV2Relation if !r.catalog.exists(isLockstep) && !ours(r.table) => described(write, r.name)
      }
    case clone: CreateDeltaTableCommand => // its fields name its source too
      val places = (clone.existingTableOpt ++ Some(clone.table)).flatMap(_.storage.locationUri)
      Option.unless(places.exists(_.getScheme == Overlay.Scheme))(
        described(clone, clone.table.identifier.unquotedString))
    case like if like.nodeName == "CreateTableLike" => // and so do this one's; not every Spark has it
      like.productIterator.take(1).collectFirst {
        case ResolvedIdentifier(catalog, ident) if !isLockstep(catalog) => described(like, s"${catalog.name}.$ident")
      }
    case command: Command if !TransactionGuard.changesNothing(command) =>
      targets(command) match {
        case Nil => pathOutside(command).map(described(command, _))
        case found => found.collectFirst {
            case (catalog, name) if !isLockstep(catalog) => described(command, s"${catalog.name}.$name")
          }
      }
    case _ => None
  }

  private def described(command: LogicalPlan, target: String) = s"${command.nodeName} on $target"

  private def ours(table: Table): Boolean = table match {
    case delta: DeltaTableV2 => delta.path.toUri.getScheme == Overlay.Scheme
    case _ => false
  }

  private def isLockstep(catalog: CatalogPlugin) = catalog.isInstanceOf[LockstepCatalog]

  /** What a command names in catalogs. An analyzed command hides its children, so its fields are looked at. */
  private def targets(command: Command): Seq[(CatalogPlugin, String)] =
    command.productIterator.collect { case plan: LogicalPlan => plan }.toSeq.flatMap(_.collect {
      // Delta's `DeltaOptimizeBuilder` says the current catalog, whosever table it has.
      case ResolvedTable(catalog, ident, table, _) if !ours(table) => catalog -> ident.toString
      case ResolvedIdentifier(catalog, ident) => catalog -> ident.toString
      case ResolvedNamespace(catalog, namespace, _) => catalog -> namespace.mkString(".")
      case ResolvedPersistentView(catalog, ident, _) => catalog -> ident.toString
    })

  /** Commands on files and V1 tables hold their target in a field; a Lockstep path shows in what that prints. */
  private def pathOutside(command: Command): Option[String] = {
    val fields = command.productIterator.map(String.valueOf).mkString(" ")
    if (fields.contains(s"${Overlay.Scheme}:") || !WritesByPath.matches(command.nodeName)) None
    else Some(if (fields.length > 80) fields.take(80) + "…" else fields)
  }

  private val WritesByPath =
    (".*(InsertInto|SaveInto|CreateTable|CreateDataSource|DropTable|AlterTable|Truncate|CreateDatabase|DropDatabase|CreateView|CreateFunction|DropFunction|CreateSQLFunction|" +
      "CreateDeltaTable|Optimize|Restore|Clone|WriteIntoDelta|UpdateCommand|DeleteCommand|MergeIntoCommand|Convert).*").r
}

private[spark] object TransactionGuard {

  /** Whether a command leaves all data as it is, whatever becomes of it. */
  def changesNothing(command: Command): Boolean = command match {
    case _: TransactionCommand => true
    case view: CreateViewCommand => view.viewType != PersistedView
    case function: CreateFunctionCommand => function.isTemp
    case function: CreateSQLFunctionCommand => function.isTemp
    case function: DropFunctionCommand => function.isTemp
    case other => OfTheSession.contains(other.nodeName) || Reading.exists(other.nodeName.startsWith)
  }

  private val Reading =
    Seq("Show", "Describe", "Explain", "List", "Cache", "Uncache", "Refresh", "Reset", "Analyze", "Declare")

  private val OfTheSession = Set(
    "SetCommand",
    "SetCatalogAndNamespace",
    "SetCatalogCommand",
    "SetNamespaceCommand",
    "SetVariable",
    "CreateVariable",
    "DropVariable",
    "DropTempViewCommand",
    "AddJarsCommand",
    "AddFilesCommand"
  )
}
