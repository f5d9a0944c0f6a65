package lockstep.spark

import org.antlr.v4.runtime.{CharStream, CharStreams, CommonTokenStream, Token}
import org.antlr.v4.runtime.misc.Interval
import org.apache.spark.sql.catalyst.parser.SqlBaseLexer
import org.apache.spark.sql.lockstep.LockstepException

import scala.jdk.CollectionConverters._

/**
 * What can be said about a statement from its words alone. Spark's own lexer decides what is a word, a comment or a
 * string, so text inside strings and comments is never touched.
 */
private[spark] object Tokens {

  /** The tokens that matter, in order: no white space, no comments, no end-of-file mark. */
  def of(sql: String): IndexedSeq[Token] = {
    val lexer = new SqlBaseLexer(new UpperCase(CharStreams.fromString(sql)))
    lexer.removeErrorListeners()
    val stream = new CommonTokenStream(lexer)
    stream.fill()
    stream.getTokens.asScala.filter(t => t.getChannel == Token.DEFAULT_CHANNEL && t.getType != Token.EOF).toIndexedSeq
  }

  private val verbs = "(?i)\\b(begin|start|commit|rollback|savepoint|release)\\b".r
  private val systemVersion = "(?i)\\bsystem_version\\b".r

  /** Whether a text has a word that transaction statements begin with: most have none, and need not be read twice. */
  def maySayTransaction(sql: String): Boolean = verbs.findFirstIn(sql).isDefined

  /** The tokens of a statement, without the semicolons at its end. */
  def whole(sql: String): IndexedSeq[Token] = of(sql).reverse.dropWhile(_.getType == SqlBaseLexer.SEMICOLON).reverse

  /** The transaction statement that this text is as a whole, or none: a prefix is never enough. */
  def statement(sql: String, parameters: Parameters): Option[TransactionStatement] =
    if (!maySayTransaction(sql)) None
    else {
      val tokens = parameters.in(whole(sql))
      val found = TransactionStatement.of(tokens)
      if (found.isEmpty) TransactionStatement.refuseSavepoint(tokens)
      found
    }

  /**
   * Rewrites `SYSTEM_VERSION AS OF 7` to `VERSION AS OF '@7'`, which Spark hands to the catalog as it stands, while
   * `VERSION AS OF 7` keeps Delta's meaning. The length stays the same, so every position in an error message is right.
   */
  def rewriteSystemVersion(sql: String): String =
    if (systemVersion.findFirstIn(sql).isEmpty) sql
    else
      of(sql).sliding(4).foldLeft(sql) {
        case (text, Seq(keyword, as, of, version))
            if keyword.getType == SqlBaseLexer.SYSTEM_VERSION && as.getType == SqlBaseLexer.AS &&
              of.getType == SqlBaseLexer.OF =>
          val (start, end) = (keyword.getStartIndex, version.getStopIndex + 1)
          val between = text.substring(keyword.getStopIndex + 1, version.getStartIndex)
          val value = quoted(version)
          val padding = " " * (end - start - "VERSION".length - between.length - value.length)
          text.patch(start, s"VERSION$padding$between$value", end - start)
        case (text, _) => text
      }

  /** Undoes `rewriteSystemVersion`, in the text of a view: there it must not show. */
  def restoreSystemVersion(sql: String): String =
    if (!sql.contains("@")) sql
    else
      of(sql).sliding(4).toSeq.reverse.foldLeft(sql) {
        case (text, Seq(keyword, as, of, version))
            if keyword.getType == SqlBaseLexer.VERSION && as.getType == SqlBaseLexer.AS &&
              of.getType == SqlBaseLexer.OF && isString(version.getText) && version.getText.startsWith("@", 1) =>
          val value = version.getText.drop(2).dropRight(1)
          text.patch(
            keyword.getStartIndex,
            s"SYSTEM_VERSION AS OF $value",
            version.getStopIndex + 1 - keyword.getStartIndex)
        case (text, _) => text
      }

  /** A version with the mark of a database version; what is neither a number nor a string cannot be one. */
  private def quoted(version: Token): String = {
    val text = version.getText
    if (isString(text)) s"${text.head}@${text.substring(1)}"
    else if (text.forall(_.isDigit)) s"'@$text'"
    else
      throw new LockstepException(
        "LOCKSTEP_SYNTAX",
        s"SYSTEM_VERSION AS OF takes a number, or a parameter with such a value, not `$text` (${position(version)}).",
        "42601")
  }

  /** Where a token stands, in the words of Spark's own errors. */
  def position(token: Token): String = s"line ${token.getLine}, pos ${token.getCharPositionInLine}"

  private def isString(text: String) = text.startsWith("'") || text.startsWith("\"")

  /** Whether a statement has a USING clause (or a join's: then it has to say its table's format itself). */
  def saysUsing(sql: String): Boolean = of(sql).exists(_.getType == SqlBaseLexer.USING)

  /** Whether the expression that starts at `position` follows the words `SYSTEM_TIME AS OF`. */
  def followsSystemTime(sql: String, position: Int): Boolean = {
    val before = of(sql).takeWhile(_.getStartIndex < position).reverse.dropWhile(_.getText == "(").take(3)
    before.map(_.getType) == Seq(SqlBaseLexer.OF, SqlBaseLexer.AS, SqlBaseLexer.SYSTEM_TIME)
  }

  /** Spark's keywords are upper case to its lexer; the text of a token stays as it was written. */
  private class UpperCase(chars: CharStream) extends CharStream {
    override def LA(i: Int): Int = {
      val c = chars.LA(i)
      if (c <= 0) c else Character.toUpperCase(c)
    }
    override def getText(interval: Interval): String = chars.getText(interval)
    override def consume(): Unit = chars.consume()
    override def mark(): Int = chars.mark()
    override def release(marker: Int): Unit = chars.release(marker)
    override def index(): Int = chars.index()
    override def seek(index: Int): Unit = chars.seek(index)
    override def size(): Int = chars.size()
    override def getSourceName: String = chars.getSourceName
  }
}
