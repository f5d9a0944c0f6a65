package lockstep.spark.transactions

import lockstep.spark.overlay.RealPaths
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.TableIdentifier
import org.apache.spark.sql.catalyst.analysis.{NamedRelation, PersistedView}
import org.apache.spark.sql.catalyst.plans.logical.{Command, V2WriteCommand}
import org.apache.spark.sql.execution.command.{
  AlterTableRenameCommand,
  AlterViewAsCommand,
  CreateFunctionCommand,
  CreateSQLFunctionCommand,
  CreateViewCommand,
  DropFunctionCommand
}
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation

/** What a transaction may do with a command. */
sealed private[spark] trait Verdict

/** It changes nothing that a ROLLBACK would have to bring back: it asks, or concerns the session alone. */
private[spark] case object Harmless extends Verdict

/** It may run if what each of these fields names belongs to a Lockstep catalog. */
private[spark] case class ByTarget(fields: String*) extends Verdict

/** It changes what no Lockstep catalog keeps. */
private[spark] case object Outside extends Verdict

/** It is on none of the lists: of an extension, or of a Spark or Delta that is not known yet. */
private[spark] case object Unknown extends Verdict

/** A command of ours that Python refuses where it must, in and outside a transaction. */
private[spark] trait JudgedByPython { this: Command =>

  /** Whether it may change data: then a failure of it is one of a write. */
  def changesSomething: Boolean
}

/**
 * Every command of Spark's and Delta's, by the name of its class: what is not here is refused in a transaction. A test
 * asks for a verdict about each command class on the class path, and that the fields exist. Some Sparks lack some of them.
 */
private[spark] object Commands {

  def verdict(command: Command): Verdict = verdict(command.getClass.getName)

  def verdict(className: String): Verdict = verdicts.getOrElse(className.stripSuffix("$"), Unknown)

  /** Whether a command leaves all data as it is, whatever becomes of it. */
  def changesNothing(session: SparkSession, command: Command): Boolean = command match {
    case RealPaths(shown) => changesNothing(session, shown)
    case judged: JudgedByPython => !judged.changesSomething
    case view: CreateViewCommand => view.viewType != PersistedView
    case view: AlterViewAsCommand => isTemporary(session, view.name)
    case rename: AlterTableRenameCommand => isTemporary(session, rename.oldName)
    case function: CreateFunctionCommand => function.isTemp
    case function: CreateSQLFunctionCommand => function.isTemp
    case function: DropFunctionCommand => function.isTemp
    case write: V2WriteCommand => isNoop(write.table)
    case other => verdict(other) == Harmless
  }

  /** The data source that throws away what it is given: users execute queries by it, as a benchmark does. */
  private def isNoop(table: NamedRelation): Boolean = table match {
    case relation: DataSourceV2Relation => relation.table.getClass.getName.startsWith(s"${Sources}noop.")
    case _ => false
  }

  def isTemporary(session: SparkSession, name: TableIdentifier): Boolean =
    session.sessionState.catalog.isTempView(name)

  /** For tests: a verdict in words. */
  def described(className: String): String = verdict(className) match {
    case ByTarget(fields @ _*) => fields.mkString(" ")
    case other => other.toString
  }

  private val Catalyst = "org.apache.spark.sql.catalyst.plans.logical."
  private val Execution = "org.apache.spark.sql.execution.command."
  private val Sources = "org.apache.spark.sql.execution.datasources."
  private val Hive = "org.apache.spark.sql.hive.execution."
  private val Delta = "org.apache.spark.sql.delta.commands."

  private def each(prefix: String, verdict: Verdict)(names: String): Map[String, Verdict] =
    names.split("\\s+").filter(_.nonEmpty).map(name => (prefix + name) -> verdict).toMap

  private val asking =
    each(Catalyst, Harmless)("""
      DescribeColumn DescribeFunction DescribeNamespace DescribeRelation DescribeTablePartition
      ShowColumns ShowCreateTable ShowCurrentNamespace ShowFunctions ShowNamespaces ShowPartitions ShowTableExtended
      ShowTablePartition ShowTableProperties ShowTables ShowTablesExtended ShowViews NoopCommand""") ++
      each(Execution, Harmless)("""
      DescribeColumnCommand DescribeDatabaseCommand DescribeFunctionCommand DescribeProcedureCommand
      DescribeQueryCommand DescribeRelationJsonCommand DescribeTableCommand
      ExplainCommand StreamingExplainCommand ListArchivesCommand ListFilesCommand ListJarsCommand
      ShowCatalogsCommand ShowCollationsCommand ShowColumnsCommand ShowCreateTableAsSerdeCommand
      ShowCreateTableCommand ShowCurrentNamespaceCommand ShowFunctionsCommand ShowNamespacesCommand
      ShowPartitionsCommand ShowProceduresCommand ShowTablePropertiesCommand ShowTablesCommand ShowViewsCommand""") ++
      each(Delta, Harmless)("""
      DescribeDeltaDetailCommand DescribeDeltaHistoryCommand ShowDeltaPartitionsCommand
      ShowDeltaTableColumnsCommand""") ++
      each("lockstep.spark.analysis.", Harmless)("ShowCreateDeltaTable ShowSessionTables ShowTablesAndViews")

  /** Settings, variables, cursors, caches and files of the session or the application; the statements of a script. */
  private val ofTheSession =
    each(Catalyst, Harmless)("""
      CacheTable CacheTableAsSelect UncacheTable RefreshFunction RefreshTable SetCatalogAndNamespace
      CreateVariable DropVariable SetVariable DeclareCursor OpenCursor FetchCursor CloseCursor CompoundBody""") ++
      each(Execution, Harmless)("""
      SetCommand ResetCommand SetCatalogCommand SetNamespaceCommand SetPathCommand ClearCacheCommand
      RefreshFunctionCommand RefreshTableCommand DropTempViewCommand
      AddArchivesCommand AddFilesCommand AddJarsCommand""") ++
      each(Sources, Harmless)("CreateTempViewUsing RefreshResource") ++
      each("lockstep.spark.execution.", Harmless)("""
      TransactionCommand AtomicBlock ProcedureCall CreateSqlFunction DescribeSqlFunction DropSqlFunction""") ++
      // Spark itself refuses these; for its own catalog it makes others of them, which are refused below.
      each(Catalyst, Harmless)("AnalyzeColumn AnalyzeTable AnalyzeTables")

  private val byTarget =
    each(Catalyst, ByTarget("table"))("""
      AddColumns AddConstraint AddPartitions AlterColumns AlterTableClusterBy AlterTableCollation AppendData
      CommentOnTable CreateIndex DeleteFromTable DeleteFromTableWithFilters DropColumns DropConstraint DropIndex
      DropPartitions InsertOnlyMerge OverwriteByExpression OverwritePartitionsDynamic RenameColumn RenamePartitions
      ReplaceColumns ReplaceData SetTableLocation SetTableProperties TruncatePartition TruncateTable
      UnsetTableProperties UpdateTable WriteDelta
      AlterColumnSyncIdentity AlterTableAddConstraint AlterTableDropConstraint AlterTableDropFeature""") ++
      each(Catalyst, ByTarget("child"))("""
      AddCheckConstraint AlterViewAs AlterViewSchemaBinding CommentOnNamespace CreateFunction
      CreateUserDefinedFunction CreateView DropFunction DropTable DropView LoadData RecoverPartitions RenameTable
      RepairTable SetTableSerDeProperties SetViewProperties UnsetViewProperties""") ++
      each(Catalyst, ByTarget("name"))("""
      CreateNamespace CreateTable CreateTableAsSelect CreateTableLike ReplaceTable ReplaceTableAsSelect""") ++
      each(Catalyst, ByTarget("namespace"))(
        "DropNamespace SetNamespaceCollation SetNamespaceLocation SetNamespaceProperties") ++
      each(Catalyst, ByTarget("ident"))("UnsetNamespaceProperties") ++
      each(Catalyst, ByTarget("targetTable"))("MergeIntoTable") ++
      each(Catalyst, ByTarget("target"))("DeltaMergeInto") ++
      each(Execution, ByTarget("namespace"))("SetNamespaceCollationCommand") ++
      each(Execution, ByTarget("ident"))("UnsetNamespacePropertiesCommand") ++
      each("org.apache.spark.sql.delta.skipping.clustering.temp.", ByTarget("table"))("AlterTableClusterBy") ++
      each("org.apache.spark.sql.delta.", ByTarget("table", "deltaTable"))("DeltaDynamicPartitionOverwriteCommand") ++
      each(Delta, ByTarget("table"))("""
      AlterTableAddColumnsDeltaCommand AlterTableAddConstraintDeltaCommand AlterTableChangeColumnDeltaCommand
      AlterTableClusterByDeltaCommand AlterTableDropColumnsDeltaCommand AlterTableDropConstraintDeltaCommand
      AlterTableDropFeatureDeltaCommand AlterTableReplaceColumnsDeltaCommand AlterTableSetLocationDeltaCommand
      AlterTableSetPropertiesDeltaCommand AlterTableUnsetPropertiesDeltaCommand CreateDeltaTableCommand""") ++
      each(Delta, ByTarget("child"))("OptimizeTableCommand TruncateDeltaTableCommand") ++
      each(Delta, ByTarget("target"))("DeltaReorgTable DeltaReorgTableCommand MergeIntoCommand") ++
      each(Delta, ByTarget("deltaLog", "target"))("DeleteCommand") ++
      each(Delta, ByTarget("tahoeFileIndex", "target"))("UpdateCommand") ++
      each(Delta, ByTarget("sourceTable"))("RestoreTableCommand") ++
      each(Delta, ByTarget("deltaTable"))("DeltaInsertReplaceOnOrUsingCommand") ++
      each(Delta, ByTarget("targetPath"))("CloneTableCommand") ++
      each(Delta, ByTarget("deltaLog"))("WriteIntoDelta") ++
      each(Delta + "backfill.", ByTarget("deltaLog"))("RowTrackingBackfillCommand RowTrackingUnBackfillCommand") ++
      each("lockstep.spark.overlay.", ByTarget("command"))("RealPaths")

  /** Of Spark's own catalog, of files and other formats, and of what no catalog of Lockstep's has. */
  private val outside =
    each(Catalyst, Outside)("""
      CreateFlowCommand CreateMaterializedViewAsSelect CreateStreamingTable CreateStreamingTableAsSelect""") ++
      each("org.apache.spark.sql.metricview.logical.", Outside)("CreateMetricView") ++
      each(Execution, Outside)("""
      AlterDatabasePropertiesCommand AlterDatabaseSetLocationCommand AlterTableAddColumnsCommand
      AlterTableAddPartitionCommand AlterTableChangeColumnCommand AlterTableDropPartitionCommand
      AlterTableRenameCommand AlterTableRenamePartitionCommand AlterTableSerDePropertiesCommand
      AlterTableSetLocationCommand AlterTableSetPropertiesCommand AlterTableUnsetPropertiesCommand
      AlterViewAsCommand AlterViewSchemaBindingCommand AnalyzeColumnCommand AnalyzePartitionCommand
      AnalyzeTableCommand AnalyzeTablesCommand CreateDataSourceTableAsSelectCommand CreateDataSourceTableCommand
      CreateDatabaseCommand CreateFunctionCommand CreateMetricViewCommand CreateSQLFunctionCommand
      CreateTableCommand CreateTableLikeCommand CreateViewCommand DropDatabaseCommand DropFunctionCommand
      DropTableCommand ExternalCommandExecutor InsertIntoDataSourceDirCommand LoadDataCommand RepairTableCommand
      SaveAsV1TableCommand TruncateTableCommand""") ++
      each(Sources, Outside)("""
      InsertIntoDataSourceCommand InsertIntoHadoopFsRelationCommand SaveIntoDataSourceCommand""") ++
      each(Hive, Outside)("CreateHiveTableAsSelectCommand InsertIntoHiveDirCommand InsertIntoHiveTable") ++
      each(Delta, Outside)("ConvertToDeltaCommand DeltaGenerateCommand") ++
      each("io.delta.tables.execution.", Outside)("VacuumTableCommand") ++
      each("lockstep.spark.execution.", Outside)("Vacuum")

  private val verdicts: Map[String, Verdict] = asking ++ ofTheSession ++ byTarget ++ outside
}
