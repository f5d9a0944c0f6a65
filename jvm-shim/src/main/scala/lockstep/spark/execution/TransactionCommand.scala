package lockstep.spark.execution

import com.fasterxml.jackson.databind.JsonNode
import lockstep.spark.{Bridge, LockstepCatalog}
import lockstep.spark.catalog.{DriverState, StandIn}
import lockstep.spark.grammar.{Said, TransactionStatement}
import lockstep.spark.host.SessionSettings
import lockstep.spark.overlay.Overlay
import lockstep.spark.statements.SinglePass
import lockstep.spark.transactions.{EndedTransactions, OpenTransaction, Transactions}
import org.apache.hadoop.fs.Path
import org.apache.spark.internal.Logging
import org.apache.spark.sql.{Row, SparkSession}
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeReference, Cast}
import org.apache.spark.sql.delta.DeltaLog
import org.apache.spark.sql.delta.hooks.GenerateSymlinkManifest
import org.apache.spark.sql.execution.command.LeafRunnableCommand
import org.apache.spark.sql.lockstep.{Internals, LockstepException}
import org.apache.spark.sql.types.{DataType, IntegerType, LongType, StringType, TimestampType}

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

/**
 * BEGIN, COMMIT, ROLLBACK, SAVEPOINT: an eager command, so that it runs once, where it stands, whoever parsed it and whether or
 * not anybody collects its row.
 */
private[spark] case class TransactionCommand(statement: TransactionStatement) extends LeafRunnableCommand {

  private val columns: Seq[(String, DataType)] = statement.verb match {
    case "commit" =>
      Seq(
        "database_version" -> LongType,
        "transaction_id" -> StringType,
        "tables_changed" -> IntegerType,
        "rows_added" -> LongType,
        "rows_removed" -> LongType,
        "files_added" -> LongType,
        "files_removed" -> LongType,
        "milliseconds" -> LongType
      )
    case _ => Seq("database_version" -> LongType, "transaction_id" -> StringType)
  }

  override val output: Seq[Attribute] = columns.map { case (name, kind) => AttributeReference(name, kind)() }

  override def run(session: SparkSession): Seq[Row] = Transactions.exclusively(session) {
    if (Set("commit", "rollback").contains(statement.verb) && Transactions.isBlock(session))
      throw new LockstepException(
        "LOCKSTEP_INVALID_TRANSACTION_TERMINATION",
        s"${statement.verb.toUpperCase} inside BEGIN ATOMIC: its END commits, and an error that leaves it rolls back. " +
          "SAVEPOINT and ROLLBACK TO may be used inside.",
        "2D000"
      )
    val answer = statement.verb match {
      case "begin" => begin(session)
      case "commit" =>
        val manifests = Transactions.manifests(session)
        val answer = TransactionCommand.ending(session)(commit(session))
        manifests.foreach(TransactionCommand.generate(session, _))
        answer
      case "rollback" => TransactionCommand.ending(session)(Bridge.call("rollback", session))
      case "savepoint" => savepoint(session, "failure" -> Transactions.failure(session))
      case "rollback_to" => rollbackTo(session)
      case "release" => savepoint(session)
    }
    Seq(Row.fromSeq(columns.map { case (name, kind) => value(answer.get(name), kind) }))
  }

  private def begin(session: SparkSession): JsonNode = {
    SinglePass.refuse("a transaction cannot begin")
    val catalogs = LockstepCatalog.in(session)
    val fields = Seq(
      "catalogs" -> catalogs,
      "current" -> Option(session.sessionState.catalogManager.currentCatalog.name).filter(catalogs.contains).orElse(
        StandIn.only(session)),
      SessionSettings.caseSensitive(session),
      SessionSettings.ofTransactions(session)
    )
    val options = statement.options.map {
      case ("as_of_timestamp", time: Said) => "as_of_micros" -> moment(session, time)
      case other => other
    }
    val answer = Bridge.call("begin", session, (fields ++ options): _*)
    val root = new Path(answer.get("root").asText)
    Executions.watch(session.sparkContext)
    val catalog = answer.get("catalog").asText
    Transactions.opened(
      session,
      answer.get("transaction_id").asText,
      root,
      begun =
        Map(
          "catalog" -> catalog,
          "options" -> catalogs(catalog).settings,
          "snapshot" -> answer.get("database_version").asLong),
      keptSeconds = answer.get("kept_seconds").asLong,
      limits = OpenTransaction.Limits(answer.get("idle_millis").asLong, answer.get("statement_millis").asLong)
    )
    Clients.enter(session)
    answer
  }

  /** What an expression says for a time; a text is in the session's time zone. */
  private def moment(session: SparkSession, time: Said): Any =
    Internals.evaluated(session, Seq(Cast(time.parsed(session.sessionState.sqlParser), TimestampType))).head match {
      case null =>
        throw new LockstepException("LOCKSTEP_INVALID", s"${time.sql} is no time: write it as in SQL.", "22023")
      case micros => micros
    }

  private def commit(session: SparkSession): JsonNode = {
    Transactions.of(session).foreach(_.isSent = true)
    Bridge.call(
      "commit",
      session,
      "failure" -> Transactions.failure(session),
      "reads" -> Transactions.reads(session).fold(Seq.empty[Any])(_.scans),
      "settled" -> Transactions.reads(session).fold(Seq.empty[Any])(_.settled),
      "unused" -> Transactions.of(session).fold(Seq.empty[Long])(_.unused())
    )
  }

  private def savepoint(session: SparkSession, more: (String, Any)*): JsonNode =
    Bridge.call(statement.verb, session, (statement.options.toSeq ++ more): _*)

  /** What failed since the savepoint is undone like all else; the URIs from before are not to be used again. */
  private def rollbackTo(session: SparkSession): JsonNode = {
    val answer = savepoint(session)
    Transactions.returned(session)
    TransactionCommand.retire(session, answer)
    answer
  }

  private def value(node: JsonNode, kind: DataType): Any =
    if (node == null || node.isNull) null
    else
      kind match {
        case LongType => node.asLong
        case IntegerType => node.asInt
        case _ => node.asText
      }
}

private[spark] object TransactionCommand extends Logging {

  /** Rolls a session's transaction back, if it is still open. */
  def abandon(session: SparkSession, transaction: String): Unit = unlessEnded(session, transaction) {
    val _ = ending(session)(Bridge.call("rollback", session))
  }

  def abandon(tx: OpenTransaction): Unit = Transactions.within(tx)(abandon(tx.session, tx.id))

  /**
   * Rolls back a transaction that nobody has come back for, if that is still so. Who does come back is told, before any
   * statement runs.
   */
  def lapse(tx: OpenTransaction, why: String, isSo: () => Boolean = () => true): Unit =
    unlessEnded(tx)(if (isSo()) retire(tx.session, Bridge.call("lapse", tx.session, "why" -> why)))

  /** Forgets such a transaction: who comes back now is too late to be taken for somebody who goes on with it. */
  def forgetLapsed(tx: OpenTransaction): Unit =
    unlessEnded(tx)(forget(tx.session, Bridge.call("ended", tx.session)))

  private def unlessEnded(tx: OpenTransaction)(work: => Unit): Unit =
    Transactions.within(tx)(unlessEnded(tx.session, tx.id)(work))

  private def unlessEnded(session: SparkSession, transaction: String)(work: => Unit): Unit =
    Transactions.exclusively(session)(if (Transactions.current(session).contains(transaction)) work)

  /**
   * However it ends, the transaction's Delta logs are forgotten; what Python asks for afterwards is done last. An answer says
   * what is to be forgotten; where it does not, and after a refusal, Python is asked. That it cannot be asked does not stand
   * in the place of what became of the end: who hears that a COMMIT is refused, in doubt or done, goes by that.
   */
  private def ending(session: SparkSession)(end: => JsonNode): JsonNode = {
    val answer =
      try end
      catch {
        case e: Throwable =>
          try forget(session, Bridge.call("ended", session))
          catch { case NonFatal(other) => e.addSuppressed(other) }
          throw e
      }
    try forget(session, Option(answer.get("ended")).filterNot(_.isNull).getOrElse(Bridge.call("ended", session)))
    catch {
      case NonFatal(e) =>
        logWarning("What is to be forgotten of a transaction that has ended could not be asked", e)
        Transactions.closed(session)
    }
    checkpoints(session, answer)
    answer
  }

  /** Has Delta write the checkpoints that an answer says are due. */
  def checkpoints(session: SparkSession, answer: JsonNode): Unit =
    Option(answer.get("checkpoints")).foreach(_.elements().asScala.foreach { due =>
      checkpoint(session, due.get("uri").asText, due.get("version").asLong)
    })

  /**
   * Python says whether the transaction is over, and which of its URIs were used: a refused COMMIT may leave it open. It
   * is over whatever becomes of caches.
   */
  private def forget(session: SparkSession, state: JsonNode): Unit = {
    if (!state.get("open").asBoolean) Transactions.closed(session)
    try retire(session, state)
    catch { case NonFatal(e) => logWarning("Of a transaction that has ended not all caches were dropped", e) }
  }

  /** Forgets what Delta and Spark keep of a transaction's view: logs, and what was cached of the tables in it. */
  private def retire(session: SparkSession, answer: JsonNode): Unit = {
    texts(answer, "uris").foreach { uri =>
      DeltaLog.invalidateCache(session, new Path(uri))
      EndedTransactions.add(Overlay.parse(new Path(uri).toUri.getAuthority).transaction)
    }
    answer.get("tables").elements().asScala.foreach { name =>
      Internals.uncache(session, name.elements().asScala.map(_.asText).toSeq)
    }
  }

  /**
   * Delta checkpoints after its own commits, before it answers; a transaction's is published by Python, which says what is
   * due, so Delta is asked to here. The transaction is committed whatever becomes of it.
   */
  private def checkpoint(session: SparkSession, uri: String, version: Long): Unit =
    afterwards(s"No checkpoint of $uri at version $version was written; reading it costs more until the next is") {
      val log = DeltaLog.forTable(session, new Path(uri))
      val _ = DriverState.keep(session, log, log.update())
      log.checkpoint(log.getSnapshotAt(version), None) // others may have committed since
    }

  /** What Delta keeps up to date for other readers named a transaction's files in its staging folder alone. */
  private def generate(session: SparkSession, table: Path): Unit =
    afterwards(s"No manifest of $table was written; GENERATE symlink_format_manifest writes it") {
      GenerateSymlinkManifest.generateFullManifest(session, DeltaLog.forTable(session, table), None)
    }

  /** What is done behind a COMMIT, whose answer stands. That the thread was interrupted is told by its flag to who runs it. */
  private def afterwards(otherwise: String)(work: => Unit): Unit =
    try work
    catch {
      case e: InterruptedException =>
        logWarning(otherwise, e)
        Thread.currentThread.interrupt()
      case NonFatal(e) => logWarning(otherwise, e)
    }

  private def texts(node: JsonNode, field: String): Seq[String] =
    Option(node.get(field)).toSeq.flatMap(_.elements().asScala.map(_.asText))
}
