package lockstep.spark.execution

import java.util.concurrent.{Executors, TimeUnit}

import lockstep.spark.Daemons
import lockstep.spark.host.{Caller, Callers}
import lockstep.spark.transactions.{OpenTransaction, Transactions}
import org.apache.spark.internal.Logging
import org.apache.spark.scheduler.{SparkListener, SparkListenerApplicationEnd, SparkListenerEvent}
import org.apache.spark.sql.SparkSession

import scala.util.control.NonFatal

/**
 * The clients of a Thrift server or of a Spark Connect server: when one goes, or Spark stops, what was left open is
 * rolled back.
 *
 * Both servers tell of their sessions by events of their own. They are read by the names of their fields, since a driver
 * that is neither server may not have their classes.
 */
private[spark] object Clients extends SparkListener with Logging {

  /** How long a shared transaction that was rolled back for want of clients is remembered, for those that come too late. */
  private val LapsedSeconds = TimeUnit.DAYS.toSeconds(1)

  /** The end of a transaction may have to wait for a statement of it that runs, and no other for that one. */
  private val workers = Executors.newCachedThreadPool(Daemons.named("lockstep-clients"))

  private val clock = Executors.newSingleThreadScheduledExecutor(Daemons.named("lockstep-clients"))

  /** The clients that went last: one may go while its first statement is looked at. */
  private val gone = Callers.latest[java.lang.Boolean]

  /** An event of Spark's, in the thread that posts it. */
  def told(event: SparkListenerEvent): Unit = event match {
    case told: Product =>
      told.productPrefix match {
        case "SparkListenerThriftServerOperationStart" =>
          Callers.started(field(told, "id"), Caller(field(told, "sessionId"), field(told, "userName")))
        case "SparkListenerThriftServerSessionClosed" | "SparkListenerConnectSessionClosed" =>
          val client = field(told, "sessionId")
          gone.put(client, true)
          forget(client)
        case _ =>
      }
    case _ =>
  }

  /** Whatever a session does next is part of the open transaction, if there is one, which waits for the session's client. */
  def enter(session: SparkSession): Unit = Transactions.enter(session).foreach(add(_, session))

  /** Has a transaction that a session joins wait for the session's client, unless that has gone meanwhile. */
  private def add(tx: OpenTransaction, session: SparkSession): Unit =
    Callers.current(session.sparkContext).foreach { caller =>
      tx.clients.add(caller.client)
      if (gone.containsKey(caller.client)) forget(caller.client)
    }

  /** Not in the thread that posts the event: it waits for the statement that runs. */
  private def forget(client: String): Unit =
    Transactions.all.filter(_.clients.remove(client)).foreach(tx => workers.execute(() => left(tx)))

  /** No statement can end what is open now. Whoever typed BEGIN is told, where Spark tells nothing any more. */
  override def onApplicationEnd(end: SparkListenerApplicationEnd): Unit = Transactions.all.foreach { tx =>
    rollBack(tx)
    if (!Transactions.all.contains(tx))
      System.err.println(
        s"Lockstep: transaction ${tx.id} was open when Spark stopped, and was rolled back. COMMIT keeps what it did.")
  }

  private def field(event: Product, name: String): String =
    event.productElementNames.zip(event.productIterator).collectFirst { case (`name`, value) => s"$value" }.get

  /**
   * What sessions share outlives the client that began it: the last one that goes may be about to come back. A session that
   * clients share does not; those that go on in it are told, for what they do next is not to be committed on its own.
   */
  private def left(tx: OpenTransaction): Unit = tx.keptSeconds match {
    case None if tx.clients.isEmpty => rollBack(tx)
    case None => undo(tx)(TransactionCommand.lapse(tx, "left"))
    case Some(seconds) if tx.clients.isEmpty =>
      val desertion = tx.desertions.incrementAndGet()
      after(seconds) {
        if (tx.clients.isEmpty && tx.desertions.get == desertion) {
          undo(tx)(TransactionCommand.lapse(tx, "deserted"))
          after(LapsedSeconds)(undo(tx)(TransactionCommand.forgetLapsed(tx)))
        }
      }
    case _ =>
  }

  private def after(seconds: Long)(work: => Unit): Unit = {
    val later: Runnable = () => workers.execute(() => work)
    val _ = clock.schedule(later, seconds, TimeUnit.SECONDS)
  }

  private def rollBack(tx: OpenTransaction): Unit = undo(tx)(TransactionCommand.abandon(tx))

  private def undo(tx: OpenTransaction)(rollback: => Unit): Unit =
    try rollback
    catch {
      case NonFatal(e) => logWarning(s"Transaction ${tx.id} was not rolled back when its client or Spark ended", e)
    }
}
