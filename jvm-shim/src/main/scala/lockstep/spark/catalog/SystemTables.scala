package lockstep.spark.catalog

import java.util

import com.fasterxml.jackson.databind.JsonNode
import lockstep.spark.Bridge
import lockstep.spark.host.SessionSettings
import org.apache.hadoop.fs.Path
import lockstep.spark.transactions.ShowsTransaction
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.catalyst.util.{ArrayBasedMapData, DateTimeUtils, GenericArrayData}
import org.apache.spark.sql.connector.catalog.{SupportsRead, Table, TableCapability, TruncatableTable}
import org.apache.spark.sql.connector.expressions.{NamedReference, NullOrdering, SortDirection, SortOrder}
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.delta.DeltaTimeTravelSpec
import org.apache.spark.sql.delta.catalog.DeltaTableV2
import org.apache.spark.sql.delta.lockstep.Snapshots
import org.apache.spark.sql.execution.SQLExecution
import org.apache.spark.sql.lockstep.LockstepException
import org.apache.spark.sql.sources._
import org.apache.spark.sql.types._
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.apache.spark.unsafe.types.UTF8String

import scala.jdk.CollectionConverters._

/**
 * A table of the namespace `system`. Python says what its rows are, a bounded number at a time; each such batch is one
 * partition, whose rows travel to the executor with the task. It is no table of Delta's, so nobody judges what is read of
 * it.
 *
 * Two are equal, and what is cached of one serves the other, if they show the same.
 *
 * @param at          the database version that it shows; none is what is there when it is read
 * @param transaction the transaction whose view it shows
 * @param judged      the columns whose conditions Python judges
 * @param ordered     the columns by which Python finds some rows without the others; `column DESC`: the last of them
 * @param listsFiles  whether Delta lists its rows
 * @param reads       the settings of Spark's that it shows
 */
private[spark] case class SystemTable(
    catalog: String,
    table: String,
    comment: String,
    override val schema: StructType,
    at: Option[Long],
    transaction: Option[String],
    judged: Set[String],
    ordered: Set[String],
    listsFiles: Boolean,
    reads: Seq[String])(val session: SparkSession, val about: Seq[(String, Any)])
    extends Table with SupportsRead with TruncatableTable with ShowsTransaction {

  override def name: String = s"$catalog.${Procedures.Namespace}.$table"

  override def capabilities: util.Set[TableCapability] = util.EnumSet.of(TableCapability.BATCH_READ)

  override def properties: util.Map[String, String] = util.Map.of("comment", comment)

  /** Spark's own refusal of a table that cannot be truncated has no SQLSTATE. */
  override def truncateTable(): Boolean = throw new LockstepException(
    "LOCKSTEP_NOT_A_TABLE",
    s"$name is a system table: it shows what the lake says of itself, and nothing is removed from it.",
    "42809")

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = new SystemScanBuilder(this)
}

private[spark] object SystemTable {

  /** The table that Python tells of. */
  def apply(catalog: String, session: SparkSession, about: Seq[(String, Any)], answer: JsonNode): SystemTable = {
    def texts(field: String) = answer.get(field).elements().asScala.map(_.asText).toSeq
    val columns = answer.get("columns").elements().asScala.map { column =>
      StructField(column.get("name").asText, DataType.fromDDL(column.get("type").asText))
        .withComment(column.get("comment").asText)
    }
    SystemTable(
      catalog,
      answer.get("name").asText,
      answer.get("comment").asText,
      StructType(columns.toArray),
      Option(answer.get("at")).filterNot(_.isNull).map(_.asLong),
      Option(answer.get("transaction")).filterNot(_.isNull).map(_.asText),
      texts("judged").toSet,
      texts("ordered").toSet,
      answer.get("lists_files").asBoolean,
      texts("reads")
    )(session, about)
  }
}

private class SystemScanBuilder(table: SystemTable)
    extends ScanBuilder with SupportsPushDownRequiredColumns with SupportsPushDownFilters with SupportsPushDownLimit
    with SupportsPushDownTopN {
  private var schema = table.schema
  private var filters = Array.empty[Filter]
  private var limit = Option.empty[Int]
  private var isDescending = false

  override def pruneColumns(required: StructType): Unit = schema = required

  /** What Python does not judge is left to Spark. */
  override def pushFilters(all: Array[Filter]): Array[Filter] = {
    val (judged, others) = all.partition(SystemScan.told(table, _).nonEmpty)
    filters = judged
    others
  }

  override def pushedFilters: Array[Filter] = filters

  /** Spark takes the limit all the same, as it sorts, so that to read too much is no error. */
  override def pushLimit(most: Int): Boolean = {
    if (!table.listsFiles) limit = Some(most)
    !table.listsFiles
  }

  override def pushTopN(orders: Array[SortOrder], most: Int): Boolean = orders match {
    case Array(order) =>
      order.expression match {
        case column: NamedReference if column.fieldNames.length == 1 && isFound(column.fieldNames.head, order) =>
          limit = Some(most)
          isDescending = order.direction == SortDirection.DESCENDING
          true
        case _ => false
      }
    case _ => false
  }

  /** Some columns have NULL, and are found from their end alone, where these come last. */
  private def isFound(column: String, order: SortOrder): Boolean =
    table.ordered.contains(column) || table.ordered.contains(s"$column DESC") &&
      order.direction == SortDirection.DESCENDING && order.nullOrdering == NullOrdering.NULLS_LAST

  override def isPartiallyPushed: Boolean = true

  override def build(): Scan = new SystemScan(table, schema, filters.toSeq, limit, isDescending)
}

private class SystemScan(
    table: SystemTable,
    override val readSchema: StructType,
    filters: Seq[Filter],
    limit: Option[Int],
    isDescending: Boolean)
    extends Scan with Batch {

  override def toBatch: Batch = this

  // Else Spark asks for the partitions, and so for the rows, to explain a plan.
  override def columnarSupportMode: Scan.ColumnarSupportMode = Scan.ColumnarSupportMode.UNSUPPORTED

  override def description: String =
    (Seq(table.name) ++ table.at.map(version => s"version $version") ++ filters.map(_.toString) ++
      limit.map(most => s"the ${if (isDescending) "last" else "first"} $most")).mkString(", ")

  override def createReaderFactory: PartitionReaderFactory = SystemReaders

  /** The session that executes the query, which need not be the one that made it, nor the thread's. */
  private def session: SparkSession = {
    val execution = Option(table.session.sparkContext.getLocalProperty(SQLExecution.EXECUTION_ID_KEY))
    execution.flatMap(id => Option(SQLExecution.getQueryExecution(id.toLong))).map(_.sparkSession)
      .orElse(SparkSession.getActiveSession).getOrElse(table.session)
  }

  private def ask(op: String, args: (String, Any)*): JsonNode =
    Bridge.call(
      op,
      session,
      (table.about ++ Seq(
        "table" -> table.table,
        "transaction" -> table.transaction,
        "filters" -> filters.flatMap(SystemScan.told(table, _))) ++ args): _*)

  override def planInputPartitions: Array[InputPartition] = {
    val unsafe = UnsafeProjection.create(readSchema)
    batches(if (table.listsFiles) files else rows).filter(_.nonEmpty).map(part =>
      SystemPartition(part.map(unsafe(_).copy()).toArray): InputPartition).toArray
  }

  /** All batches: each says where the next begins, and at which database version. */
  private def batches(next: (Option[Long], Option[Long], Option[Int]) => (JsonNode, Seq[Seq[InternalRow]])) = {
    val found = Seq.newBuilder[Seq[InternalRow]]
    var (from, version, left, isOver) = (Option.empty[Long], table.at, limit, false)
    while (!isOver) {
      val (answer, parts) = next(from, version, left)
      found ++= parts
      left = left.map(_ - parts.map(_.size).sum)
      from = SystemScan.number(answer, "next")
      version = SystemScan.number(answer, "at")
      isOver = from.isEmpty
    }
    found.result()
  }

  private def rows(cursor: Option[Long], at: Option[Long], wanted: Option[Int]): (JsonNode, Seq[Seq[InternalRow]]) = {
    val here = session
    val answer = ask(
      "system_rows",
      "columns" -> readSchema.fieldNames.toSeq,
      "limit" -> wanted,
      "descending" -> isDescending,
      "at" -> at,
      "cursor" -> cursor,
      if (table.reads.nonEmpty) SessionSettings.ofTransactions(here) else "settings" -> Map.empty[String, String],
      "driver" -> table.reads.flatMap(name => here.conf.getOption(name).map(name -> _)).toMap
    )
    val found = answer.get("rows").elements().asScala.map { row =>
      InternalRow.fromSeq(row.elements().asScala.zip(readSchema.fields.iterator).map { case (cell, field) =>
        SystemScan.value(cell, field.dataType)
      }.toSeq)
    }
    (answer, Seq(found.toSeq))
  }

  /** Of files there is no limit: a partition has so many at most. */
  private def files(cursor: Option[Long], at: Option[Long], unused: Option[Int]): (JsonNode, Seq[Seq[InternalRow]]) = {
    require(unused.isEmpty)
    val answer = ask("system_files", "at" -> at, "cursor" -> cursor)
    (answer, answer.get("tables").elements().asScala.flatMap(of).grouped(SystemScan.MostFiles).toSeq)
  }

  /** The data files of one table, as Delta lists them: of a small one from the driver's memory. */
  private def of(answer: JsonNode): Iterator[InternalRow] = {
    val here = session
    val version = answer.get("version").asLong
    val travel = DeltaTimeTravelSpec(None, Some(version), Some(table.catalog), false)
    val now = System.currentTimeMillis()
    val delta = DeltaTableV2(here, new Path(answer.get("uri").asText), timeTravelOpt = Some(travel))
    val snapshot = DriverState.keep(here, delta.deltaLog, Snapshots.of(delta, since = now))
    snapshot.allFiles.toLocalIterator().asScala.map { file =>
      val isAbsolute = new Path(file.path).toUri.isAbsolute || file.path.startsWith("/")
      def value(column: String): Any = column match {
        case "namespace" | "name" => UTF8String.fromString(answer.get(column).asText)
        case "table_version" => version
        case "path" =>
          UTF8String.fromString(if (isAbsolute) file.path else s"${answer.get("location").asText}/${file.path}")
        case "size" => file.size
        case "rows" => file.numPhysicalRecords.map(Long.box).orNull
        case "deleted_rows" => Option(file.deletionVector).fold(0L)(_.cardinality)
        case "partition_values" => SystemScan.map(file.partitionValues)
        case "modified_at" => file.modificationTime * 1000
      }
      InternalRow.fromSeq(readSchema.fieldNames.toSeq.map(value))
    }
  }
}

private object SystemScan {

  /** So many files are in a partition at most. */
  private val MostFiles = 10000

  /** A condition as Python is told of it; none, if that does not judge it. */
  def told(table: SystemTable, filter: Filter): Option[Map[String, Any]] = {
    def of(column: String, op: String, more: (String, Any)*) =
      Option.when(table.judged.contains(column))(Map("column" -> column, "op" -> op) ++ more)
    def compared(column: String, op: String, value: Any) =
      if (table.schema(column).dataType == StringType) None else of(column, op, "value" -> plain(value))
    filter match {
      case EqualTo(column, value) if isPlain(value) => of(column, "=", "value" -> plain(value))
      case In(column, values) if values.forall(isPlain) => of(column, "in", "values" -> values.toSeq.map(plain))
      case LessThan(column, value) if isPlain(value) => compared(column, "<", value)
      case LessThanOrEqual(column, value) if isPlain(value) => compared(column, "<=", value)
      case GreaterThan(column, value) if isPlain(value) => compared(column, ">", value)
      case GreaterThanOrEqual(column, value) if isPlain(value) => compared(column, ">=", value)
      case IsNull(column) => of(column, "null")
      case IsNotNull(column) => of(column, "not null")
      case _ => None
    }
  }

  private def isPlain(value: Any): Boolean = value match {
    case _: Boolean | _: Int | _: Long | _: String | _: java.sql.Timestamp | _: java.time.Instant => true
    case _ => false
  }

  private def plain(value: Any): Any = value match {
    case time: java.sql.Timestamp => DateTimeUtils.fromJavaTimestamp(time)
    case time: java.time.Instant => DateTimeUtils.instantToMicros(time)
    case other => other
  }

  def number(answer: JsonNode, field: String): Option[Long] =
    Option(answer.get(field)).filterNot(_.isNull).map(_.asLong)

  def value(cell: JsonNode, kind: DataType): Any =
    if (cell.isNull) null
    else
      kind match {
        case LongType | TimestampType => cell.asLong
        case BooleanType => cell.asBoolean
        case ArrayType(StringType, _) =>
          new GenericArrayData(cell.elements().asScala.map(each => UTF8String.fromString(each.asText)).toArray[Any])
        case _ => UTF8String.fromString(cell.asText)
      }

  def map(texts: Map[String, String]): ArrayBasedMapData = {
    val pairs = texts.toSeq
    new ArrayBasedMapData(
      new GenericArrayData(pairs.map(pair => UTF8String.fromString(pair._1)).toArray[Any]),
      new GenericArrayData(pairs.map(pair => UTF8String.fromString(pair._2)).toArray[Any])
    )
  }
}

/** Some rows, which travel to the executor with its task. */
private case class SystemPartition(rows: Array[UnsafeRow]) extends InputPartition

private object SystemReaders extends PartitionReaderFactory {
  override def createReader(partition: InputPartition): PartitionReader[InternalRow] = {
    val rows = partition.asInstanceOf[SystemPartition].rows.iterator
    new PartitionReader[InternalRow] {
      private var current: InternalRow = _
      override def next(): Boolean = {
        val isThere = rows.hasNext
        if (isThere) current = rows.next()
        isThere
      }
      override def get(): InternalRow = current
      override def close(): Unit = ()
    }
  }
}
