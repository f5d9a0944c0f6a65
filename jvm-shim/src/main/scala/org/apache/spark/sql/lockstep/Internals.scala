package org.apache.spark.sql.lockstep

import org.apache.hadoop.conf.Configuration
import org.apache.spark.{SparkContext, SparkThrowable}
import org.apache.spark.internal.config.SECRET_REDACTION_PATTERN
import org.apache.spark.rdd.RDD
import org.apache.spark.scheduler.SparkListenerEvent
import org.apache.spark.scheduler.lockstep.Witness
import org.apache.spark.sql.{SparkSession, classic}
import org.apache.spark.sql.catalyst.analysis.Analyzer
import org.apache.spark.sql.catalyst.expressions.{Alias, Expression}
import org.apache.spark.sql.catalyst.plans.logical.{CompoundBody, LogicalPlan, OneRowRelation, Project}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.util.ArrayData
import org.apache.spark.sql.columnar.CachedBatch
import org.apache.spark.sql.connector.catalog.{CatalogPlugin, CatalogV2Util, Column}
import org.apache.spark.sql.connector.expressions.{FieldReference, IdentityTransform, Transform}
import org.apache.spark.sql.execution.{FileSourceScanExec, QueryExecution, QueryExecutionException}
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanHelper
import org.apache.spark.sql.execution.columnar.InMemoryRelation
import org.apache.spark.sql.execution.datasources.FileIndex
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd
import org.apache.spark.sql.internal.{SQLConf, SessionState}
import org.apache.spark.sql.scripting.SqlScriptingExecution
import org.apache.spark.sql.types.{ArrayType, DataType, StructField, StructType}
import org.apache.spark.unsafe.types.UTF8String
import org.apache.spark.util.Utils

import scala.jdk.CollectionConverters._

/**
 * Something Lockstep refused, as Spark reports errors: a condition, a message and a SQLSTATE. A
 * `QueryExecutionException` because PySpark turns those into Python exceptions that keep all three.
 */
class LockstepException(condition: String, val said: String, state: String)
    extends QueryExecutionException(s"[$condition] $said SQLSTATE: $state", null)
    with SparkThrowable {
  override def getCondition: String = condition
  override def getSqlState: String = state
}

/** What Spark keeps to its own packages and the shim cannot do without. */
object Internals {

  /** Names a session for as long as it lives. */
  def id(session: SparkSession): String = session.asInstanceOf[classic.SparkSession].sessionUUID

  /** The names of a session's settings that end so. They are not copied to be looked through: every statement asks. */
  def settings(session: SparkSession, end: String): Seq[String] = {
    val all = session.sessionState.conf.settings
    all.synchronized(all.keySet.asScala.iterator.filter(_.endsWith(end)).toList)
  }

  /** Has every event of a context shown to `see` by the thread that posts it: see [[Witness]]. */
  def witness(context: SparkContext, see: SparkListenerEvent => Unit): Unit = Witness.install(context, see)

  /** What a job that has just begun computes; asked by the thread that posts its begin. */
  def computed(context: SparkContext, job: Int): Option[RDD[_]] = Witness.computed(context, job)

  /** Ends such a job before any of its tasks starts; asked by the same thread. */
  def end(context: SparkContext, job: Int, reason: String): Unit = Witness.end(context, job, reason)

  /** Which query's execution ended, how that was named if it was, and how it failed if it did. */
  def ended(event: SparkListenerSQLExecutionEnd): (QueryExecution, Option[String], Option[Throwable]) =
    (event.qe, event.executionName, event.executionFailure)

  /**
   * Whether something failed because a job of Spark's was cancelled. Who cancels one means the statement that it is part of:
   * what else would be tried in its place, or next, is not wanted either.
   */
  def isCancelled(error: Throwable): Boolean =
    Iterator.iterate(error)(_.getCause).takeWhile(_ != null).take(MostCauses).exists {
      case known: SparkThrowable => known.getCondition == "SPARK_JOB_CANCELLED"
      case _ => false
    }

  private val MostCauses = 20

  /** A number that no RDD has yet: later ones have greater numbers. */
  def newRddId(context: SparkContext): Int = context.newRddId()

  /** Whether an RDD is the stored content of a cached query. */
  def isCache(rdd: RDD[_]): Boolean = classOf[CachedBatch].isAssignableFrom(rdd.elementClassTag.runtimeClass)

  /**
   * Lets a rule run before a session's relations are looked up, if it does not yet: Spark 4.2 forgets the hint rules of
   * extensions in a session with Hive's catalog (its HiveSessionStateBuilder overrides every kind of rule but these).
   */
  def analyzeFirst(session: SparkSession, rule: Rule[LogicalPlan]): Unit = {
    val analyzer = session.sessionState.analyzer
    if (!analyzer.hintResolutionRules.exists(_.getClass == rule.getClass)) {
      val rules = classOf[Analyzer].getDeclaredField("hintResolutionRules")
      rules.setAccessible(true)
      rules.set(analyzer, analyzer.hintResolutionRules :+ rule)
    }
  }

  def activeContext: Option[SparkContext] = SparkContext.getActive

  def setIfMissing(context: SparkContext, settings: Map[String, String]): Unit =
    settings.foreach { case (key, value) => context.conf.setIfMissing(key, value) }

  /** Has Spark hide the values of settings of these names, too. */
  def hide(context: SparkContext, names: String): Unit = {
    val said = context.conf.getOption(SECRET_REDACTION_PATTERN.key)
    if (!said.exists(_.contains(names))) {
      val _ = context.conf.set(SECRET_REDACTION_PATTERN.key, said.fold(names)(theirs => s"(?:$theirs)|$names"))
    }
  }

  /** What Hadoop is configured to in a session, if this is what it is in the driver. */
  def hadoopConf(session: SparkSession, ofDriver: Configuration): Configuration =
    SessionState.newHadoopConf(ofDriver, session.sessionState.conf)

  def sessionCatalog(session: SparkSession): CatalogPlugin = session.sessionState.catalogManager.v2SessionCatalog

  /** A plan as Spark's analyzer has it; refused as a query would be. */
  def analyzed(session: SparkSession, plan: LogicalPlan): LogicalPlan = {
    val query = session.asInstanceOf[classic.SparkSession].sessionState.executePlan(plan)
    query.assertAnalyzed()
    query.analyzed
  }

  /** What expressions give: texts, numbers, times as microseconds, and sequences of these; null for no value. */
  def evaluated(session: SparkSession, values: Seq[Expression]): Seq[Any] =
    if (values.isEmpty) Nil
    else {
      val named = values.zipWithIndex.map { case (value, at) => Alias(value, s"value$at")() }
      val query = session.asInstanceOf[classic.SparkSession].sessionState.executePlan(Project(named, OneRowRelation()))
      val row = query.executedPlan.executeCollect().head
      query.analyzed.output.zipWithIndex.map { case (column, at) =>
        plain(row.get(at, column.dataType), column.dataType)
      }
    }

  private def plain(value: Any, kind: DataType): Any = (value, kind) match {
    case (text: UTF8String, _) => text.toString
    case (items: ArrayData, ArrayType(element, _)) => items.toSeq[Any](element).map(plain(_, element))
    case (other, _) => other
  }

  /** Runs a script of Spark's to its end. */
  def runScript(session: SparkSession, body: CompoundBody): Unit = {
    val _ = SqlScriptingExecution.executeSqlScript(session.asInstanceOf[classic.SparkSession], body)
  }

  /** Drops what is cached of a table, and of queries that read it. Spark knows a namespace of a table by one text. */
  def uncache(session: SparkSession, name: Seq[String]): Unit =
    session.sharedState.cacheManager.uncacheTableOrView(
      session.asInstanceOf[classic.SparkSession],
      Seq(name.head, name.tail.init.mkString("."), name.last),
      cascade = true)

  def cachesNothing(session: SparkSession): Boolean = session.sharedState.cacheManager.isEmpty

  /** What is cached under this very plan. */
  def cached(session: SparkSession, plan: LogicalPlan): Option[InMemoryRelation] =
    session.sharedState.cacheManager.lookupCachedData(session.asInstanceOf[classic.SparkSession], plan).map(
      _.cachedRepresentation)

  /** Caches anew what is cached of a plan, and of queries that it is part of. */
  def cacheAnew(session: SparkSession, plan: LogicalPlan): Unit =
    session.sharedState.cacheManager.recacheByPlan(session.asInstanceOf[classic.SparkSession], plan)

  /** Where the files are that cached data is made of. */
  def locations(data: InMemoryRelation): Seq[FileIndex] =
    plans.collect(data.cacheBuilder.cachedPlan) { case scan: FileSourceScanExec => scan.relation.location }

  private object plans extends AdaptiveSparkPlanHelper

  /** A text without what `spark.sql.redaction.string.regex` calls a secret, as Spark's own plans show it. */
  def redacted(text: String): String = Utils.redact(SQLConf.get.stringRedactionPattern, text)

  /** The text of a parameter's default; none if it has none. */
  def default(parameter: StructField): Option[String] = parameter.getDefault()

  def columns(schema: StructType): Array[Column] = CatalogV2Util.structTypeToV2Columns(schema)

  def schema(columns: Array[Column]): StructType = CatalogV2Util.v2ColumnsToStructType(columns)

  /** The column by which a table is partitioned; what else a layout may be as it is shown. */
  def partitionColumn(part: Transform): String = part match {
    case IdentityTransform(FieldReference(parts)) => parts.mkString(".")
    case other => other.describe
  }
}
