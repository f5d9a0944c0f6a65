package lockstep.spark.grammar

import org.antlr.v4.runtime.Token
import org.apache.spark.sql.catalyst.parser.{ParseException, ParserInterface}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.trees.Origin

/** The values of a statement's parameters. This Spark binds them after it has parsed: a parser sees markers. */
private[spark] class Parameters private () {
  def bySpark(sql: String): Either[ParseException, Filled] = Right(Filled(sql))
  def byWords(sql: String): String = sql
  def in(tokens: IndexedSeq[Token]): IndexedSeq[Token] = tokens
  def byName: Parameters = this
}

private[spark] object Parameters {
  val Empty = new Parameters()
}

private[spark] case class Filled(text: String) {

  /** Parses this in place of the user's text, which errors quote. */
  def parse(user: String)(parser: String => LogicalPlan): LogicalPlan =
    try parser(text)
    catch { case e: ParseException if text != user && e.command.isDefined => throw e.withCommand(user) }
}

private[spark] object Filled {

  /** Where a node of a plan begins in the user's text. */
  def start(origin: Origin): Option[Int] = origin.startIndex
}

private[spark] trait ParameterParser extends ParserInterface {
  protected def parse(sql: String, parameters: Parameters): LogicalPlan
}
