package lockstep.spark

import java.util.{Collections, WeakHashMap}
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicReference
import java.util.concurrent.locks.ReentrantLock

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.QueryPlanningTracker
import org.apache.spark.sql.catalyst.plans.logical.{Command, LocalRelation, LogicalPlan}
import org.apache.spark.sql.execution.QueryExecution
import org.apache.spark.sql.lockstep.{Internals, LockstepException}
import org.apache.spark.sql.util.QueryExecutionListener

import scala.jdk.CollectionConverters._

/**
 * Which sessions have a transaction open, as far as Spark's side must know: to ask Python nothing about a session that
 * has none, and to notice a write that failed. Python holds the transaction itself.
 */
private[spark] object Transactions {
  private val open = new ConcurrentHashMap[String, Open]()
  private val locks = Collections.synchronizedMap(new WeakHashMap[SparkSession, ReentrantLock]())

  private val Described = "Lockstep transaction "

  /** How long COMMIT waits for Spark to report the statements before it. */
  private[spark] val DrainMillis = 60000L

  def isOpen(session: SparkSession): Boolean = open.containsKey(Internals.id(session))

  def all: Seq[Open] = open.values.asScala.toSeq

  /** The id of a session's open transaction. */
  def current(session: SparkSession): Option[String] = Option(open.get(Internals.id(session))).map(_.id)

  /**
   * One thread of a session at a time begins or ends its transaction, or stages a commit of it. So a statement of another
   * thread is in a COMMIT with all that it read, or refused, and of two that write one table the second sees the first.
   */
  def exclusively[T](session: SparkSession)(body: => T): T = {
    val lock = locks.computeIfAbsent(session, _ => new ReentrantLock())
    lock.lock()
    try body
    finally lock.unlock()
  }

  /** The session whose open transaction this is; a statement may write it from a clone of that session. */
  def holder(transaction: String): Option[SparkSession] =
    open.values.asScala.find(_.id == transaction).map(_.session)

  def opened(session: SparkSession, id: String): Unit = {
    val tx = Open(id, session, Clients.current(session), new FailureListener(session), new Reads.Log)
    session.listenerManager.register(tx.failures)
    open.put(Internals.id(session), tx)
    describe(session)
  }

  def closed(session: SparkSession): Unit =
    Option(open.remove(Internals.id(session))).foreach { tx =>
      session.listenerManager.unregister(tx.failures)
      describe(session)
    }

  /**
   * Has the jobs of this thread say which transaction they are part of, where the user has not said what they are. A
   * description is the thread's, and statements of a session come from any, so each statement looks again.
   */
  def describe(session: SparkSession): Unit = {
    val said = Option(session.sparkContext.getLocalProperty("spark.job.description"))
    val now = current(session).map(Described + _)
    if (said != now && said.forall(_.startsWith(Described))) session.sparkContext.setJobDescription(now.orNull)
  }

  /** Says that a session's transaction is that of a block, whose END ends it and nothing else, or no longer so. */
  def block(session: SparkSession, isOpen: Boolean): Unit = {
    val _ = open.computeIfPresent(Internals.id(session), (_, tx) => tx.copy(isBlock = isOpen))
  }

  def isBlock(session: SparkSession): Boolean = Option(open.get(Internals.id(session))).exists(_.isBlock)

  /** Refuses, of what a plan reads, what is neither the transaction's nor its snapshot. */
  def checkSnapshot(session: SparkSession, scans: Seq[Scan]): Unit =
    Option(open.get(Internals.id(session))).foreach { tx =>
      val asked = scans.filterNot(tx.passed.contains)
      if (asked.nonEmpty) {
        Bridge.tell("snapshot", session, "reads" -> asked.map(_.said))
        tx.passed.addAll(asked.asJava)
      }
    }

  /** What the open transaction reads, to be added to. */
  def reads(session: SparkSession): Option[Reads.Log] = Option(open.get(Internals.id(session))).map(_.reads)

  /** Forgets a failed write, once all of them have been reported. */
  def forgive(session: SparkSession): Unit =
    failure(session).foreach(_ => open.get(Internals.id(session)).failures.first.set(null))

  /**
   * What the first failed write of the open transaction said. Spark reports statements on a bus of its own, so the bus
   * is drained first; a report that does not come in time is an error, never a guess.
   */
  def failure(session: SparkSession): Option[String] =
    Option(open.get(Internals.id(session))).flatMap { tx =>
      try Internals.drainListeners(session, DrainMillis)
      catch {
        case e: java.util.concurrent.TimeoutException =>
          throw new LockstepException(
            "LOCKSTEP_UNAVAILABLE",
            s"Spark did not report on the transaction's statements within $DrainMillis ms (${e.getMessage}); " +
              "nothing was committed, and the transaction is still open: COMMIT again.",
            "58030"
          )
      }
      Option(tx.failures.first.get)
    }
}

/** What is remembered of an open transaction. */
private[spark] case class Open(
    id: String,
    session: SparkSession,
    client: Option[String],
    failures: FailureListener,
    reads: Reads.Log,
    isBlock: Boolean = false) {

  /** What DataFrames from before BEGIN read and Python has let pass. */
  val passed: java.util.Set[Scan] = ConcurrentHashMap.newKeySet[Scan]()
}

/** Remembers the first write that failed while it ran. Parse and analysis errors never get here. */
private[spark] class FailureListener(session: SparkSession) extends QueryExecutionListener {
  val first = new AtomicReference[String]()
  private val owner = Internals.id(session)

  /** Executions are numbered as they are made: those of statements from before BEGIN have smaller numbers. */
  private val since = session.sessionState.executePlan(LocalRelation()).id

  override def onSuccess(name: String, query: QueryExecution, nanos: Long): Unit = ()

  override def onFailure(name: String, query: QueryExecution, cause: Exception): Unit =
    if (isPart(query) && isAnalyzed(query) && query.logical.exists(changesSomething)) {
      val _ = first.compareAndSet(null, Option(cause.getMessage).getOrElse(cause.toString))
    }

  /** A clone of the session has this listener too, but not the transaction. */
  private def isPart(query: QueryExecution): Boolean =
    query.id > since && Internals.id(query.sparkSession) == owner

  /** spark-sql's statements are executions before they are analyzed. A phase is among a query's once it has succeeded. */
  private def isAnalyzed(query: QueryExecution): Boolean =
    query.tracker.phases.contains(QueryPlanningTracker.ANALYSIS)

  private def changesSomething(plan: LogicalPlan): Boolean = plan match {
    case command: Command => !TransactionGuard.changesNothing(command)
    case _ => false
  }
}
