package lockstep.spark.analysis

import java.util

import lockstep.spark.LockstepCatalog
import lockstep.spark.execution.Vacuum
import lockstep.spark.overlay.RealPaths
import org.apache.spark.sql.catalyst.analysis.{ResolvedNamespace, ResolvedTable}
import org.apache.spark.sql.catalyst.plans.logical.{DescribeRelation, LogicalPlan, ShowCreateTable, ShowTablesExtended}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.connector.catalog.{Column, Table, TableCapability, TableCatalog}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.delta.catalog.DeltaTableV2
import org.apache.spark.sql.delta.commands.{DescribeDeltaDetailCommand, OptimizeTableCommand}
import org.apache.spark.sql.execution.command.ExplainCommand
import org.apache.spark.sql.types.StructType

import io.delta.tables.execution.VacuumTableCommand

import scala.annotation.nowarn

/** Statements that show a table show where its files really lie; and SHOW CREATE TABLE, which Delta refuses, works. */
private[spark] object ShownRule extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan match {
    case ShowCreateTable(resolved @ ResolvedTable(_: LockstepCatalog, _, table: DeltaTableV2, _), false, output) =>
      ShowCreateDeltaTable(resolved.name, table, output)
    case describe: DescribeRelation => describe.relation match { // it has more fields in some Sparks
        case resolved @ ResolvedTable(_: LockstepCatalog, _, table: DeltaTableV2, _) =>
          describe.copy(relation = resolved.copy(table = new ShownTable(table)))
        case _ => describe
      }
    case ShowTablesExtended(ResolvedNamespace(catalog: LockstepCatalog, namespace, _), pattern, output) =>
      ShowTablesAndViews(catalog, namespace, pattern, output)
    case explain: ExplainCommand => RealPaths(explain)
    case command: DescribeDeltaDetailCommand if ofOurs(command.child).nonEmpty => RealPaths(command)
    case command: OptimizeTableCommand if ofOurs(command.child).nonEmpty => RealPaths(command)
    case command: VacuumTableCommand => ofOurs(command.child).fold(plan)(table => RealPaths(Vacuum(command, table)))
    case other => other
  }

  private def ofOurs(plan: LogicalPlan): Option[DeltaTableV2] = plan match {
    case ResolvedTable(_, _, table: DeltaTableV2, _) => Some(table).filter(t => RealPaths.isOverlay(t.path.toString))
    case _ => None
  }
}

@nowarn("cat=deprecation") // Spark before 4.1 asks for the schema
private[spark] class ShownTable(table: DeltaTableV2) extends Table {
  override def name: String = table.name
  override def schema: StructType = table.schema
  override def columns: Array[Column] = table.columns
  override def partitioning: Array[Transform] = table.partitioning
  override def capabilities: util.Set[TableCapability] = table.capabilities

  override def properties: util.Map[String, String] = {
    val shown = new util.HashMap[String, String](table.properties)
    val _ = shown.computeIfPresent(TableCatalog.PROP_LOCATION, (_, path) => RealPaths.in(path))
    shown
  }
}
