package lockstep.spark.analysis

import org.apache.spark.sql.{Row, SparkSession}
import org.apache.spark.sql.catalyst.analysis.ResolvedNamespace
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, ShowTables}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.util.StringUtils
import org.apache.spark.sql.connector.catalog.TableCatalog
import org.apache.spark.sql.execution.command.UnaryRunnableCommand
import org.apache.spark.sql.execution.datasources.v2.ShowTablesExec

/** Has `SHOW TABLES` of Spark's session catalog list what only the lake has there, where that stands for it. */
private[spark] case class SessionTables(session: SparkSession) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan match {
    case show @ ShowTables(ResolvedNamespace(catalog: TableCatalog, Seq(schema), _), pattern, output)
        if catalog.name.equalsIgnoreCase(SessionNames.SessionCatalog) && SessionNames.in(session).isDefined =>
      ShowSessionTables(catalog, schema, pattern, output, show)
    case other => other
  }
}

/**
 * @param child what this stands for: `spark.catalog.listTables` looks for it in the plan
 */
private[spark] case class ShowSessionTables(
    catalog: TableCatalog,
    database: String,
    pattern: Option[String],
    override val output: Seq[Attribute],
    override val child: LogicalPlan)
    extends UnaryRunnableCommand {

  override def run(session: SparkSession): Seq[Row] = {
    val listed = ShowTablesExec(output, catalog, Seq(database), pattern).executeCollect().toSeq.map { row =>
      Row(row.getString(0), row.getString(1), row.getBoolean(2))
    }
    val (temporary, tables) = listed.partition(_.getBoolean(2))
    val ours = SessionNames.in(session).toSeq.flatMap(_.onlyOurs(database, tables.map(_.getString(1)).toSet))
    val shown = pattern.fold(ours)(StringUtils.filterPattern(ours, _))
    (tables ++ shown.map(Row(database, _, false))).sortBy(_.getString(1)) ++ temporary
  }

  override protected def withNewChildInternal(newChild: LogicalPlan): LogicalPlan = copy(child = newChild)
}
