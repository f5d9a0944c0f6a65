package lockstep.spark.analysis

import lockstep.spark.analysis.RowChanges.{Net, Raw, Told, WithoutCopies, unsupported}
import lockstep.spark.catalog.Commits
import org.apache.spark.sql.catalyst.expressions.aggregate.{Max, Sum}
import org.apache.spark.sql.catalyst.expressions.{
  Abs,
  Alias,
  Attribute,
  AttributeReference,
  EqualTo,
  Expression,
  GreaterThan,
  If,
  In,
  Literal,
  NamedExpression,
  Not,
  OrderUtils,
  ReplicateRows
}
import org.apache.spark.sql.catalyst.plans.Inner
import org.apache.spark.sql.catalyst.plans.logical.{
  Aggregate,
  BROADCAST,
  Filter,
  Generate,
  HintInfo,
  Join,
  JoinHint,
  LocalRelation,
  LogicalPlan,
  Project
}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.delta.commands.cdc.CDCReader
import org.apache.spark.sql.delta.lockstep.ChangedRows
import org.apache.spark.sql.types.{
  ArrayType,
  BooleanType,
  DataType,
  LongType,
  MapType,
  StringType,
  StructType,
  TimestampType
}

/** What is told of rows that changed: of which version, and which of them. */
private[analysis] class ToldRows(changed: ChangedRows, table: String) {
  private val added = Seq(CDCReader.CDC_TYPE_INSERT, CDCReader.CDC_TYPE_UPDATE_POSTIMAGE)
  private val told = Seq(CDCReader.CDC_TYPE_COLUMN_NAME, CDCReader.CDC_COMMIT_VERSION, CDCReader.CDC_COMMIT_TIMESTAMP)
  private val data = changed.plan.output.dropRight(told.size)

  /** @param commits which database versions to name; none: the table's own */
  def as(mode: Told, computesUpdates: Boolean, commits: Option[Seq[Commits]]): LogicalPlan = {
    data.find(column => told.exists(_.equalsIgnoreCase(column.name))).foreach(column =>
      throw unsupported(
        s"table $table has a column ${column.name}, which is a name that changes are told by: rename it"))
    if (computesUpdates && (mode == Net || !changed.isFromFeed))
      throw unsupported(
        s"computeUpdates of table $table: without its change data feed, or of net changes, nothing tells which rows an " +
          "update replaced. An update is a row that is deleted and one that is inserted; leave computeUpdates out, or set " +
          "delta.enableChangeDataFeed for what changes from then on")
    val rows = commits.fold(changed.plan)(named)
    mode match {
      case Net => counted(rows, isNet = true)
      case WithoutCopies if !changed.isFromFeed => counted(rows, isNet = false)
      case WithoutCopies | Raw => rows
    }
  }

  /** Rows with the version and the time of the database instead of the table's. */
  private def named(commits: Seq[Commits]): LogicalPlan = {
    val (version, ofDatabase, time) = (column("version"), column("database"), column("committed_at", TimestampType))
    val known = LocalRelation(
      Seq(version, ofDatabase, time),
      for { commit <- commits; each <- commit.versions } yield InternalRow(
        each,
        commit.version,
        commit.committedAtMicros)
    )
    val (how, ofTable, _) = three(changed.plan)
    val broadcast = JoinHint(None, Some(HintInfo(strategy = Some(BROADCAST))))
    val joined = Join(changed.plan, known, Inner, Some(EqualTo(ofTable, version)), broadcast)
    Project(data ++ Seq(how, Alias(ofDatabase, told(1))(), Alias(time, told(2))()), joined)
  }

  /**
   * As many of each row as were added more often than removed, or the other way round: by version, or net of all of them.
   * Which of two alike rows it was, nobody can tell, and nobody needs to.
   */
  private def counted(rows: LogicalPlan, isNet: Boolean): LogicalPlan = {
    data.find(column => !isCompared(column.dataType)).foreach(column =>
      throw unsupported(
        s"table $table has a column ${column.name} of type ${column.dataType.sql}, whose values cannot be compared, so nothing tells " +
          "a row that changed from one that was copied into another file. Say WITH (deduplicationMode = 'none') to see both, " +
          "or set delta.enableChangeDataFeed for what changes from then on"))
    val (how, version, time) = three(rows)
    val sign = If(In(how, added.map(Literal(_))), Literal(1L), Literal(-1L))
    val more = Alias(Sum(sign).toAggregateExpression(), "more")()
    def last(column: Attribute): NamedExpression =
      if (isNet) Alias(Max(column).toAggregateExpression(), column.name)() else column
    val by = if (isNet) data else data ++ Seq(version, time)
    val counts = Aggregate(by, data ++ Seq(last(version), last(time), more), rows)
    val differ = Filter(Not(EqualTo(more.toAttribute, Literal(0L))), counts)
    val times = ReplicateRows(Seq(Abs(more.toAttribute), Literal(true)))
    val each = Generate(times, Nil, outer = false, None, Seq(column("again", BooleanType)), differ)
    val change: Expression = If(
      GreaterThan(more.toAttribute, Literal(0L)),
      Literal(CDCReader.CDC_TYPE_INSERT),
      Literal(CDCReader.CDC_TYPE_DELETE_STRING))
    val (columns, versionAndTime) = counts.output.dropRight(1).splitAt(data.size)
    Project((columns :+ Alias(change, told.head)()) ++ versionAndTime, each)
  }

  /** Whether two values that are equal are the same: not of a collation that takes `a` for `A`, nor of a VARIANT. */
  private def isCompared(kind: DataType): Boolean = kind match {
    case text: StringType => text.collationId == StringType.collationId
    case MapType(key, value, _) => isCompared(key) && isCompared(value)
    case ArrayType(element, _) => isCompared(element)
    case StructType(fields) => fields.forall(field => isCompared(field.dataType))
    case other => OrderUtils.isOrderable(other)
  }

  /** How a row changed, by which version, and when. */
  private def three(rows: LogicalPlan): (Attribute, Attribute, Attribute) = {
    val columns = rows.output.takeRight(told.size)
    (columns(0), columns(1), columns(2))
  }

  private def column(name: String, kind: DataType = LongType): Attribute = AttributeReference(name, kind)()
}
