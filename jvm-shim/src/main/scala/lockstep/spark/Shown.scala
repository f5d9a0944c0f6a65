package lockstep.spark

import java.util
import java.util.regex.Matcher

import org.apache.hadoop.fs.Path
import org.apache.spark.sql.{Row, SparkSession}
import org.apache.spark.sql.catalyst.analysis.{ResolvedNamespace, ResolvedTable}
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.{DescribeRelation, LogicalPlan, ShowCreateTable, ShowTablesExtended}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.util.{CharVarcharUtils, escapeSingleQuotedString, quoteIfNeeded}
import org.apache.spark.sql.connector.catalog.{Column, Table, TableCapability, TableCatalog}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.delta.{MaterializedRowCommitVersion, MaterializedRowId}
import org.apache.spark.sql.delta.catalog.DeltaTableV2
import org.apache.spark.sql.delta.commands.{DescribeDeltaDetailCommand, OptimizeTableCommand}
import org.apache.spark.sql.delta.sources.DeltaSourceUtils
import org.apache.spark.sql.execution.command.{ExplainCommand, LeafRunnableCommand, RunnableCommand}
import org.apache.spark.sql.types.{StructField, StructType}

import io.delta.tables.execution.VacuumTableCommand

import scala.annotation.nowarn

/** Statements that show a table show where its files really lie; and SHOW CREATE TABLE, which Delta refuses, works. */
private[spark] object ShownRule extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan match {
    case ShowCreateTable(found @ ResolvedTable(_: LockstepCatalog, _, table: DeltaTableV2, _), false, output) =>
      ShowCreateDeltaTable(found.name, table, output)
    case describe: DescribeRelation => describe.relation match { // it has more fields in some Sparks
        case found @ ResolvedTable(_: LockstepCatalog, _, table: DeltaTableV2, _) =>
          describe.copy(relation = found.copy(table = new ShownTable(table)))
        case _ => describe
      }
    case ShowTablesExtended(ResolvedNamespace(catalog: LockstepCatalog, namespace, _), pattern, output) =>
      ShowTablesAndViews(catalog, namespace, pattern, output)
    case explain: ExplainCommand => RealPaths(explain)
    case command: DescribeDeltaDetailCommand if ofOurs(command.child) => RealPaths(command)
    case command: OptimizeTableCommand if ofOurs(command.child) => RealPaths(command)
    case command: VacuumTableCommand if ofOurs(command.child) => RealPaths(command)
    case other => other
  }

  private def ofOurs(plan: LogicalPlan): Boolean = plan match {
    case ResolvedTable(_, _, table: DeltaTableV2, _) => Shown.isOverlay(table.path.toString)
    case _ => false
  }
}

private[spark] object Shown {

  /** The parts of a name, as SQL writes it. */
  def quoted(parts: Seq[String]): String = parts.map(quoteIfNeeded).mkString(".")

  def isOverlay(path: String): Boolean = path.startsWith(s"${Overlay.Scheme}://")

  /** A text, with the paths in it as they are without the overlay. */
  def real(text: String): String =
    Overlaid.replaceAllIn(
      text,
      found => Matcher.quoteReplacement(Overlay.parse(found.group(1)).real(new Path("/")).toString))

  /** Up to the path; whatever else begins like that in a user's comment stays as it is. */
  private val Overlaid = s"${Overlay.Scheme}://((?:head|[0-9a-fx]+-(?:new|[0-9]+))\\.[^/\\s]+)/".r
}

/** A command whose answer has paths in it, as they are without the overlay. */
private[spark] case class RealPaths(command: RunnableCommand) extends LeafRunnableCommand {
  override def nodeName: String = command.nodeName
  override def innerChildren: Seq[LogicalPlan] = Seq(command)
  override val output: Seq[Attribute] = command.output
  override lazy val metrics = command.metrics

  override def run(session: SparkSession): Seq[Row] = command.run(session).map { row =>
    Row.fromSeq(row.toSeq.map {
      case text: String => Shown.real(text)
      case value => value
    })
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
    val _ = shown.computeIfPresent(TableCatalog.PROP_LOCATION, (_, path) => Shown.real(path))
    shown
  }
}

/** The statement that makes such a table: one that can be run, so without what only Delta may set. */
private[spark] case class ShowCreateDeltaTable(name: String, table: DeltaTableV2, override val output: Seq[Attribute])
    extends LeafRunnableCommand {

  override def run(session: SparkSession): Seq[Row] = {
    val snapshot = table.initialSnapshot
    val columns = CharVarcharUtils.getRawSchema(snapshot.schema).map(field => field.toDDL + generated(field))
    val partitions = snapshot.metadata.partitionColumns.map(quoteIfNeeded)
    val clusters = table.clusterBySpec.fold(Seq.empty[String])(_.columnNames.map(_.toString))
    val properties = session.sessionState.conf.redactOptions(snapshot.getProperties.toMap).toSeq.sorted.collect {
      case (key, value) if !ShowCreateDeltaTable.SetByDelta(key) => s"${quoted(key)} = ${quoted(value)}"
    }
    val lines = Seq(s"CREATE TABLE $name ${listed(columns)}", "USING delta") ++
      Option.when(partitions.nonEmpty)(s"PARTITIONED BY ${partitions.mkString("(", ", ", ")")}") ++
      Option.when(clusters.nonEmpty)(s"CLUSTER BY ${clusters.mkString("(", ", ", ")")}") ++
      Option(snapshot.metadata.description).map(comment => s"COMMENT ${quoted(comment)}") :+
      s"TBLPROPERTIES ${listed(properties)}"
    Seq(Row(lines.mkString("", "\n", "\n")))
  }

  /** Delta keeps this in metadata of its own, which Spark's `toDDL` does not know. */
  private def generated(field: StructField): String = {
    import DeltaSourceUtils._
    val metadata = field.metadata
    if (metadata.contains(GENERATION_EXPRESSION_METADATA_KEY))
      s" GENERATED ALWAYS AS (${metadata.getString(GENERATION_EXPRESSION_METADATA_KEY)})"
    else if (metadata.contains(IDENTITY_INFO_START)) {
      val when = if (metadata.getBoolean(IDENTITY_INFO_ALLOW_EXPLICIT_INSERT)) "BY DEFAULT" else "ALWAYS"
      val (start, step) = (metadata.getLong(IDENTITY_INFO_START), metadata.getLong(IDENTITY_INFO_STEP))
      s" GENERATED $when AS IDENTITY (START WITH $start INCREMENT BY $step)"
    } else ""
  }

  private def quoted(text: String) = s"'${escapeSingleQuotedString(text)}'"

  private def listed(items: Seq[String]) = items.mkString("(\n  ", ",\n  ", ")")
}

private[spark] object ShowCreateDeltaTable {
  private val SetByDelta = Set(
    "delta.columnMapping.maxColumnId",
    "delta.feature.clustering",
    MaterializedRowId.MATERIALIZED_COLUMN_NAME_PROP,
    MaterializedRowCommitVersion.MATERIALIZED_COLUMN_NAME_PROP
  )
}
