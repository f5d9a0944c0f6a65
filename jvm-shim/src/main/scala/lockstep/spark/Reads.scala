package lockstep.spark

import scala.collection.mutable

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.expressions.{
  Attribute,
  AttributeReference,
  Expression,
  GetStructField,
  PredicateHelper,
  SubqueryExpression
}
import org.apache.spark.sql.catalyst.planning.PhysicalOperation
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.util.CharVarcharUtils
import org.apache.spark.sql.delta.{DeltaColumnMapping, NoMapping}
import org.apache.spark.sql.delta.commands.{DeleteCommand, MergeIntoCommand, UpdateCommand}
import org.apache.spark.sql.delta.files.{TahoeBatchFileIndex, TahoeFileIndex, TahoeLogFileIndex}
import org.apache.spark.sql.execution.SQLExecution
import org.apache.spark.sql.execution.datasources.{HadoopFsRelation, LogicalRelation}
import org.apache.spark.sql.internal.SQLConf

/** A scan: of which table, at which table version where it is fixed, of which rows (none: of any). */
private[spark] case class Scan(table: String, version: Option[Long], where: Option[String]) {
  def said: Map[String, Any] = Map("table" -> table, "version" -> version, "where" -> where)
}

/**
 * What is read, as the optimizer sees it: after it has pushed filters down to the relations, and before Delta answers a
 * query from statistics alone. Python makes something of it at `COMMIT`.
 */
private[spark] object Reads extends PredicateHelper {

  /** The synthetic `CatalogTable` of a table whose reads count names the table's id under this key. */
  val Key = "lockstep.table"

  /** An optimizer run asks many times: of each relation the last answer counts, for filters only move down. */
  final class Log {
    private val scans = mutable.LinkedHashMap.empty[Any, Scan]

    def add(found: Iterable[(Any, Scan)]): Unit = synchronized {
      found.foreach { case (relation, scan) => scans.update(relation, scan) }
      if (scans.size > MaxScans) {
        val whole = scans.values.map(scan => scan.copy(where = None)).toSet
        scans.clear()
        whole.foreach(scan => scans.update(scan, scan))
      }
    }

    def said: Seq[Map[String, Any]] = synchronized(scans.values.toSet.toSeq.map((scan: Scan) => scan.said))
  }

  private val MaxScans = 10000
  private val MaxExecutions = 10000

  /** By the id of the outermost execution: what a statement on its own has read when it commits. */
  private val executions = mutable.LinkedHashMap.empty[String, Log]

  def ofExecution(session: SparkSession): Seq[Map[String, Any]] =
    rootExecution(session).flatMap(id => executions.synchronized(executions.get(id))).fold(
      Seq.empty[Map[String, Any]])(_.said)

  private def rootExecution(session: SparkSession): Option[String] =
    Option(session.sparkContext.getLocalProperty(SQLExecution.EXECUTION_ROOT_ID_KEY))

  private def log(session: SparkSession): Option[Log] =
    Transactions.reads(session).orElse(rootExecution(session).map(id =>
      executions.synchronized {
        if (executions.size > MaxExecutions) executions.remove(executions.head._1)
        executions.getOrElseUpdate(id, new Log)
      }))

  def record(session: SparkSession, plan: LogicalPlan): Unit = {
    val found = of(plan)
    if (found.nonEmpty) log(session).foreach(_.add(found))
  }

  private def of(plan: LogicalPlan): Seq[(Any, Scan)] = plan match {
    case DeleteCommand(_, _, target, condition) => changed(target, condition)
    case update: UpdateCommand => changed(update.target, update.condition)
    case merge: MergeIntoCommand =>
      changed(merge.target, Some(merge.condition).filter(_ => merge.notMatchedBySourceClauses.isEmpty))
    case PhysicalOperation(_, filters, relation: LogicalRelation) => scan(relation, filters).toSeq
    case other => other.children.flatMap(of)
  }

  /** The relations of a plan that are tables of a Lockstep catalog, with the files that they read. */
  def relations(plan: LogicalPlan): Seq[(LogicalRelation, TahoeLogFileIndex)] =
    plan.collectWithSubqueries { case relation: LogicalRelation =>
      relation.relation match {
        case HadoopFsRelation(index: TahoeLogFileIndex, _, _, _, _, _)
            if index.path.toUri.getScheme == Overlay.Scheme =>
          Some(relation -> index)
        case _ => None
      }
    }.flatten

  /** What a plan reads that is not seen through a transaction: of which table, and which version if it is fixed. */
  def ofHead(plan: LogicalPlan): Seq[Scan] = relations(plan).flatMap { case (relation, index) =>
    val isHead = Overlay.parse(index.path.toUri.getAuthority).transaction.isEmpty
    val version = Option.when(index.isTimeTravelQuery)(index.version)
    relation.catalogTable.flatMap(_.ignoredProperties.get(Key)).filter(_ => isHead).map(Scan(_, version, None))
  }

  /** The rows that a command looks for; that it reads and copies the rest of their files changes nothing. */
  private def changed(target: LogicalPlan, condition: Option[Expression]): Seq[(Any, Scan)] =
    target.collectLeaves().collect { case relation: LogicalRelation => relation }.flatMap(scan(_, condition.toSeq))

  private def scan(relation: LogicalRelation, filters: Seq[Expression]): Option[(Any, Scan)] =
    relation.catalogTable.flatMap(_.ignoredProperties.get(Key)).flatMap { table =>
      val key = (table, relation.output.headOption.map(_.exprId))
      relation.relation match {
        case HadoopFsRelation(_: TahoeBatchFileIndex, _, _, _, _, _) => None // a command's own, see `changed`
        case HadoopFsRelation(index: TahoeFileIndex, _, _, _, _, _) =>
          Some(key -> Scan(table, Some(index.version), rendered(filters, relation, index)))
        case _ => Some(key -> Scan(table, None, None))
      }
    }

  /** The filters on the relation's own columns, as SQL on their physical names; dropping one only widens the rest. */
  private def rendered(
      filters: Seq[Expression],
      relation: LogicalRelation,
      index: TahoeFileIndex): Option[String] = {
    val isMapped = index.metadata.columnMappingMode != NoMapping
    val names = index.metadata.schema.map(f => f.name -> DeltaColumnMapping.getPhysicalName(f)).toMap
    val texts = filters.flatMap(splitConjunctivePredicates).filter { filter =>
      filter.deterministic && filter.references.subsetOf(relation.outputSet) &&
      filter.references.forall(isPlain) && !filter.exists(_.isInstanceOf[SubqueryExpression]) &&
      !(isMapped && filter.exists(_.isInstanceOf[GetStructField]))
    }.map { filter =>
      filter.transform { case a: AttributeReference => a.withQualifier(Nil).withName(names.getOrElse(a.name, a.name)) }
    }
    Option.when(texts.nonEmpty)(SQLConf.withExistingConf(utc)(texts.map(t => s"(${t.sql})").mkString(" AND ")))
  }

  /** Not one whose name reads as a literal, nor a CHAR, whose values are padded as they are read. */
  private def isPlain(column: Attribute): Boolean =
    !Set("true", "false", "null")(column.name.toLowerCase(java.util.Locale.ROOT)) &&
      !CharVarcharUtils.getRawTypeString(column.metadata).exists(_.toLowerCase(java.util.Locale.ROOT).contains("char("))

  /** Literals of timestamps are written in the session's time zone. */
  private val utc = {
    val conf = new SQLConf
    conf.setConf(SQLConf.SESSION_LOCAL_TIMEZONE, "UTC")
    conf
  }
}

/** Looks at every plan while it is optimized, and changes nothing. */
private[spark] case class ReadRecorder(session: SparkSession) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = {
    Reads.record(session, plan)
    plan
  }
}
