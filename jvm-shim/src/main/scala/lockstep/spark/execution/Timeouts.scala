package lockstep.spark.execution

import java.util.Properties
import java.util.concurrent.{ConcurrentHashMap, Executors, ScheduledFuture, ScheduledThreadPoolExecutor, TimeUnit}

import lockstep.spark.Daemons
import lockstep.spark.transactions.{OpenTransaction, Transactions}
import org.apache.spark.SparkContext
import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.execution.QueryExecution
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd
import org.apache.spark.sql.lockstep.{Internals, LockstepException}

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

/**
 * Statements of transactions that take too long, and transactions in which none is executed for too long. How long that is
 * Python says at BEGIN; of a transaction without such limits nothing is remembered.
 *
 * A statement is cancelled by its jobs: what Delta does after the last of them is not interrupted, so one that is that far
 * may still finish. To its transaction a cancelled one is a statement that failed. An idle transaction is rolled back.
 */
private[spark] object Timeouts extends Logging {

  /** The local property of a thread that says which of these its jobs are part of. */
  private val Current = "lockstep.timed"

  /** A statement that is executed, or a job of an RDD that is none's. */
  final private class Running(val id: String, val tx: OpenTransaction, val context: SparkContext) {
    val jobs: java.util.Set[Int] = ConcurrentHashMap.newKeySet[Int]()
    @volatile var isLate = false
    @volatile var timer = Option.empty[ScheduledFuture[_]]
  }

  /** By their ids, as long as they run. */
  private val all = new ConcurrentHashMap[String, Running]()

  private lazy val timer = {
    val one = new ScheduledThreadPoolExecutor(1, Daemons.named("lockstep-timeouts"))
    one.setRemoveOnCancelPolicy(true)
    one
  }

  /** To roll one back takes as long as its store does, and the timeouts of others do not wait for that. */
  private lazy val workers = Executors.newCachedThreadPool(Daemons.named("lockstep-timeouts"))

  private def after(millis: Long)(work: => Unit): ScheduledFuture[_] =
    timer.schedule(logged(work), millis, TimeUnit.MILLISECONDS)

  private def logged(work: => Unit): Runnable = () =>
    try work
    catch { case NonFatal(e) => logWarning("A timeout was not seen to", e) }

  /** An execution begins in this thread: a statement, unless it is part of one, or of a job. */
  def begins(execution: Long, query: QueryExecution): Unit = {
    val context = query.sparkSession.sparkContext
    def isPart = Option(context.getLocalProperty(Current)).exists(all.containsKey)
    for (tx <- Transactions.of(query.sparkSession) if tx.limits.nonEmpty && !isPart) {
      begin(new Running(execution.toString, tx, context), isLimited = !endsIt(query.logical))
      context.setLocalProperty(Current, execution.toString)
    }
  }

  /** Whether it is the end of a transaction, which nobody may cut short, or decides what becomes of it. */
  private def endsIt(plan: LogicalPlan): Boolean = plan.exists(_.isInstanceOf[TransactionCommand])

  private def begin(running: Running, isLimited: Boolean): Unit = {
    val limits = running.tx.limits
    running.tx.busy(isBusy = true, running.id)
    all.put(running.id, running)
    if (isLimited && limits.statement > 0) running.timer = Some(after(limits.statement)(cancel(running)))
  }

  /** An execution has ended in this thread. Throws what its user is told instead of that a job was cancelled. */
  def ends(end: SparkListenerSQLExecutionEnd): Unit = {
    val (query, _, failure) = Internals.ended(end)
    val ended = Option(all.get(end.executionId.toString))
    ended.foreach { running =>
      if (running.context.getLocalProperty(Current) == running.id) running.context.setLocalProperty(Current, null)
      over(running)
    }
    // BEGIN itself began outside.
    if (query != null) Transactions.of(query.sparkSession).filterNot(tx => ended.exists(_.tx eq tx)).foreach(await)
    for (running <- ended if running.isLate && failure.nonEmpty) throw new LockstepException(
      "LOCKSTEP_CANCELLED",
      s"${why(running)} Nothing of it is in any table. If it wrote, COMMIT rolls back, unless ROLLBACK TO goes back to a " +
        "savepoint before it.",
      "57014"
    )
  }

  private def why(running: Running): String =
    s"a statement of transaction ${running.tx.id} ran for longer than lockstep.statement_timeout (" +
      s"${running.tx.limits.statement} ms), and was cancelled."

  private def over(running: Running): Unit = {
    all.remove(running.id)
    running.timer.foreach(_.cancel(false))
    running.tx.busy(isBusy = false, running.id)
    await(running.tx)
  }

  /** A job has begun; this is Spark's thread that submits its tasks next. */
  def jobBegins(context: SparkContext, job: Int, properties: Properties, isOfExecution: Boolean): Unit = {
    val statement = Option(properties.getProperty(Current)).flatMap(id => Option(all.get(id)))
    statement.foreach { running =>
      running.jobs.add(job)
      if (running.isLate) Internals.end(context, job, why(running))
    }
    if (statement.isEmpty && !isOfExecution)
      Transactions.ofJob(properties).filter(_.limits.nonEmpty).foreach { tx =>
        val running = new Running(ofJob(job), tx, context)
        running.jobs.add(job)
        begin(running, isLimited = true)
      }
  }

  def jobEnds(job: Int): Unit = if (!all.isEmpty) {
    all.values.asScala.foreach(_.jobs.remove(job))
    Option(all.get(ofJob(job))).foreach(over)
  }

  private def ofJob(job: Int) = s"job $job"

  private def cancel(running: Running): Unit = {
    logWarning(why(running))
    running.isLate = true
    running.jobs.asScala.foreach(running.context.cancelJob(_, why(running)))
  }

  /** Nothing is executed in it: from now on it is idle. */
  private def await(tx: OpenTransaction): Unit =
    tx.await(() => after(tx.limits.idle)(workers.execute(logged(idle(tx)))))

  private def idle(tx: OpenTransaction): Unit =
    TransactionCommand.lapse(
      tx,
      "idle",
      () => {
        val isIdle = tx.isIdle
        if (isIdle)
          logWarning(s"Transaction ${tx.id} was idle for longer than ${tx.limits.idle} ms, and is rolled back")
        isIdle
      }
    )
}
