package lockstep.spark.grammar

import org.antlr.v4.runtime.{CharStream, CharStreams, CommonToken, CommonTokenStream, Token}
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
    val tokens =
      stream.getTokens.asScala.filter(t => t.getChannel == Token.DEFAULT_CHANNEL && t.getType != Token.EOF).toIndexedSeq
    if (sql.codePointCount(0, sql.length) < sql.length) tokens.foreach(inUtf16(sql, _))
    tokens
  }

  /** Has a token say where it stands as Java counts: ANTLR counts a character beyond the basic plane once, Java twice. */
  private def inUtf16(sql: String, token: Token): Unit = token match {
    case token: CommonToken =>
      token.setText(token.getText) // what it is asked for later would be looked up by its place
      token.setStopIndex(sql.offsetByCodePoints(0, token.getStopIndex + 1) - 1)
      token.setStartIndex(sql.offsetByCodePoints(0, token.getStartIndex))
    case other => throw new IllegalStateException(s"Spark's lexer makes tokens of ${other.getClass.getName}")
  }

  /** Where a place is, as nodes of Spark's plans count: by characters, of which those beyond the basic plane are one. */
  def inCharacters(sql: String, place: Int): Int = sql.codePointCount(0, place)

  private val verbs = "(?i)\\b(abort|begin|start|commit|rollback|savepoint|release|transaction)\\b|^\\s*end\\b".r
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
      val statement = TransactionStatement.of(tokens)
      if (statement.isEmpty) TransactionStatement.refuse(tokens)
      statement
    }

  /**
   * Rewrites `SYSTEM_VERSION AS OF 7` to `VERSION AS OF '@7'`, which Spark hands to the catalog as it stands, while
   * `VERSION AS OF 7` keeps Delta's meaning. The length stays the same, so every position in an error message is right.
   */
  def rewriteSystemVersion(sql: String): String =
    if (systemVersion.findFirstIn(sql).isEmpty) sql
    else {
      val tokens = of(sql)
      val isDeltas = isDeltaStatement(tokens)
      tokens.sliding(4).foldLeft(sql) {
        case (text, Seq(keyword, as, of, version))
            if keyword.getType == SqlBaseLexer.SYSTEM_VERSION && as.getType == SqlBaseLexer.AS &&
              of.getType == SqlBaseLexer.OF =>
          val (start, end) = (keyword.getStartIndex, version.getStopIndex + 1)
          val between = text.substring(keyword.getStopIndex + 1, version.getStartIndex)
          val value = if (isDeltas) number(version) else quoted(version)
          val padding = " " * (end - start - "VERSION".length - between.length - value.length)
          text.patch(start, s"VERSION$padding$between$value", end - start)
        case (text, _) => text
      }
    }

  private val systemTravel = "(?i)\\bsystem_(version|time)\\b".r

  /** Whether a statement of Delta's own grammar, which would take the words for its own, says SYSTEM_VERSION or SYSTEM_TIME. */
  def isDeltaTravel(sql: String): Boolean = systemTravel.findFirstIn(sql).isDefined && {
    val tokens = of(sql)
    isDeltaStatement(tokens) && tokens.sliding(3).exists(_.map(_.getType) match {
      case Seq(SqlBaseLexer.SYSTEM_VERSION | SqlBaseLexer.SYSTEM_TIME, SqlBaseLexer.AS, SqlBaseLexer.OF) => true
      case _ => false
    })
  }

  /** RESTORE, or a clone: Spark's grammar has neither. */
  private def isDeltaStatement(tokens: IndexedSeq[Token]): Boolean = {
    val words = tokens.map(_.getText.toUpperCase(java.util.Locale.ROOT))
    words.headOption.contains("RESTORE") || words.containsSlice(Seq("SHALLOW", "CLONE"))
  }

  /** Undoes `rewriteSystemVersion`, in the text of a view: there it must not show. */
  def restoreSystemVersion(sql: String): String =
    if (!sql.contains("@")) sql
    else
      of(sql).sliding(4).toSeq.reverse.foldLeft(sql) {
        case (text, Seq(keyword, as, of, version))
            if keyword.getType == SqlBaseLexer.VERSION && as.getType == SqlBaseLexer.AS &&
              of.getType == SqlBaseLexer.OF && isString(version.getText) && version.getText.startsWith("@", 1) =>
          val marked = version.getText
          val bare = marked.drop(2).dropRight(1)
          val value = if (bare.forall(_.isDigit)) bare else s"${marked.head}$bare${marked.last}"
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
    else throw noVersion(version)
  }

  /** A version as Delta's grammar has it, where the mark would be none. */
  private def number(version: Token): String = {
    val text = version.getText
    val digits = if (isString(text)) text.substring(1, text.length - 1) else text
    if (digits.nonEmpty && digits.forall(c => c >= '0' && c <= '9')) digits else throw noVersion(version)
  }

  private def noVersion(version: Token) = new LockstepException(
    "LOCKSTEP_SYNTAX",
    s"SYSTEM_VERSION AS OF takes a number, or a parameter with such a value, not `${version.getText}` (${position(version)}).",
    "42601"
  )

  /** Where a token stands, in the words of Spark's own errors. */
  def position(token: Token): String = s"line ${token.getLine}, pos ${token.getCharPositionInLine}"

  private def isString(text: String) = text.startsWith("'") || text.startsWith("\"")

  /** Whether a statement has a USING clause. */
  def saysUsing(sql: String): Boolean = of(sql).exists(_.getType == SqlBaseLexer.USING)

  /** Whether the expression that starts at this character follows the words `SYSTEM_TIME AS OF`. */
  def followsSystemTime(sql: String, position: Int): Boolean = {
    val before =
      of(sql).takeWhile(token => inCharacters(sql, token.getStartIndex) < position).reverse.dropWhile(_.getText ==
        "(").take(3)
    before.map(_.getType) == Seq(SqlBaseLexer.OF, SqlBaseLexer.AS, SqlBaseLexer.SYSTEM_TIME)
  }

  /** Whether a statement asks for what changed between times, of the database or of a table. */
  def saysChangesOfTimes(sql: String): Boolean =
    of(sql).map(_.getText.toUpperCase(java.util.Locale.ROOT)).sliding(3).exists {
      case Seq("CHANGES", "FROM", "SYSTEM_TIME" | "TIMESTAMP") => true
      case _ => false
    }

  /** Whether the first `CHANGES FROM …` from a character on counts versions, or times, of the database. */
  def changesOfSystem(sql: String, position: Int): Boolean = {
    val words = of(sql).dropWhile(token => inCharacters(sql, token.getStartIndex) < position)
      .map(_.getText.toUpperCase(java.util.Locale.ROOT))
    words.sliding(3).collectFirst {
      case Seq("CHANGES", "FROM", of) if Set("SYSTEM_VERSION", "SYSTEM_TIME", "VERSION", "TIMESTAMP").contains(of) =>
        of.startsWith("SYSTEM")
    }.contains(true)
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
