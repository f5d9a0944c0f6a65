package lockstep.spark.grammar

import org.antlr.v4.runtime.{CommonToken, Token}
import org.apache.spark.sql.catalyst.expressions.{Expression, Literal}
import org.apache.spark.sql.catalyst.parser.{
  HybridParameterContext,
  NamedParameterContext,
  ParameterContext,
  ParameterHandler,
  ParseException,
  ParserInterface,
  PositionMapper,
  PositionalParameterContext,
  SqlBaseLexer,
  Substitution
}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.trees.{CurrentOrigin, Origin}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lockstep.LockstepException

/**
 * The values of a statement's parameters. They are put into its text before it is parsed, as Spark does: Spark's own
 * parser would do so, but Delta's stands before it and forgets them (delta-io/delta#7640).
 */
private[spark] class Parameters private (
    context: Option[ParameterContext],
    named: Map[String, String],
    listed: Seq[String]) {

  /** The text with values for its markers; or why Spark's grammar, by which they are found, has no such text. */
  def bySpark(sql: String): Either[ParseException, Filled] =
    try
      Right(context.fold(Filled(sql)) { values =>
        val (flat, mapper) = ParameterHandler.substituteParameters(Parameters.flat(sql), values)
        if (flat == Parameters.flat(sql)) Filled(sql)
        else
          Parameters.filled(
            sql,
            mapper.substitutions.map(each => each.copy(replacement = Parameters.asItStands(each.replacement))))
      })
    catch { case e: ParseException => Left(e) }

  /** The text with values for its markers, found by their words alone: in statements that Spark's grammar has not. */
  def byWords(sql: String): String =
    in(Tokens.of(sql)).foldRight(sql) { (token, text) =>
      text.patch(token.getStartIndex, token.getText, token.getStopIndex + 1 - token.getStartIndex)
    }

  /** Tokens with values for markers, a `?` or a `:` and a name; each value stands where its marker stood. */
  def in(tokens: IndexedSeq[Token]): IndexedSeq[Token] = {
    val places = tokens.indices.filter(tokens(_).getType == SqlBaseLexer.QUESTION).zip(listed).toMap
    def name(at: Int): Option[String] =
      if (tokens(at).getText == ":") tokens.lift(at + 1).map(_.getText).filter(named.contains) else None
    tokens.indices.flatMap { at =>
      if (at > 0 && name(at - 1).isDefined) None
      else
        name(at).map(parameter => Parameters.value(named(parameter), tokens(at), tokens(at + 1)))
          .orElse(places.get(at).map(Parameters.value(_, tokens(at), tokens(at))))
          .orElse(Some(tokens(at)))
    }
  }

  /** Those with a name: which `?` of a script is which, nobody could tell who sees a part of it. */
  def byName: Parameters = new Parameters(context, named, Nil)
}

private[spark] object Parameters {
  val Empty: Parameters = of(NamedParameterContext(Map.empty))

  def of(context: ParameterContext): Parameters = {
    def sql(values: Seq[Any]) = values.map {
      case e: Expression => asItStands(e.sql)
      case value => asItStands(Literal(value).sql)
    }
    context match {
      case NamedParameterContext(values) =>
        new Parameters(
          Option.when(values.nonEmpty)(context),
          values.map { case (name, value) => name -> asItStands(value.sql) },
          Nil)
      case PositionalParameterContext(values) =>
        new Parameters(Option.when(values.nonEmpty)(context), Map.empty, sql(values))
      case HybridParameterContext(values, names) =>
        val named = names.zip(sql(values)).filter(_._1.nonEmpty).toMap
        new Parameters(Option.when(values.nonEmpty)(context), named, sql(values))
    }
  }

  /**
   * A value as SQL, in which `${env:HOME}` and the like mean themselves. Spark's parser puts settings and variables of the
   * environment in the places of these, in the whole text that it is given, and Spark itself does so before it puts values there.
   */
  private def asItStands(sql: String): String =
    if (!sql.contains("${") || !SQLConf.get.variableSubstituteEnabled) sql
    else if (SQLConf.get.escapedStringLiterals)
      throw new LockstepException(
        "LOCKSTEP_UNSUPPORTED",
        "a parameter's value has ${ in it, which Spark would take for a setting, and with spark.sql.parser.escapedStringLiterals " +
          "nothing says that it is none: set spark.sql.variable.substitute to false. Nothing was done",
        "0A000"
      )
    else sql.replace("${", "\\u0024{")

  /**
   * A text with one UTF-16 unit for each character. Spark counts the places of markers in characters, and cuts the text as
   * if it had counted units, so in a text with an emoji before a marker it would cut elsewhere.
   */
  private def flat(sql: String): String =
    if (sql.codePointCount(0, sql.length) == sql.length) sql
    else sql.codePoints.toArray.map(c => if (Character.isSupplementaryCodePoint(c)) '\uFFFD' else c.toChar).mkString

  /** Puts values into a text, at places that are counted in characters; so are those of the answer. */
  private def filled(sql: String, substitutions: List[Substitution]): Filled = {
    val text = substitutions.sortBy(-_.start).foldLeft(sql) { (text, each) =>
      val (start, end) = (text.offsetByCodePoints(0, each.start), text.offsetByCodePoints(0, each.end))
      text.patch(start, each.replacement, end - start)
    }
    Filled(text, substitutions.map(each => each.copy(replacement = flat(each.replacement))))
  }

  private def value(sql: String, first: Token, last: Token): Token = {
    val words = Tokens.of(sql)
    val token = new CommonToken(if (words.size == 1) words.head.getType else Token.INVALID_TYPE, sql)
    token.setStartIndex(first.getStartIndex)
    token.setStopIndex(last.getStopIndex)
    token.setLine(first.getLine)
    token.setCharPositionInLine(first.getCharPositionInLine)
    token
  }
}

/** A text with values where the user's has markers, and which. */
private[spark] case class Filled(text: String, replaced: List[Substitution] = Nil) {

  /** Parses this in place of the user's text: positions in errors, and the texts of statements, are the user's. */
  def parse(user: String)(parser: String => LogicalPlan): LogicalPlan =
    if (text == user)
      mapped(None)(parser(user)) // the text of a view is parsed in the middle of the statement that uses it
    else
      try mapped(Some(PositionMapper(user, text, replaced)))(parser(text))
      catch { case e: ParseException if e.command.isDefined => throw e.withCommand(user) }

  private def mapped(mapper: Option[PositionMapper])(work: => LogicalPlan): LogicalPlan =
    CurrentOrigin.withOrigin(CurrentOrigin.get.copy(positionMapper = mapper))(work)
}

private[spark] object Filled {

  /** Where a node of a plan begins in the user's text, whatever was put in the places of parameters. */
  def start(origin: Origin): Option[Int] =
    origin.startIndex.map(at => origin.positionMapper.fold(at)(_.mapToOriginal(at)))
}

/** A parser that is given a statement's parameters with it. */
private[spark] trait ParameterParser extends ParserInterface {
  protected def parse(sql: String, parameters: Parameters): LogicalPlan

  override def parsePlanWithParameters(sql: String, parameters: ParameterContext): LogicalPlan =
    parse(sql, Parameters.of(parameters))
}
