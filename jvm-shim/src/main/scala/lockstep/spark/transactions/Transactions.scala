package lockstep.spark.transactions

import java.util.{Properties, UUID}
import java.util.concurrent.ConcurrentHashMap

import lockstep.spark.overlay.Overlay
import lockstep.spark.scans.{ByPath, ReadLog, Scans}
import org.apache.hadoop.fs.Path
import org.apache.spark.SparkContext
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.delta.OptimisticTransaction
import org.apache.spark.sql.execution.{QueryExecution, SQLExecution}
import org.apache.spark.sql.lockstep.{Internals, LockstepException}

import scala.jdk.CollectionConverters._

/**
 * Which transactions are open, as far as Spark's side must know: to ask Python nothing about a session that has none, and
 * to notice a write that failed. Python holds the transaction itself.
 */
private[spark] object Transactions {
  private val open = new ConcurrentHashMap[String, OpenTransaction]()
  private val locks = new Locks

  private val Described = "Lockstep transaction "

  /** The local property of a thread that says which transaction its last statement was part of. */
  private val Current = "lockstep.transaction"

  def isOpen(session: SparkSession): Boolean = of(session).nonEmpty

  def all: Seq[OpenTransaction] = open.values.asScala.toSeq

  /** The id of a session's open transaction. */
  def current(session: SparkSession): Option[String] = of(session).map(_.id)

  /**
   * Names what a session's transactions are kept under: itself, or what all sessions that share them say. One that it
   * takes part in it keeps to, whatever it says meanwhile; a stream's batches share none, for their checkpoint would go on
   * without it. What Delta does for a statement in another session is the statement's doing: it looks in a clone of the
   * session for the rows that it replaces. A thread with a transaction of its own has that one alone.
   */
  def owner(session: SparkSession): String =
    ofThread(session).orElse(joined(session).map(_.owner)).orElse(shared(session)).orElse(writing.map(_.owner))
      .getOrElse(Internals.id(session))

  /** The name under which a session says that it shares its transactions. */
  private def shared(session: SparkSession): Option[String] =
    if (isInStream(session)) None else Option(session.conf.get(Shared, "")).filter(_.nonEmpty).map(SharedOwner + _)

  private def joined(session: SparkSession): Option[OpenTransaction] =
    all.find(tx => !apart.contains(tx.owner) && tx.hasJoined(Internals.id(session)))

  /** The local property of a thread that has a transaction of its own: what that is kept under. */
  private val Apart = "lockstep.apart"

  /** What those are kept under. A thread may outlive the one that it has its properties from. */
  private val apart: java.util.Set[String] = ConcurrentHashMap.newKeySet[String]()

  private def ofThread(session: SparkSession): Option[String] =
    if (apart.isEmpty) None else Option(session.sparkContext.getLocalProperty(Apart)).filter(apart.contains)

  /**
   * Has a transaction that begins within `work` be that of this thread, and of those that it starts: what other threads of
   * the session do meanwhile is no part of it, and sees nothing of it.
   */
  def ofItsOwn[T](session: SparkSession)(work: => T): T = {
    val owner = s"apart:${UUID.randomUUID}"
    apart.add(owner)
    try as(session, owner)(work)
    finally if (!open.containsKey(owner)) {
        val _ = apart.remove(owner)
      } // else it could not be rolled back, and is to end yet
  }

  /** Does something to a transaction in a thread that need not be one of its own. */
  def within[T](tx: OpenTransaction)(work: => T): T =
    if (apart.contains(tx.owner)) as(tx.session, tx.owner)(work) else work

  private def as[T](session: SparkSession, owner: String)(work: => T): T = {
    val before = session.sparkContext.getLocalProperty(Apart)
    session.sparkContext.setLocalProperty(Apart, owner)
    try work
    finally session.sparkContext.setLocalProperty(Apart, before)
  }

  /**
   * The transaction in which Delta writes a table in this thread, in whatever session it goes on. What Spark does in a clone,
   * to fill a cache anew behind a write, is not the transaction's.
   */
  private def writing: Option[OpenTransaction] =
    for {
      active <- OptimisticTransaction.getActive() if Overlay.isOfTransaction(active.deltaLog.dataPath)
      id <- Overlay.parse(active.deltaLog.dataPath.toUri.getAuthority).id
      tx <- all.find(_.id == id)
    } yield tx

  private val Shared = "lockstep.shared_transaction"
  private val SharedOwner = "shared:"

  /** Spark's `StreamExecution.QUERY_ID_KEY`, which has moved between its minors. */
  private val QueryOfStream = "sql.streaming.queryId"

  /** A session's open transaction. Most drivers have none at most times, and each statement asks for its own often. */
  def of(session: SparkSession): Option[OpenTransaction] =
    if (open.isEmpty) None else Option(open.get(owner(session)))

  /**
   * One thread of a session at a time begins or ends its transaction, or stages a commit of it. So a statement of another
   * thread is in a COMMIT with all that it read, or refused, and of two that write one table the second sees the first.
   */
  def exclusively[T](session: SparkSession)(body: => T): T = locks.holding(owner(session))(body)

  /** The session whose open transaction this is; a statement may write it from a clone of that session. */
  def holder(transaction: String): Option[SparkSession] =
    open.values.asScala.find(_.id == transaction).map(_.session)

  def opened(
      session: SparkSession,
      id: String,
      root: Path,
      begun: Map[String, Any],
      keptSeconds: Long,
      limits: OpenTransaction.Limits): Unit = {
    val key = owner(session)
    val kept = Option.when(key.startsWith(SharedOwner))(keptSeconds)
    val _ = open.put(key, new OpenTransaction(id, key, session, root.toUri, begun, kept, limits))
  }

  def closed(session: SparkSession): Unit =
    Option(open.remove(owner(session))).foreach(_ => describe(session, None))

  /**
   * Whatever a session does next is part of the open transaction, if there is one, which is returned. Not to be called but by
   * `Clients.enter`, which knows who must be waited for from then on: clients may share a session.
   */
  def enter(session: SparkSession): Option[OpenTransaction] = {
    val tx = of(session)
    if (joined(session).nonEmpty || writing.isEmpty) tx.foreach(_.join(session))
    describe(session, tx)
    tx
  }

  /**
   * Has the jobs of this thread say which transaction they are part of, where the user has not said what they are. A
   * description is the thread's, and statements of a session come from any, so each statement looks again.
   */
  private def describe(session: SparkSession, tx: Option[OpenTransaction]): Unit = {
    session.sparkContext.setLocalProperty(Current, tx.map(_.id).orNull)
    val description = Option(session.sparkContext.getLocalProperty("spark.job.description"))
    val now = tx.map(Described + _.id)
    if (description != now && description.forall(_.startsWith(Described)))
      session.sparkContext.setJobDescription(now.orNull)
  }

  /** Says that a session's transaction is that of a block, whose END ends it and nothing else, or no longer so. */
  def block(session: SparkSession, isOpen: Boolean): Unit = of(session).foreach(_.isBlock = isOpen)

  def isBlock(session: SparkSession): Boolean = of(session).exists(_.isBlock)

  /** Refuses a plan that reads what another session's open transaction sees: it may yet be rolled back. */
  def checkOwn(session: SparkSession, plan: LogicalPlan): Unit =
    if (!open.isEmpty) {
      (Scans.relations(plan).flatMap(_.view.id) ++ ByPath.transactions(plan)).foreach(checkOwn(session, _))
      for (rdd <- Lineage.of(plan); id <- Lineage.transactions(rdd)) checkOwn(session, id)
    }

  private def checkOwn(session: SparkSession, transaction: String): Unit =
    for (tx <- all if tx.id == transaction && tx.owner != owner(session) && !tx.hasJoined(Internals.id(session)))
      throw new LockstepException(
        "LOCKSTEP_ACTIVE_TRANSACTION",
        s"what is read here is what the open transaction $transaction of another session sees, and nobody else sees that " +
          "before its COMMIT: make the DataFrame or view anew in this session.",
        "25001"
      )

  /**
   * Refuses a commit to a transaction by a statement of a session that takes no part in it: a URI can be written by anybody.
   * Which session a statement is of, its execution says: Delta may go on in a clone, and a stream's function in any session.
   * What is no statement, as some calls of `DeltaTable`, does not say it; the active session may be any.
   */
  def checkWriter(transaction: String): Unit =
    for {
      tx <- all.find(_.id == transaction)
      writers = executing(tx.session.sparkContext) if writers.nonEmpty && !writers.exists(isPart(_, tx))
    } throw new LockstepException(
      "LOCKSTEP_ACTIVE_TRANSACTION",
      s"a statement of another session would write into the open transaction $transaction, which is not its own: use the " +
        "table by its name, as lake.namespace.table. Nothing of the statement is in any table.",
      "25001"
    )

  /** The sessions of the executions that this thread is in, the innermost and the outermost; none where it is in none. */
  private def executing(context: SparkContext): Seq[SparkSession] =
    for {
      key <- Seq(SQLExecution.EXECUTION_ID_KEY, SQLExecution.EXECUTION_ROOT_ID_KEY)
      id <- Option(context.getLocalProperty(key))
      query <- Option(SQLExecution.getQueryExecution(id.toLong))
    } yield query.sparkSession

  /** Whether a session takes part in a transaction, or will with its next statement. */
  private def isPart(session: SparkSession, tx: OpenTransaction): Boolean =
    tx.hasJoined(Internals.id(session)) || shared(session).getOrElse(Internals.id(session)) == tx.owner

  /**
   * Refuses the rows that changed between versions if they were asked for before the open transaction began: up to which
   * version that was, need not be one that it sees.
   */
  def checkChanges(session: SparkSession, plan: LogicalPlan): Unit =
    for (tx <- of(session) if Scans.changesOf(plan).exists(_ != tx.id))
      throw new LockstepException(
        "LOCKSTEP_ACTIVE_TRANSACTION",
        s"changes of a table are read that were asked for before BEGIN, and the open transaction (${tx.id}) need not see the " +
          "versions that they are between: make the DataFrame again inside it.",
        "25001"
      )

  /** What the open transaction reads, to be added to. */
  def reads(session: SparkSession): Option[ReadLog] = of(session).map(_.reads)

  /** Notes that a table's manifests are to be made anew after COMMIT, if there is a transaction. */
  def manifested(session: SparkSession, table: Path): Unit = of(session).foreach(_.manifested.add(table))

  def manifests(session: SparkSession): Seq[Path] = of(session).toSeq.flatMap(_.manifested.asScala)

  /** The open transaction whose statements a job's thread ran, by what the job's properties say. */
  def ofJob(properties: Properties): Option[OpenTransaction] =
    Option(properties).flatMap(each => Option(each.getProperty(Current))).flatMap(id => all.find(_.id == id))

  /** Whether a stream's thread runs the job: what its batches read is not the transaction's doing. */
  def isOfStream(properties: Properties): Boolean = properties.getProperty(QueryOfStream) != null

  def isInStream(session: SparkSession) = session.sparkContext.getLocalProperty(QueryOfStream) != null

  /** Refuses a plan with rows that Spark began to compute before BEGIN, outside of any plan. */
  def checkLineage(session: SparkSession, plan: LogicalPlan): Unit =
    for {
      tx <- of(session) if !isInStream(session)
      rdd <- Lineage.of(plan)
      refusal <- Lineage.refusal(rdd, tx)
    } throw refusal

  /** Notes that a transaction went back to a savepoint: what failed since is undone, too. */
  def returned(session: SparkSession): Unit = of(session).foreach { tx =>
    tx.failure.set(null)
    tx.returns.incrementAndGet()
  }

  /** What ends with a transaction, and where it goes back to a savepoint. */
  case class Moment(transaction: String, returns: Int)

  /** Where a session's transaction stands, if one is open. */
  def moment(session: SparkSession): Option[Moment] = of(session).map(tx => Moment(tx.id, tx.returns.get))

  /** Where a session's transaction stands: as long as that is the same, its names mean what they meant. */
  case class Standing(transaction: String, changes: Long)

  def standing(session: SparkSession): Option[Standing] = of(session).map(tx => Standing(tx.id, tx.changes.get))

  /** What the first failed write of the open transaction said. */
  def failure(session: SparkSession): Option[String] = of(session).flatMap(tx => Option(tx.failure.get))

  /** Notes that the execution of a query failed, if that is a write of an open transaction. */
  def failed(query: QueryExecution, cause: Throwable): Unit = of(query.sparkSession).foreach(_.failed(query, cause))
}
