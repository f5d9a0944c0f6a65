package lockstep.spark.transactions

import java.net.URI
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.{AtomicInteger, AtomicReference}

import com.fasterxml.jackson.databind.JsonNode
import lockstep.spark.scans.{ReadLog, Scan}
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.QueryPlanningTracker
import org.apache.spark.sql.catalyst.plans.logical.{Command, LocalRelation, LogicalPlan}
import org.apache.spark.sql.execution.QueryExecution
import org.apache.spark.sql.lockstep.Internals

/**
 * What is remembered of an open transaction.
 *
 * @param owner       what it is kept under: see `Transactions.owner`
 * @param session     the one that began it
 * @param root        where the lake of its catalog lies
 * @param begun       its catalog, with its settings, and the database version that it began at: what another host must know
 * @param keptSeconds of one that sessions share: how long it waits for another client when the last one has gone
 */
private[spark] class OpenTransaction(
    val id: String,
    val owner: String,
    val session: SparkSession,
    val root: URI,
    val begun: Map[String, Any],
    val keptSeconds: Option[Long]) {

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

  /** Says whether the session did not take part before. */
  def join(member: SparkSession): Boolean = members.add(Internals.id(member))

  /** The RDDs among whose rows nothing was found that is older than it. */
  val computable = new Lineage.Known

  /** RDDs are numbered as they are made, too. */
  val firstRdd: Int = Internals.newRddId(session.sparkContext)

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
