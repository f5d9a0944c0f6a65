package lockstep.spark

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicReference

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.plans.logical.{Command, LogicalPlan}
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

  /** How long COMMIT waits for Spark to report the statements before it. */
  private[spark] val DrainMillis = 60000L

  def isOpen(session: SparkSession): Boolean = open.containsKey(Internals.id(session))

  /** Each session that has a transaction open, and the transaction's id. */
  def all: Seq[(String, String)] = open.asScala.map { case (session, tx) => session -> tx.id }.toSeq

  def opened(session: SparkSession, id: String): Unit = {
    val listener = new FailureListener
    session.listenerManager.register(listener)
    val _ = open.put(Internals.id(session), Open(id, session, Clients.current(session), listener, new Reads.Log))
  }

  /** The sessions whose transaction a client has begun. */
  def of(client: String): Seq[SparkSession] = open.values.asScala.filter(_.client.contains(client)).map(_.session).toSeq

  def closed(session: SparkSession): Unit =
    Option(open.remove(Internals.id(session))).foreach(tx => session.listenerManager.unregister(tx.failures))

  /** Says that a session's transaction is that of a block, whose END ends it and nothing else, or no longer so. */
  def block(session: SparkSession, isOpen: Boolean): Unit = {
    val _ = open.computeIfPresent(Internals.id(session), (_, tx) => tx.copy(isBlock = isOpen))
  }

  def isBlock(session: SparkSession): Boolean = Option(open.get(Internals.id(session))).exists(_.isBlock)

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
    isBlock: Boolean = false)

/** Remembers the first write that failed while it ran. Parse and analysis errors never get here. */
private[spark] class FailureListener extends QueryExecutionListener {
  val first = new AtomicReference[String]()

  override def onSuccess(name: String, query: QueryExecution, nanos: Long): Unit = ()

  override def onFailure(name: String, query: QueryExecution, cause: Exception): Unit =
    if (query.logical.exists(changesSomething)) {
      val _ = first.compareAndSet(null, Option(cause.getMessage).getOrElse(cause.toString))
    }

  private def changesSomething(plan: LogicalPlan): Boolean = plan match {
    case command: Command => !TransactionGuard.changesNothing(command)
    case _ => false
  }
}
