package lockstep.spark.execution

import lockstep.spark.LockstepCatalog
import lockstep.spark.reads.Reads
import lockstep.spark.scans.{NoTables, Scans}
import lockstep.spark.transactions.{EndedTransactions, Lineage, Transactions}
import org.apache.spark.SparkContext
import org.apache.spark.internal.Logging
import org.apache.spark.scheduler.{SparkListenerEvent, SparkListenerJobEnd, SparkListenerJobStart}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.QueryPlanningTracker
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.execution.{QueryExecution, SQLExecution}
import org.apache.spark.sql.execution.ui.{SparkListenerSQLExecutionEnd, SparkListenerSQLExecutionStart}
import org.apache.spark.sql.lockstep.Internals

import scala.util.control.NonFatal

/**
 * Sees each execution begin, before its first row, and end, in the thread that executes. That is the one place which a
 * query passes each time: one that was analyzed, optimized or executed before is not analyzed or optimized again.
 */
private[spark] object Executions extends Logging {

  def watch(context: SparkContext): Unit = Internals.witness(context, see(context))

  /** A phase is among a query's once it has succeeded. */
  private def isPast(query: QueryExecution, phase: String): Boolean = query.tracker.phases.contains(phase)

  private def see(context: SparkContext)(event: SparkListenerEvent): Unit = event match {
    case start: SparkListenerSQLExecutionStart =>
      begins(start.executionId)
      unlessItFails(
        Option(SQLExecution.getQueryExecution(start.executionId)).foreach(Timeouts.begins(start.executionId, _)))
    case end: SparkListenerSQLExecutionEnd =>
      unlessItFails(ends(end))
      Timeouts.ends(end)
    case job: SparkListenerJobStart if job.properties != null => unlessItFails(computes(context, job))
    case job: SparkListenerJobEnd => unlessItFails(Timeouts.jobEnds(job.jobId))
    case other => unlessItFails(Clients.told(other))
  }

  /** What this throws, the execution fails with. Spark has planned the query by now, if that can be done. */
  private def begins(execution: Long): Unit =
    Option(SQLExecution.getQueryExecution(execution)).filter(isPast(_, QueryPlanningTracker.OPTIMIZATION)).foreach {
      query =>
        val session = query.sparkSession
        val plan = query.withCachedData
        // That changes were asked for is a mark of a plan, and need not have left a table in it.
        if (NoTables.in(plan)) Transactions.checkChanges(session, query.analyzed) else check(session, query, plan)
        Reads.executing(session, query, plan)
    }

  /** Refuses a plan of what must not be read now. */
  private def check(session: SparkSession, query: QueryExecution, plan: LogicalPlan): Unit = {
    Transactions.checkOwn(session, plan)
    EndedTransactions.checkSystemTables(plan)
    // As it was analyzed: a cache may be there in the place of all of it.
    val views = Scans.views(query.analyzed)
    if (Transactions.isOpen(session)) {
      EndedTransactions.check(plan)
      Transactions.checkChanges(session, query.analyzed)
      Reads.checkSnapshot(session, plan, Scans.views(plan) ++ views, LockstepCatalog.in(session))
      Transactions.checkLineage(session, plan)
    } else EndedTransactions.checkViews(views)
  }

  private def ends(end: SparkListenerSQLExecutionEnd): Unit = {
    Reads.forget(end.executionId)
    val (query, name, failure) = Internals.ended(end)
    if (query != null && failure.isEmpty) Cursors.executed(query.sparkSession, query.analyzed)
    // As for Spark's own listeners: what has no name is part of something else.
    for (cause <- failure if name.isDefined && query != null) Transactions.failed(query, cause)
  }

  /** A job outside of any execution, of an RDD: ended before its first task if it is older than its transaction. */
  private def computes(context: SparkContext, job: SparkListenerJobStart): Unit = {
    val isOfExecution = job.properties.getProperty(SQLExecution.EXECUTION_ID_KEY) != null
    Timeouts.jobBegins(context, job.jobId, job.properties, isOfExecution)
    if (!isOfExecution && !Transactions.isOfStream(job.properties))
      for {
        tx <- Transactions.ofJob(job.properties)
        rdd <- Internals.computed(context, job.jobId)
        refusal <- Lineage.refusal(rdd, tx)
      } Internals.end(context, job.jobId, refusal.getMessage)
  }

  /** An event that tells of what has happened must reach those that come after. */
  private def unlessItFails(work: => Unit): Unit =
    try work
    catch { case NonFatal(e) => logError("An event of Spark's was not understood", e) }
}
