package lockstep.spark.catalog

import lockstep.spark.LockstepCatalog
import lockstep.spark.statements.StatementScope
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis.UnresolvedIdentifier
import org.apache.spark.sql.catalyst.plans.logical.{
  CreateTable,
  CreateTableAsSelect,
  LogicalPlan,
  ReplaceTable,
  ReplaceTableAsSelect,
  TableSpecBase,
  UnresolvedTableSpec
}
import org.apache.spark.sql.connector.catalog.{SupportsV1OverwriteWithSaveAsTable => SaveAsTable}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lockstep.LockstepException

/**
 * A table of a Lockstep catalog has a format, Delta, and a writer that names none means that. But a DataFrame's
 * `saveAsTable` then says Spark's default format, and only for a writer that says Delta's does Spark tell Delta that it
 * overwrites rows and keeps the rest: partitioning, constraints, comments, properties. So both are said for it here.
 */
private[spark] object WriterFormat {

  /** The table that this thread has looked up to write it, outside any analysis: as `saveAsTable` does, and SQL does not. */
  private val lookedUp = new ThreadLocal[Option[Seq[String]]] {
    override def initialValue: Option[Seq[String]] = None
  }

  def lookedUp(name: Seq[String]): Unit = if (StatementScope.current.isEmpty) lookedUp.set(Some(name))

  def place(session: SparkSession, plan: LogicalPlan): LogicalPlan = {
    val saved = lookedUp.get
    lookedUp.set(None)
    def isSaved(name: LogicalPlan) = saved.isDefined && saved == qualified(session, name)
    plan match {
      // Spark would say that no path can be made of it.
      case Making(name, spec) if isOurs(session, name) && locationOf(spec).exists(_.isBlank) =>
        throw new LockstepException(
          "LOCKSTEP_INVALID",
          s"LOCATION '${locationOf(spec).mkString}' names no folder. Nothing was changed",
          "22023")
      case replace: ReplaceTableAsSelect if isSaved(replace.name) && isUnsaid(session, replace.tableSpec) =>
        replace.copy(
          tableSpec = ofDelta(replace.tableSpec),
          writeOptions = replace.writeOptions + (SaveAsTable.OPTION_NAME -> "true"))
      case create: CreateTableAsSelect if isSaved(create.name) && isUnsaid(session, create.tableSpec) =>
        create.copy(tableSpec = ofDelta(create.tableSpec))
      // `spark.catalog.createTable`: its Python says the default by itself.
      case create: CreateTable
          if create.origin.sqlText.isEmpty && isOurs(session, create.name) &&
            providerOf(create.tableSpec).contains(session.sessionState.conf.defaultDataSourceName) =>
        create.copy(tableSpec = ofDelta(create.tableSpec))
      case other => other
    }
  }

  /** What makes a table: its name, and what it is to be like. */
  private object Making {
    def unapply(plan: LogicalPlan): Option[(LogicalPlan, TableSpecBase)] = plan match {
      case create: CreateTable => Some(create.name -> create.tableSpec)
      case create: CreateTableAsSelect => Some(create.name -> create.tableSpec)
      case replace: ReplaceTable => Some(replace.name -> replace.tableSpec)
      case replace: ReplaceTableAsSelect => Some(replace.name -> replace.tableSpec)
      case _ => None
    }
  }

  private def qualified(session: SparkSession, name: LogicalPlan): Option[Seq[String]] = name match {
    case UnresolvedIdentifier(parts, _) => Some(StatementScope.qualified(session, parts))
    case _ => None
  }

  private def isOurs(session: SparkSession, name: LogicalPlan): Boolean =
    qualified(session, name).exists(parts => LockstepCatalog.isOne(parts.head))

  private def locationOf(spec: TableSpecBase): Option[String] = spec match {
    case unresolved: UnresolvedTableSpec => unresolved.location
    case _ => None
  }

  private def providerOf(spec: TableSpecBase): Option[String] = spec match {
    case unresolved: UnresolvedTableSpec => unresolved.provider
    case _ => None
  }

  /**
   * A writer starts with the very object that is the default's name, and `format("parquet")` puts another in its place,
   * unless it is a constant of Scala code. Where a setting says the default, each look makes an object of its own.
   */
  private def isUnsaid(session: SparkSession, spec: TableSpecBase): Boolean = {
    val conf = session.sessionState.conf
    val default = conf.defaultDataSourceName
    providerOf(spec).exists { provider =>
      provider == default && (conf.contains(SQLConf.DEFAULT_DATA_SOURCE_NAME.key) || (provider eq default))
    }
  }

  private def ofDelta(spec: TableSpecBase): TableSpecBase = spec match {
    case unresolved: UnresolvedTableSpec => unresolved.copy(provider = Some("delta"))
    case other => other
  }
}
