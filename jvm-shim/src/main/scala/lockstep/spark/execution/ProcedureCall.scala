package lockstep.spark.execution

import com.fasterxml.jackson.databind.JsonNode
import lockstep.spark.LockstepCatalog
import lockstep.spark.catalog.Procedures
import lockstep.spark.grammar.TransactionStatement
import lockstep.spark.overlay.RealPaths
import lockstep.spark.statements.StatementScope
import lockstep.spark.transactions.{JudgedByPython, Transactions}
import org.apache.spark.internal.Logging
import org.apache.spark.sql.{Row, SparkSession}
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeReference, Cast, EvalMode, Expression, Literal}
import org.apache.spark.sql.catalyst.util.quoteIdentifier
import org.apache.spark.sql.connector.catalog.Identifier
import org.apache.spark.sql.delta.catalog.DeltaTableV2
import org.apache.spark.sql.delta.lockstep.MissingFiles
import org.apache.spark.sql.execution.command.LeafRunnableCommand
import org.apache.spark.sql.lockstep.{Internals, LockstepException}
import org.apache.spark.sql.types._

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

/**
 * `CALL <catalog>.system.<procedure>(…)`, and the statements that say the same in other words.
 *
 * @param names  the parameters that are given, in the order of `values`
 * @param said   what is given for each
 * @param values the same, each as the parameter's type
 * @param isOne  whether Delta does a part of it in the same transaction: one of its own, if none is open
 * @param times  the parameters for which the statement has the word TIMESTAMP: NULL is no time, and not as if nothing was said
 */
private[spark] case class ProcedureCall(
    catalog: LockstepCatalog,
    procedure: String,
    names: Seq[String],
    said: Seq[Expression],
    values: Seq[Expression],
    override val changesSomething: Boolean,
    isOne: Boolean,
    times: Set[String],
    override val output: Seq[Attribute])
    extends LeafRunnableCommand with JudgedByPython with Logging {

  override def run(session: SparkSession): Seq[Row] = {
    val arguments = evaluated(session)
    for (name <- times if arguments(name) == null)
      throw new LockstepException("LOCKSTEP_INVALID", s"what is said for the $name is NULL: expected a time.", "22023")
    if (!isOne) call(session, arguments)._1
    else if (Transactions.isOpen(session)) wholly(session)(call(session, arguments)._1)
    else inItsOwn(session)(call(session, arguments))
  }

  /** What each argument comes to; refused if it is of another kind than the parameter, or would be cut off to be of its. */
  private def evaluated(session: SparkSession): Map[String, Any] = {
    val arguments = names.lazyZip(said).lazyZip(values).toSeq
    for ((name, from, to) <- arguments if !ProcedureCall.isOfKind(from.dataType, to.dataType))
      throw unfit(name, s"a ${from.dataType.sql}", to)
    val mayBeCut = arguments.filter { case (_, from, to) => ProcedureCall.mayBeCut(from.dataType, to.dataType) }
    val (whole, uncut) = Internals.evaluated(session, values ++ mayBeCut.map(_._2)).splitAt(values.size)
    for (((name, _, to), number) <- mayBeCut.zip(uncut) if !ProcedureCall.isWhole(number))
      throw unfit(name, s"$number", to)
    names.zip(whole).toMap
  }

  private def unfit(name: String, is: String, expected: Expression) = new LockstepException(
    "LOCKSTEP_INVALID",
    s"$procedure: $name is $is: expected a ${expected.dataType.sql}. Nothing was done",
    "22023")

  /** The rows, and whether the transaction has anything to commit. */
  private def call(session: SparkSession, arguments: Map[String, Any]): (Seq[Row], Boolean) = {
    val text = StatementScope.shownText.getOrElse(s"CALL ${catalog.name}.${Procedures.Namespace}.$procedure")
    val answer = Transactions.exclusively(session) {
      catalog.called(procedure, arguments, text, LockstepCatalog.in(session))
    }
    answer.get("looks").elements().asScala.foreach(name => look(ProcedureCall.parts(name)))
    val restores = answer.get("restores").elements().asScala.map { restore =>
      (ProcedureCall.parts(restore.get("table")), restore.get("version").asLong)
    }.toSeq
    // At all of them before Delta writes for the first: it would look at one table after the other, and at no vector.
    restores.foreach { case (table, version) => look(table, Some(version)) }
    ProcedureCall.whateverTheAge(session) {
      restores.foreach { case (table, version) =>
        val name = ProcedureCall.written(catalog.name +: table)
        session.sql(s"RESTORE TABLE $name TO VERSION AS OF $version")
      }
    }
    val compacted = answer.get("compacts").elements().asScala.flatMap { table =>
      compact(session, catalog.name, ProcedureCall.parts(table))
    }.toSeq
    TransactionCommand.checkpoints(session, answer)
    // What a dry run says of these is in its row.
    val done = Map[String, Any]("compacted_tables" -> compacted.size.toLong, "compacted" -> compacted.mkString(", "))
    val rows = answer.get("rows").elements().asScala.map { row =>
      Row.fromSeq(row.elements().asScala.zip(output.iterator).map {
        case (cell, column) if cell.isNull && done.contains(column.name) => done(column.name)
        case (cell, column) => ProcedureCall.value(cell, column.dataType)
      }.toSeq)
    }.toSeq
    (rows, !answer.get("nothing").asBoolean)
  }

  /**
   * Compacts one table in a commit of its own, and tells what that changed: there may have been nothing to do, or a writer
   * beside it may have gone first. Whoever cancels it means the call.
   */
  private def compact(session: SparkSession, catalog: String, table: Seq[String]): Option[String] =
    try
      session.sql(s"OPTIMIZE ${ProcedureCall.written(catalog +: table)}").where("metrics.numFilesRemoved > 0")
        .selectExpr("metrics.numFilesRemoved", "metrics.filesRemoved.totalSize").collect().headOption
        .map(row => s"${table.mkString(".")} (${row.getLong(0)} files, ${row.getLong(1)} bytes)")
    catch {
      case NonFatal(error) if !Internals.isCancelled(error) =>
        logWarning(s"${table.mkString(".")} was not compacted this time", error)
        None
    }

  /**
   * Refuses a table that comes back and whose files are gone.
   *
   * @param version
   *   to which its log is taken back, where it does not come back as it was: then those files are looked for that it has not
   */
  private def look(name: Seq[String], version: Option[Long] = None): Unit =
    catalog.loadTable(Identifier.of(name.init.toArray, name.last)) match {
      case table: DeltaTableV2 =>
        val now = table.initialSnapshot
        val wanted = version.fold(now)(now.deltaLog.getSnapshotAt(_))
        val missing = MissingFiles.of(wanted, ProcedureCall.ShownFiles, version.map(_ => now))
        if (missing.nonEmpty)
          throw new LockstepException(
            "LOCKSTEP_MISSING_FILES",
            s"table ${name.mkString(".")} cannot come back: files of it are gone, " +
              s"${missing.map(RealPaths.in).mkString(", ")}. This call changed nothing. Bring them back from a copy; or restore " +
              "a version of the table that does without them, once it is back from a copy of its log",
            "58P01"
          )
      case _ => ()
    }

  /** In the open transaction, of which a failure takes back what was done until then, and nothing else. */
  private def wholly(session: SparkSession)(rows: => Seq[Row]): Seq[Row] = {
    def savepoint(verb: String): Unit = Transactions.exclusively(session) {
      val _ = TransactionCommand(TransactionStatement(verb, Map("name" -> ProcedureCall.Point))).run(session)
    }
    savepoint("savepoint")
    try {
      val made = rows
      savepoint("release")
      made
    } catch {
      case cause: Throwable =>
        try Seq("rollback_to", "release").foreach(savepoint)
        catch { case NonFatal(e) => cause.addSuppressed(e) }
        throw cause
    }
  }

  /** In a transaction of its own; the version that its COMMIT makes, if any, is told where the procedure could not. */
  private def inItsOwn(session: SparkSession)(called: => (Seq[Row], Boolean)): Seq[Row] = {
    val ((made, changes), committed) = OwnTransaction.around(session, Map("current" -> catalog.name))(called)
    val (version, at) = (committed.head.getLong(0), output.indexWhere(_.name == "database_version"))
    made.map(row =>
      if (changes && at >= 0 && row.isNullAt(at)) Row.fromSeq(row.toSeq.updated(at, version)) else row)
  }
}

private[spark] object ProcedureCall {

  private val EnforcesAge = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"

  /**
   * Has Delta restore versions that are older than `delta.deletedFileRetentionDuration`, too: what a tag keeps is there
   * for as long as the tag is. That Delta looks once more for each file stays: what would spare it
   * (`spark.sql.files.ignoreMissingFiles`) holds for all that the session reads meanwhile.
   */
  private def whateverTheAge(session: SparkSession)(restores: => Unit): Unit = {
    ageless.synchronized {
      val (calls, before) = ageless.getOrElse(session, (0, session.conf.getOption(EnforcesAge)))
      ageless(session) = (calls + 1, before)
      session.conf.set(EnforcesAge, "false")
    }
    try restores
    finally ageless.synchronized {
        val (calls, before) = ageless(session)
        if (calls > 1) ageless(session) = (calls - 1, before)
        else {
          ageless.remove(session)
          before.fold(session.conf.unset(EnforcesAge))(session.conf.set(EnforcesAge, _))
        }
      }
  }

  /** How many threads of a session restore whatever the age, and what was set before the first of them. */
  private val ageless = mutable.Map[SparkSession, (Int, Option[String])]()

  /** A name as Python writes it. */
  private def parts(name: JsonNode): Seq[String] = name.elements().asScala.map(_.asText).toSeq

  /** A name in a statement of Delta's grammar, to which other words than to Spark's are reserved: each part in backquotes. */
  private def written(table: Seq[String]): String = table.map(quoteIdentifier).mkString(".")

  /** So many files that are missing are named. */
  private val ShownFiles = 10

  /** What is set before a procedure that does several things, and released behind it. */
  private val Point = "lockstep_procedure"

  /** The call that a procedure's name and its arguments mean: each is given by its place, or by a parameter's name. */
  def apply(
      catalog: LockstepCatalog,
      procedure: String,
      positional: Seq[Expression],
      named: Seq[(String, Expression)],
      times: Set[String]): ProcedureCall = {
    val answer = catalog.bound(procedure, positional.size, named.map(_._1))
    val parameters = Procedures.typed(answer.get("arguments"))
    val said = positional ++ named.map(_._2)
    // Where nobody can tell before it is evaluated, it is begun as if it changed something; then it changes nothing.
    val isDry = parameters.map(_._1).zip(said).contains("dry_run" -> Literal.TrueLiteral)
    ProcedureCall(
      catalog,
      answer.get("name").asText,
      parameters.map(_._1),
      said,
      // Whatever the session sets: what is no number, or too large, would be NULL or another one, and that is said, too.
      said.zip(parameters).map { case (value, (_, kind)) => Cast(value, kind, None, EvalMode.ANSI) },
      answer.get("changes").asBoolean && !isDry,
      answer.get("needs_transaction").asBoolean && !isDry,
      times,
      Procedures.typed(answer.get("columns")).map { case (name, kind) => AttributeReference(name, kind)() }
    )
  }

  /** Whether what is of a type is of another as it stands, or as a text says it: no truth value is a number, no number a time. */
  private def isOfKind(from: DataType, to: DataType): Boolean = from match {
    case _: StringType => true
    case _ => Cast.canANSIStoreAssign(from, to)
  }

  /** Whether a cast leaves out what comes behind the point. */
  private def mayBeCut(from: DataType, to: DataType): Boolean = from match {
    case _: DecimalType | DoubleType | FloatType => to == LongType || to == IntegerType
    case _ => false
  }

  private def isWhole(number: Any): Boolean = number match {
    case number: Decimal => number.toJavaBigDecimal.stripTrailingZeros.scale <= 0
    case number: Double => number == number.floor
    case number: Float => number == number.floor
    case _ => true // NULL
  }

  private def value(cell: JsonNode, kind: DataType): Any =
    if (cell == null || cell.isNull) null
    else
      kind match {
        case LongType => cell.asLong
        case IntegerType => cell.asInt
        case BooleanType => cell.asBoolean
        case TimestampType => java.time.Instant.EPOCH.plus(cell.asLong, java.time.temporal.ChronoUnit.MICROS)
        case _ => cell.asText
      }
}
