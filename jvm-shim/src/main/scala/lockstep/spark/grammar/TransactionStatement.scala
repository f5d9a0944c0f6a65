package lockstep.spark.grammar

import lockstep.spark.grammar.Words.{unquoted, word}
import org.antlr.v4.runtime.Token
import org.apache.spark.sql.catalyst.parser.SqlBaseLexer
import org.apache.spark.sql.lockstep.LockstepException

/** BEGIN, COMMIT, ROLLBACK or a statement about a savepoint as it was written; options are named as Python names them. */
private[spark] case class TransactionStatement(verb: String, options: Map[String, Any] = Map.empty)

/**
 * The grammar of the transaction statements, over the tokens of Spark's lexer:
 *
 * {{{
 * (BEGIN [TRANSACTION | WORK] | START TRANSACTION) option*       COMMIT [TRANSACTION | WORK]       ROLLBACK [TRANSACTION | WORK]
 * SAVEPOINT name       ROLLBACK [TRANSACTION | WORK] TO [SAVEPOINT] name       RELEASE [SAVEPOINT] name
 * option: ISOLATION LEVEL (SNAPSHOT | SERIALIZABLE) | READ ONLY | READ WRITE | COMMENT 'why' |
 *         AS OF (VERSION n | TIMESTAMP time | TAG tag)       commas between options are allowed
 * }}}
 *
 * `BEGIN SELECT 1; END` is a Spark script and stays one: a text is claimed only when it can be nothing else. After
 * `BEGIN TRANSACTION`, `START TRANSACTION` and `BEGIN ISOLATION LEVEL` it can, so what follows is judged here.
 */
private[spark] object TransactionStatement {

  def of(tokens: IndexedSeq[Token]): Option[TransactionStatement] =
    tokens.map(word).toList match {
      case "COMMIT" :: end if isEnd(end) => Some(TransactionStatement("commit"))
      case "ROLLBACK" :: end if isEnd(end) => Some(TransactionStatement("rollback"))
      case "ROLLBACK" :: ("TRANSACTION" | "WORK") :: "TO" :: _ => named("rollback_to", tokens.drop(3))
      case "ROLLBACK" :: "TO" :: _ => named("rollback_to", tokens.drop(2))
      case "SAVEPOINT" :: _ =>
        name(tokens.drop(1).toList).map(text => TransactionStatement("savepoint", Map("name" -> text)))
      case "RELEASE" :: _ => named("release", tokens.drop(1))
      case "START" :: "TRANSACTION" :: _ => Some(begin(tokens.drop(2)))
      case "BEGIN" :: ("TRANSACTION" | "WORK") :: _ => Some(begin(tokens.drop(2)))
      case "BEGIN" :: "ISOLATION" :: "LEVEL" :: _ => Some(begin(tokens.drop(1)))
      case "BEGIN" :: _ => options(tokens.drop(1), Map.empty).toOption.map(TransactionStatement("begin", _))
      case _ => None
    }

  /**
   * Refuses a whole text that can be nothing of Spark's, and is not quite a transaction statement: what Spark would say of
   * it is about the words that it expected.
   */
  def refuse(tokens: IndexedSeq[Token]): Unit = {
    lazy val text = s"${tokens.map(_.getText).mkString(" ")} (${Tokens.position(tokens.head)})"
    val isScript = tokens.exists(token => token.getType == SqlBaseLexer.BEGIN || token.getType == SqlBaseLexer.END)
    tokens.map(word).toList match {
      case "END" :: rest if isEnd(rest) =>
        throw misunderstood(s"$text ends a block, and there is none: COMMIT ends a transaction.")
      case "ABORT" :: rest if isEnd(rest) => throw misunderstood(s"$text is not understood: say ROLLBACK.")
      case "SET" :: "TRANSACTION" :: ("ISOLATION" | "READ") :: _ =>
        throw misunderstood(
          s"$text is not understood: say it at BEGIN, as BEGIN ISOLATION LEVEL SNAPSHOT, READ ONLY, or of all transactions of " +
            "the session: SET lockstep.isolation = SNAPSHOT.")
      case "START" :: _ => throw misunderstood(s"$text is not understood: say START TRANSACTION, or BEGIN.")
      case "BEGIN" :: _ if !tokens.exists(_.getType == SqlBaseLexer.END) => begin(tokens.drop(1)): Unit
      case ("SAVEPOINT" | "RELEASE") :: _ if !isScript => throw noName(text)
      case "ROLLBACK" :: rest if !isScript && rest.dropWhile(Set("TRANSACTION", "WORK")).headOption.contains("TO") =>
        throw noName(text)
      case _ =>
    }
  }

  private def noName(text: String) = misunderstood(
    s"$text is not understood: SAVEPOINT, ROLLBACK TO and RELEASE take one name, plain or in backquotes, or " +
      "IDENTIFIER('name'), whose text may be a parameter.")

  private def misunderstood(message: String) = new LockstepException("LOCKSTEP_SYNTAX", message, "42601")

  private def isEnd(words: List[String]): Boolean = words match {
    case Nil | List("TRANSACTION") | List("WORK") => true
    case _ => false
  }

  /** `[SAVEPOINT] name`. */
  private def named(verb: String, tokens: IndexedSeq[Token]): Option[TransactionStatement] = {
    val rest = if (tokens.headOption.exists(word(_) == "SAVEPOINT") && tokens.size > 1) tokens.drop(1) else tokens
    name(rest.toList).map(savepoint => TransactionStatement(verb, Map("name" -> savepoint)))
  }

  /** A name, plain or quoted, or `IDENTIFIER('name')`, whose text may be a parameter, as everywhere in Spark. */
  private def name(tokens: List[Token]): Option[String] = tokens match {
    case List(one) if one.getType == SqlBaseLexer.BACKQUOTED_IDENTIFIER =>
      Some(one.getText.stripPrefix("`").stripSuffix("`").replace("``", "`"))
    case List(one) => Some(one.getText).filter(_.matches("[A-Za-z_][A-Za-z_0-9]*"))
    case List(clause, open, text, close)
        if word(clause) == "IDENTIFIER" && open.getText == "(" && text.getType == SqlBaseLexer.STRING_LITERAL &&
          close.getText == ")" =>
      Some(unquoted(text)).filter(_.nonEmpty)
    case _ => None
  }

  private val PartOfBlock =
    " This is a part of a block: in a file of spark-sql, each semicolon inside of one has a backslash before it."

  private def begin(tokens: IndexedSeq[Token]): TransactionStatement =
    options(tokens, Map.empty) match {
      case Right(options) => TransactionStatement("begin", options)
      case Left(unexpected) =>
        throw misunderstood(
          s"BEGIN does not understand `${unexpected.getText}` (${Tokens.position(unexpected)}); it takes ISOLATION LEVEL " +
            "{SNAPSHOT | SERIALIZABLE}, READ ONLY, READ WRITE, AS OF {VERSION n | TIMESTAMP time | TAG name} and " +
            "COMMENT 'text', whose values may be parameters." + (if (word(unexpected) == "ATOMIC") PartOfBlock else ""))
    }

  @scala.annotation.tailrec
  private def options(tokens: IndexedSeq[Token], values: Map[String, Any]): Either[Token, Map[String, Any]] =
    tokens.take(3).map(word).toList match {
      case Nil => Right(values)
      case "AS" :: "OF" :: _ :: Nil if tokens.size > 3 && !values.keys.exists(_.startsWith("as_of")) =>
        Moment.of(tokens.drop(2).toList, AfterTime) match {
          case Some(((key, value), rest)) => options(rest.toIndexedSeq, values + (s"as_of_$key" -> value))
          case None => Left(tokens(2))
        }
      case "," :: _ if values.nonEmpty && tokens.size > 1 => options(tokens.drop(1), values)
      case "ISOLATION" :: "LEVEL" :: (level @ ("SNAPSHOT" | "SERIALIZABLE")) :: Nil =>
        options(tokens.drop(3), values + ("isolation" -> level))
      case "ISOLATION" :: "LEVEL" :: _ :: Nil => Left(tokens(2))
      case "READ" :: (mode @ ("ONLY" | "WRITE")) :: _ =>
        options(tokens.drop(2), values + ("read_only" -> (mode == "ONLY")))
      case "COMMENT" :: _ :: _ if tokens(1).getType == SqlBaseLexer.STRING_LITERAL =>
        options(tokens.drop(2), values + ("comment" -> unquoted(tokens(1))))
      case _ => Left(tokens.head)
    }

  /** With what goes on what says a snapshot by a time. */
  private val AfterTime =
    Seq(Seq("ISOLATION", "LEVEL"), Seq("READ", "ONLY"), Seq("READ", "WRITE"), Seq("COMMENT"), Seq("AS", "OF"))
}
