package lockstep.spark

import java.util.concurrent.{ConcurrentHashMap, TimeoutException}

import org.apache.hadoop.fs.Path
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.lockstep.{Internals, LockstepException}

import scala.jdk.CollectionConverters._

/**
 * Which transactions are open, as far as Spark's side must know: to ask Python nothing about a session that has none, and
 * to notice a write that failed. Python holds the transaction itself.
 */
private[spark] object Transactions {
  private val open = new ConcurrentHashMap[String, Open]()
  private val locks = new Locks

  private val Described = "Lockstep transaction "

  /** How long Spark may take to report what happened. */
  private val DrainMillis = 60000L

  def isOpen(session: SparkSession): Boolean = of(session).nonEmpty

  def all: Seq[Open] = open.values.asScala.toSeq

  /** The id of a session's open transaction. */
  def current(session: SparkSession): Option[String] = of(session).map(_.id)

  /**
   * Names what a session's transactions are kept under: itself, or what all sessions that share them say. One that it
   * takes part in it keeps to, whatever it says meanwhile; a stream's batches share none, for their checkpoint would go on
   * without it.
   */
  def owner(session: SparkSession): String = {
    val own = Internals.id(session)
    def isOfStream = session.sparkContext.getLocalProperty(QueryOfStream) != null
    def said = if (isOfStream) None else session.conf.getOption(Shared).filter(_.nonEmpty)
    all.find(_.hasJoined(own)).map(_.owner).orElse(said.map(SharedOwner + _)).getOrElse(own)
  }

  private val Shared = "lockstep.shared_transaction"
  private val SharedOwner = "shared:"

  /** Spark's `StreamExecution.QUERY_ID_KEY`, which has moved between its minors. */
  private val QueryOfStream = "sql.streaming.queryId"

  private def of(session: SparkSession): Option[Open] = Option(open.get(owner(session)))

  /**
   * One thread of a session at a time begins or ends its transaction, or stages a commit of it. So a statement of another
   * thread is in a COMMIT with all that it read, or refused, and of two that write one table the second sees the first.
   */
  def exclusively[T](session: SparkSession)(body: => T): T = locks.holding(owner(session))(body)

  /** The session whose open transaction this is; a statement may write it from a clone of that session. */
  def holder(transaction: String): Option[SparkSession] =
    open.values.asScala.find(_.id == transaction).map(_.session)

  def opened(session: SparkSession, id: String, keptSeconds: Long): Unit = {
    val key = owner(session)
    open.put(key, new Open(id, key, session, Option.when(key.startsWith(SharedOwner))(keptSeconds)))
    enter(session)
  }

  def closed(session: SparkSession): Unit =
    Option(open.remove(owner(session))).foreach { tx =>
      tx.close()
      describe(session, None)
    }

  /** Whatever a session does next is part of the open transaction, if there is one. */
  def enter(session: SparkSession): Unit = {
    val tx = of(session)
    tx.foreach(_.join(session))
    describe(session, tx)
  }

  /**
   * Has the jobs of this thread say which transaction they are part of, where the user has not said what they are. A
   * description is the thread's, and statements of a session come from any, so each statement looks again.
   */
  private def describe(session: SparkSession, tx: Option[Open]): Unit = {
    val said = Option(session.sparkContext.getLocalProperty("spark.job.description"))
    val now = tx.map(Described + _.id)
    if (said != now && said.forall(_.startsWith(Described))) session.sparkContext.setJobDescription(now.orNull)
  }

  /** Says that a session's transaction is that of a block, whose END ends it and nothing else, or no longer so. */
  def block(session: SparkSession, isOpen: Boolean): Unit = of(session).foreach(_.isBlock = isOpen)

  def isBlock(session: SparkSession): Boolean = of(session).exists(_.isBlock)

  /** Refuses, of what a plan reads, what is neither the transaction's nor its snapshot. */
  def checkSnapshot(session: SparkSession, scans: Seq[Scan]): Unit =
    of(session).foreach { tx =>
      val asked = scans.filterNot(tx.passed.contains)
      if (asked.nonEmpty) {
        Bridge.tell("snapshot", session, "reads" -> asked.map(_.said))
        tx.passed.addAll(asked.asJava)
      }
    }

  /** What the open transaction reads, to be added to. */
  def reads(session: SparkSession): Option[Reads.Log] = of(session).map(_.reads)

  /** Notes that a table's manifests are to be made anew after COMMIT, if there is a transaction. */
  def manifested(session: SparkSession, table: Path): Unit = of(session).foreach(_.manifested.add(table))

  def manifests(session: SparkSession): Seq[Path] = of(session).toSeq.flatMap(_.manifested.asScala)

  /** Forgets a failed write, once all of them have been reported. */
  def forgive(session: SparkSession): Unit =
    failure(session).foreach(_ => of(session).foreach(_.failure.set(null)))

  /** What the first failed write of the open transaction said. */
  def failure(session: SparkSession): Option[String] =
    of(session).flatMap { tx =>
      drain(
        session,
        "whether a statement failed. Nothing was committed, and the transaction is still open: COMMIT again")
      Option(tx.failure.get)
    }

  /**
   * Waits until Spark has reported everything that happened so far, which it does on a bus of its own. A report that does
   * not come in time is an error, never a guess.
   */
  def drain(session: SparkSession, what: String): Unit =
    try Internals.drainListeners(session, DrainMillis)
    catch {
      case e: TimeoutException =>
        throw new LockstepException(
          "LOCKSTEP_UNAVAILABLE",
          s"Spark did not report within $DrainMillis ms (${e.getMessage}) $what.",
          "58030")
    }
}
