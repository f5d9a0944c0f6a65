package lockstep.spark.analysis

import lockstep.spark.overlay.RealPaths
import org.apache.spark.sql.{Row, SparkSession}
import org.apache.spark.sql.catalyst.catalog.CatalogTableType
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.util.{CharVarcharUtils, escapeSingleQuotedString, quoteIfNeeded}
import org.apache.spark.sql.delta.{MaterializedRowCommitVersion, MaterializedRowId}
import org.apache.spark.sql.delta.catalog.DeltaTableV2
import org.apache.spark.sql.delta.sources.DeltaSourceUtils
import org.apache.spark.sql.execution.command.LeafRunnableCommand
import org.apache.spark.sql.types.StructField

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
      table.catalogTable.filter(_.tableType == CatalogTableType.EXTERNAL).map(_ =>
        s"LOCATION ${quoted(RealPaths.in(table.path.toString))}") ++
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
