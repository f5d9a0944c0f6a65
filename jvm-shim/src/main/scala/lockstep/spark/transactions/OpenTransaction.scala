package lockstep.spark.transactions

import java.net.URI
import java.util.concurrent.{ConcurrentHashMap, Future}
import java.util.concurrent.atomic.{AtomicInteger, AtomicLong, AtomicReference}

import com.fasterxml.jackson.databind.JsonNode
import lockstep.spark.scans.{ReadLog, Scan}
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.QueryPlanningTracker
import org.apache.spark.sql.catalyst.plans.logical.{Command, LocalRelation, LogicalPlan}
import org.apache.spark.sql.execution.QueryExecution
import org.apache.spark.sql.lockstep.Internals

import scala.jdk.CollectionConverters._

/**
 * What is remembered of an open transaction.
 *
 * @param owner       what it is kept under: see `Transactions.owner`
 * @param session     the one that began it
 * @param root        where the lake of its catalog lies
 * @param begun       its catalog, with its settings, and the database version that it began at: what another host must know
 * @param keptSeconds of one that sessions share: how long it waits for another client when the last one has gone
 * @param limits      how long it may be idle, and its statements may run
 */
private[spark] class OpenTransaction(
    val id: String,
    val owner: String,
    val session: SparkSession,
    val root: URI,
    val begun: Map[String, Any],
    val keptSeconds: Option[Long],
    val limits: OpenTransaction.Limits) {

  /** Whether it is that of a block, whose END ends it and nothing else. */
  @volatile var isBlock = false

  /** Whether Python was sent its COMMIT, whatever became of that. */
  @volatile var isSent = false

  val reads = new ReadLog

  /** What DataFrames from before BEGIN read and Python has let pass. */
  val passed: java.util.Set[Scan] = ConcurrentHashMap.newKeySet[Scan]()

  /** Paths that queries read and Python has let pass: no table's of the lake. */
  val passedPaths: java.util.Set[String] = ConcurrentHashMap.newKeySet[String]()

  /** The same of definitions of views. */
  val passedViews: java.util.Set[JsonNode] = ConcurrentHashMap.newKeySet[JsonNode]()

  /** How often it went back to a savepoint. */
  val returns = new AtomicInteger()

  /** How often something was asked that may change what names mean to it, and how often that was answered. */
  val changes = new AtomicLong()

  /** The loadings of tables that Python counts ahead, and that were not, by their numbers. */
  private val expected: java.util.Set[Long] = ConcurrentHashMap.newKeySet[Long]()

  /** Says whether a loading may be counted ahead: of these there is room for so many. */
  def expect(touch: Long): Boolean = expected.size < OpenTransaction.MaxExpected && expected.add(touch)

  /** Notes such a loading, and says whether it counts: not if Python has been told that there was none. */
  def use(touch: Long): Boolean = expected.remove(touch)

  /** The loadings that there were none of, and that nobody may use any more: COMMIT says so. */
  def unused(): Seq[Long] = expected.asScala.toSeq.filter(use)

  /** What the first write that failed while it ran said. Parse and analysis errors never get here. */
  val failure = new AtomicReference[String]()

  /** The tables that it used whose manifests for other readers are kept up to date, as published. */
  val manifested: java.util.Set[Path] = ConcurrentHashMap.newKeySet[Path]()

  /** The clients of a server that took part, and have not gone. */
  val clients: java.util.Set[String] = ConcurrentHashMap.newKeySet[String]()

  /** How often it has been left by the last of them. */
  val desertions = new AtomicInteger()

  /** The sessions that took part, by their ids. A server's clients may be many, and are not kept for having gone. */
  private val members: java.util.Set[String] = ConcurrentHashMap.newKeySet[String]()

  /** Executions are numbered as they are made: those of statements from before BEGIN have smaller numbers. */
  private val since = session.sessionState.executePlan(LocalRelation()).id

  def hasJoined(session: String): Boolean = members.contains(session)

  def join(member: SparkSession): Unit = {
    val _ = members.add(Internals.id(member))
  }

  /** The RDDs among whose rows nothing was found that is older than it. */
  val computable = new Lineage.Known

  /** RDDs are numbered as they are made, too. */
  val firstRdd: Int = Internals.newRddId(session.sparkContext)

  private val busyWith = new java.util.HashSet[String]()
  private var idleTimer = Option.empty[Future[_]]

  /** Notes that something of it begins to be executed, or has ended. */
  def busy(isBusy: Boolean, id: String): Unit = synchronized {
    idleTimer.foreach(_.cancel(false))
    idleTimer = None
    val _ = if (isBusy) busyWith.add(id) else busyWith.remove(id)
  }

  /** Has a timer started anew if nothing of it is executed, and that may not go on for ever. */
  def await(start: () => Future[_]): Unit = synchronized {
    if (isIdle && limits.idle > 0) {
      idleTimer.foreach(_.cancel(false))
      idleTimer = Some(start())
    }
  }

  /** Whether nothing of it is executed. A block is a statement that its client waits for. */
  def isIdle: Boolean = synchronized(busyWith.isEmpty && !isBlock)

  def failed(query: QueryExecution, cause: Throwable): Unit =
    if (isPart(query) && isAnalyzed(query) && query.logical.exists(changesSomething(query.sparkSession, _))) {
      val _ = failure.compareAndSet(null, Option(cause.getMessage).getOrElse(cause.toString))
    }

  /** A clone of a session has its listeners too, but not its transaction. */
  private def isPart(query: QueryExecution): Boolean =
    query.id > since && hasJoined(Internals.id(query.sparkSession))

  /** spark-sql's statements are executions before they are analyzed. A phase is among a query's once it has succeeded. */
  private def isAnalyzed(query: QueryExecution): Boolean =
    query.tracker.phases.contains(QueryPlanningTracker.ANALYSIS)

  private def changesSomething(session: SparkSession, plan: LogicalPlan): Boolean = plan match {
    case command: Command => !Commands.changesNothing(session, command)
    case _ => false
  }
}

private[spark] object OpenTransaction {
  private val MaxExpected = 10000

  /**
   * How long something may take, in milliseconds; 0 is for ever.
   *
   * @param idle      between two statements
   * @param statement a statement
   */
  case class Limits(idle: Long, statement: Long) {
    def nonEmpty: Boolean = idle > 0 || statement > 0
  }
}
