package lockstep.spark.execution

import com.fasterxml.jackson.databind.JsonNode
import lockstep.spark.LockstepCatalog
import lockstep.spark.catalog.Procedures
import lockstep.spark.grammar.TransactionStatement
import lockstep.spark.statements.StatementScope
import lockstep.spark.transactions.{JudgedByPython, Transactions}
import org.apache.spark.sql.{Row, SparkSession}
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeReference, Cast, Expression}
import org.apache.spark.sql.execution.command.LeafRunnableCommand
import org.apache.spark.sql.lockstep.Internals
import org.apache.spark.sql.types._

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

/**
 * `CALL <catalog>.system.<procedure>(…)`, and the statements that say the same in other words.
 *
 * @param names  the parameters that are given, in the order of `values`
 * @param values what is given, each as the parameter's type
 * @param isOne  whether Delta does a part of it in the same transaction: one of its own, if none is open
 */
private[spark] case class ProcedureCall(
    catalog: LockstepCatalog,
    procedure: String,
    names: Seq[String],
    values: Seq[Expression],
    override val changesSomething: Boolean,
    isOne: Boolean,
    override val output: Seq[Attribute])
    extends LeafRunnableCommand with JudgedByPython {

  override def run(session: SparkSession): Seq[Row] = {
    val arguments = names.zip(Internals.evaluated(session, values)).toMap
    if (isOne && !Transactions.isOpen(session)) inItsOwn(session)(call(session, arguments))
    else call(session, arguments)
  }

  private def call(session: SparkSession, arguments: Map[String, Any]): Seq[Row] = {
    val text = StatementScope.shownText.getOrElse(s"CALL ${catalog.name}.${Procedures.Namespace}.$procedure")
    val answer = Transactions.exclusively(session)(catalog.called(procedure, arguments, text))
    answer.get("restores").elements().asScala.foreach { restore =>
      val table = catalog.name +: restore.get("table").elements().asScala.map(_.asText).toSeq
      session.sql(s"RESTORE TABLE ${LockstepCatalog.quoted(table)} TO VERSION AS OF ${restore.get("version").asLong}")
    }
    answer.get("rows").elements().asScala.map { row =>
      Row.fromSeq(row.elements().asScala.zip(output.iterator).map { case (cell, column) =>
        ProcedureCall.value(cell, column.dataType)
      }.toSeq)
    }.toSeq
  }

  /** In a transaction of its own; what its COMMIT makes is told where the procedure could not know it. */
  private def inItsOwn(session: SparkSession)(rows: => Seq[Row]): Seq[Row] = {
    val transaction = Transactions.exclusively(session) {
      TransactionCommand(TransactionStatement("begin", Map("current" -> catalog.name))).run(session)
      Transactions.block(session, isOpen = true)
      Transactions.current(session)
    }
    try {
      val made = rows
      val version = Transactions.exclusively(session) {
        Transactions.block(session, isOpen = false)
        TransactionCommand(TransactionStatement("commit")).run(session).head.getLong(0)
      }
      val at = output.indexWhere(_.name == "database_version")
      made.map(row => if (at >= 0 && row.isNullAt(at)) Row.fromSeq(row.toSeq.updated(at, version)) else row)
    } catch {
      case cause: Throwable =>
        transaction.foreach { id =>
          try TransactionCommand.abandon(session, id)
          catch { case NonFatal(e) => cause.addSuppressed(e) }
        }
        throw cause
    }
  }
}

private[spark] object ProcedureCall {

  /** The call that a procedure's name and its arguments mean: each is given by its place, or by a parameter's name. */
  def apply(
      catalog: LockstepCatalog,
      procedure: String,
      positional: Seq[Expression],
      named: Seq[(String, Expression)]): ProcedureCall = {
    val answer = catalog.bound(procedure, positional.size, named.map(_._1))
    val parameters = Procedures.typed(answer.get("arguments"))
    ProcedureCall(
      catalog,
      answer.get("name").asText,
      parameters.map(_._1),
      (positional ++ named.map(_._2)).zip(parameters).map { case (value, (_, kind)) => Cast(value, kind) },
      answer.get("changes").asBoolean,
      answer.get("needs_transaction").asBoolean,
      Procedures.typed(answer.get("columns")).map { case (name, kind) => AttributeReference(name, kind)() }
    )
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
