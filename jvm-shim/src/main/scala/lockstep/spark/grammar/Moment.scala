package lockstep.spark.grammar

import lockstep.spark.grammar.Words.{isNumber, isString, name, word}
import org.antlr.v4.runtime.Token
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.parser.{ParseException, ParserInterface, SqlBaseLexer}
import org.apache.spark.sql.catalyst.trees.TreePattern.PLAN_EXPRESSION
import org.apache.spark.sql.lockstep.LockstepException

/** An expression in a statement of Lockstep's own grammar, as text. */
private[spark] case class Said(sql: String) {

  def parsed(parser: ParserInterface): Expression =
    try {
      val time = parser.parseExpression(sql)
      if (time.containsPattern(PLAN_EXPRESSION)) throw noTime else time
    } catch {
      case _: ParseException => throw noTime
    }

  private def noTime =
    new LockstepException(
      "LOCKSTEP_SYNTAX",
      s"`$sql` is no time: write it as '2026-01-31 12:00:00', or as an expression of SQL, such as " +
        "current_timestamp() - INTERVAL 1 HOUR.",
      "42601"
    )
}

/**
 * A database version as statements of Lockstep's own say it: `VERSION n`, `TIMESTAMP time`, `TAG tag`. A time is an expression
 * without columns: a text, a literal, a parameter, what functions say.
 */
private[grammar] object Moment {

  /**
   * What it says, by the name of a parameter: a number, a text, or what is `Said`; and what follows.
   *
   * @param ends words with which something else begins, behind a time
   */
  def of(
      tokens: List[Token],
      ends: Seq[Seq[String]] = Nil,
      withTag: Boolean = true): Option[((String, Any), List[Token])] =
    tokens match {
      case kind :: value :: rest if word(kind) == "VERSION" && isNumber(value) =>
        Some(("version" -> value.getText.toLong) -> rest)
      case kind :: rest if word(kind) == "TIMESTAMP" =>
        val (time, more) = rest.splitAt(length(rest, ends))
        Option.when(isTime(time))(("timestamp" -> Said(time.map(_.getText).mkString(" "))) -> more)
      case kind :: rest if withTag && word(kind) == "TAG" =>
        name(rest).map { case (tag, more) => ("tag" -> tag) -> more }
      case _ => None
    }

  /** How many tokens an expression has: up to a comma outside of parentheses, or to words that end it. */
  private def length(tokens: List[Token], ends: Seq[Seq[String]]): Int = {
    val words = tokens.map(word)
    val depths = words.scanLeft(0) {
      case (depth, "(") => depth + 1
      case (depth, ")") => depth - 1
      case (depth, _) => depth
    }
    words.indices.find { at =>
      depths(at) == 0 && (words(at) == "," || ends.exists(end => words.drop(at).startsWith(end)))
    }.getOrElse(words.size)
  }

  /** One word is a text, the value of a parameter, or a function that needs no parentheses. A query is no expression here. */
  private def isTime(tokens: List[Token]): Boolean = tokens match {
    case Nil => false
    case List(one) =>
      isString(one) || Set(Token.INVALID_TYPE, SqlBaseLexer.CURRENT_TIMESTAMP, SqlBaseLexer.CURRENT_DATE).contains(
        one.getType)
    case several => !several.exists(token => Set("SELECT", ";").contains(word(token)))
  }
}
