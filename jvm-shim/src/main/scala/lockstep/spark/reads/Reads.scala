package lockstep.spark.reads

import java.util.WeakHashMap
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import lockstep.spark.Bridge
import lockstep.spark.overlay.Overlay
import lockstep.spark.scans.{ByPath, NoTables, ReadLog, Scan, Scans}
import lockstep.spark.statements.StatementScope
import lockstep.spark.transactions.{OpenTransaction, Transactions}
import org.apache.hadoop.fs.Path
import org.apache.spark.SparkContext
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.QueryPlanningTracker
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, Subquery}
import org.apache.spark.sql.execution.{QueryExecution, SQLExecution}

/**
 * What was read: by each query that Spark optimized, and together by the transaction or the statement that executed it.
 *
 * Nothing that Spark executes may return rows of ours without a read that is written down. `ReadRecorder` sees each
 * optimizer run of a query; `Executions` sees each execution, and what it finds of a query that no optimizer run told of
 * counts as a read of whole tables. Reads of several queries are joined: none takes the place of another's.
 *
 * Which rows a plan reads is decided in `scans/Scans.scala`; here, whom that is written down for.
 */
private[spark] object Reads {

  /** A query keeps one tracker all its life; what it reads is the same whenever it is executed. */
  private val runs = new WeakHashMap[QueryPlanningTracker, ReadLog.Run]

  /**
   * A statement on its own, or a batch of a stream, while it is executed.
   *
   * @param id    that of its outermost execution
   * @param batch the batch that it is a statement of, if it is executed by a function that is called for each batch
   */
  final private class Executed(
      val id: String,
      val context: SparkContext,
      val batch: Option[Executed],
      val isBatch: Boolean) {
    val log = new ReadLog
    val paths: java.util.Set[ByPath] = ConcurrentHashMap.newKeySet[ByPath]()
    val views: java.util.Set[JsonNode] = ConcurrentHashMap.newKeySet[JsonNode]()
  }

  /** By their ids, as long as they run: what a statement on its own has read is judged when it commits. */
  private val executions = new ConcurrentHashMap[String, Executed]()

  /**
   * The local property of a thread that says which of these its executions are part of. Threads made meanwhile have it too,
   * and may live longer; then it says nothing any more, while Spark's own id of a root would go on to.
   */
  private val Current = "lockstep.statement"

  private def current(session: SparkSession): Option[Executed] =
    Option(session.sparkContext.getLocalProperty(Current)).flatMap(id => Option(executions.get(id)))

  def ofExecution(session: SparkSession): Seq[Map[String, Any]] =
    current(session).fold(Seq.empty[Map[String, Any]])(_.log.scans)

  /** Whether a statement on its own has read in the folder of a file, be it the table as it had been. */
  def hasRead(session: SparkSession, file: Path): Boolean = current(session).exists(_.log.knows(file.toUri.getPath))

  /** What a statement on its own read by path. The source of a stream is read as a stream is, version by version. */
  def pathsOfExecution(session: SparkSession): Seq[String] =
    current(session).filterNot(_.isBatch).fold(Seq.empty[String])(
      _.paths.asScala.toSeq.flatMap(_.places(session)).distinct)

  /** Which definitions of views a statement on its own used. */
  def viewsOfExecution(session: SparkSession): Seq[JsonNode] =
    current(session).fold(Seq.empty[JsonNode])(_.views.asScala.toSeq)

  /**
   * An execution begins in this thread. Unless it is part of another it is a statement. In a batch of a stream each is one,
   * for a function that is called for each batch may execute many; what a sink executes is read by the batch as well, which
   * commits it.
   */
  private def begin(session: SparkSession): Unit = {
    val (context, outer) = (session.sparkContext, current(session))
    if (outer.forall(_.isBatch)) {
      val id = context.getLocalProperty(SQLExecution.EXECUTION_ID_KEY)
      val isBatch = outer.isEmpty && Transactions.isInStream(session)
      executions.put(id, new Executed(id, context, outer, isBatch))
      context.setLocalProperty(Current, id)
    }
  }

  /** Forgets an execution that has ended in this thread, if it is an outermost one. */
  def forget(execution: Long): Unit =
    Option(executions.remove(execution.toString)).foreach { ended =>
      if (ended.context.getLocalProperty(Current) == ended.id)
        ended.context.setLocalProperty(Current, ended.batch.map(_.id).orNull)
    }

  /**
   * Refuses a plan that reads what is neither the transaction's nor its snapshot: rows of it must not be returned.
   * @param used
   *   the definitions of views and functions that it uses
   * @param catalogs
   *   the session's, with their settings
   */
  def checkSnapshot(
      session: SparkSession,
      plan: LogicalPlan,
      used: => Set[JsonNode],
      catalogs: => Map[String, Any]): Unit =
    Transactions.of(session).foreach { tx =>
      val unchecked = Scans.ofHead(plan).filterNot(tx.passed.contains)
      val views = used.filterNot(tx.passedViews.contains)
      if (unchecked.nonEmpty || views.nonEmpty) {
        Bridge.tell(
          "snapshot",
          session,
          "reads" -> unchecked.map(_.fields),
          "views" -> views.toSeq,
          "catalogs" -> catalogs)
        tx.passed.addAll(unchecked.asJava)
        tx.passedViews.addAll(views.filterNot(Scans.isOwn).asJava)
      }
      checkPlaces(session, tx, ByPath.of(plan).withoutPartitions)
    }

  private def checkPlaces(session: SparkSession, tx: OpenTransaction, places: ByPath): Unit = {
    val paths = places.places(session).filterNot(tx.passedPaths.contains)
    if (paths.nonEmpty) {
      Bridge.tell("by_path", session, "paths" -> paths.toSeq)
      val _ = tx.passedPaths.addAll(paths.asJava)
    }
  }

  /**
   * Notes what Python told a transaction of a table: of what is published, the snapshot's version. It need not be asked
   * whether that may be read.
   */
  def told(tx: OpenTransaction, answer: JsonNode): Unit =
    if (answer.has("table") && answer.has("version") && !Overlay.isOfTransaction(new Path(answer.get("uri").asText))) {
      val _ = tx.passed.add(Scan(answer.get("table").asText, Some(answer.get("version").asLong), None, isHead = true))
    }

  /** The same of a view's definition, by its mark; but of the transaction's own, which may go back to a savepoint. */
  def toldView(tx: OpenTransaction, mark: String): Unit = {
    val _ = tx.passedViews.addAll(Set(Scans.viewed(mark)).filterNot(Scans.isOwn).asJava)
  }

  /** Who is told of what is read: the transaction, or the statement and the batch that it is part of. */
  private def logs(session: SparkSession): Seq[ReadLog] =
    Transactions.reads(session).map(Seq(_)).getOrElse {
      current(session).toSeq.flatMap(executed => executed +: executed.batch.toSeq).map(_.log)
    }

  /**
   * The optimizer has come this far with a plan. Its subqueries are optimized by runs inside its own, before it; what they
   * read is in the plan, too. Where its execution has not begun yet, `executing` tells of it.
   */
  def optimizing(session: SparkSession, plan: LogicalPlan, catalogs: => Map[String, Any]): Unit = plan match {
    case _: Subquery => ()
    case _ if NoTables.in(plan) =>
      val run = runOf(QueryPlanningTracker.get)
      run.scans = Set.empty
      run.paths = ByPath.Nothing
    case _ =>
      val scans = (Scans.of(plan) ++ ofTravel(session, plan)).toSet
      val places = ByPath.of(plan)
      val run = runOf(QueryPlanningTracker.get)
      run.scans = scans
      run.paths = places.withoutPartitions // of these it has still to choose
      if (scans.nonEmpty || !places.isEmpty || Scans.folders(plan).nonEmpty) {
        checkSnapshot(session, plan, Scans.views(plan), catalogs)
        val told = logs(session)
        told.foreach(_.add(run, plan))
        if (told.isEmpty) StatementScope.current.foreach(note(_, scans))
      }
  }

  /**
   * A query is about to be planned, or to be executed, and its optimizer has chosen which partitions it reads. The metastore
   * is asked for them only now: where it has many, to list them takes longer than to read some.
   */
  def planning(session: SparkSession, optimized: LogicalPlan): Unit = if (!NoTables.in(optimized)) {
    val places = ByPath.of(optimized)
    if (!places.isEmpty) {
      Transactions.of(session).foreach(checkPlaces(session, _, places))
      current(session).foreach(_.paths.add(places))
    }
  }

  /** A transaction has read it when the statement was analyzed. */
  private def ofTravel(session: SparkSession, plan: LogicalPlan): Seq[Scan] =
    if (Transactions.isOpen(session)) Nil else Scans.askedFor(plan)

  /** What statements on their own have read while they are analyzed. */
  private val analyses = new WeakHashMap[StatementScope, Set[Scan]]

  private def note(statement: StatementScope, scans: Set[Scan]): Unit = analyses.synchronized {
    val _ = analyses.merge(statement, scans, _ ++ _)
  }

  /** What the statement under analysis has read by now, for a table that it loads to tell. */
  def whileAnalyzing: Option[(String, String)] = analyses.synchronized {
    StatementScope.current.flatMap(statement => Option(analyses.get(statement))).flatMap(Scans.asking)
  }

  private def runOf(tracker: Option[QueryPlanningTracker]): ReadLog.Run = runs.synchronized {
    tracker.fold(new ReadLog.Run(null))(runs.computeIfAbsent(_, new ReadLog.Run(_)))
  }

  /** A query, whose plan before it was optimized this is, is about to be executed, perhaps not for the first time. */
  def executing(session: SparkSession, query: QueryExecution, plan: LogicalPlan): Unit = {
    begin(session)
    val known = runs.synchronized(Option(runs.get(query.tracker)))
    // An optimizer's rule of somebody else's may have put a table where there was none.
    if (known.exists(_.scans.nonEmpty) || !NoTables.in(plan)) {
      val run = known.getOrElse {
        val unseen = new ReadLog.Run(query.tracker)
        unseen.scans = (Scans.whole(plan, query.executedPlan) ++ ofTravel(session, plan)).toSet
        unseen
      }
      if (run.scans.nonEmpty || Scans.folders(plan).nonEmpty) logs(session).foreach(_.add(run, plan))
      current(session).foreach { executed =>
        executed.views.addAll(Scans.views(plan).asJava)
      }
    }
    for (run <- known if !run.paths.isEmpty; executed <- current(session)) executed.paths.add(run.paths)
    planning(session, query.optimizedPlan) // which may have been before the transaction began
  }
}
