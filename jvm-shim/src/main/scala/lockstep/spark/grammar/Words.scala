package lockstep.spark.grammar

import org.antlr.v4.runtime.Token
import org.apache.spark.sql.catalyst.parser.SqlBaseLexer

/** The words of statements of Lockstep's own, and the names that they say. */
private[grammar] object Words {

  def word(token: Token): String = token.getText.toUpperCase(java.util.Locale.ROOT)

  def isString(token: Token): Boolean = token.getType == SqlBaseLexer.STRING_LITERAL

  def isNumber(token: Token): Boolean = token.getType == SqlBaseLexer.INTEGER_VALUE && token.getText.length <= 18

  def unquoted(token: Token): String =
    org.apache.spark.sql.catalyst.util.SparkParserUtils.unescapeSQLString(token.getText)

  /** A name of one part, which may be a text, or `IDENTIFIER('name')`; and what follows. */
  def name(tokens: List[Token]): Option[(String, List[Token])] = tokens match {
    case text :: rest if isString(text) => Some(unquoted(text) -> rest)
    case clause :: open :: text :: close :: rest
        if word(clause) == "IDENTIFIER" && open.getText == "(" && isString(text) && close.getText == ")" =>
      Some(unquoted(text) -> rest)
    case one :: rest => part(one).map(_ -> rest)
    case Nil => None
  }

  /** A name of any number of parts, and what follows. */
  def multipart(tokens: List[Token]): Option[(Seq[String], List[Token])] = tokens match {
    case one :: dot :: rest if dot.getText == "." =>
      for (first <- part(one); (others, more) <- multipart(rest)) yield (first +: others, more)
    case one :: rest => part(one).map(Seq(_) -> rest)
    case Nil => None
  }

  private def part(token: Token): Option[String] =
    if (token.getType == SqlBaseLexer.BACKQUOTED_IDENTIFIER)
      Some(token.getText.stripPrefix("`").stripSuffix("`").replace("``", "`"))
    else Some(token.getText).filter(_.matches("[A-Za-z_0-9]*[A-Za-z_][A-Za-z_0-9]*"))
}
