package lockstep.spark.grammar

import lockstep.spark.grammar.Words.{isNumber, isString, multipart, name, unquoted, word}
import org.antlr.v4.runtime.Token
import org.apache.spark.sql.lockstep.LockstepException

/**
 * A statement that says a CALL in words that users know.
 *
 * @param arguments by parameter: texts, numbers, and expressions as `Said`
 * @param table     the name of the table that it is about, in parts, as it was written
 * @param catalog   the catalog that it is about, if it says so
 */
private[spark] case class DatabaseStatement(
    procedure: String,
    arguments: Seq[(String, Any)] = Nil,
    table: Option[Seq[String]] = None,
    catalog: Option[String] = None)

/**
 * The grammar of these statements, over the tokens of Spark's lexer, none of which Spark's or Delta's grammar has:
 *
 * {{{
 * CREATE TAG [IF NOT EXISTS] tag [AS OF (VERSION n | TIMESTAMP time)] [RETAIN n DAYS] [COMMENT 'why']
 * DROP TAG [IF EXISTS] tag
 * UNDROP TABLE name [WITH ID 'id']
 * SHOW (TAGS | TABLES DROPPED | TRANSACTIONS) [(IN | FROM) catalog]
 * RESTORE DATABASE catalog TO (VERSION n | TIMESTAMP time | TAG tag)
 * tag: name | 'name' | IDENTIFIER('name')       time: an expression without columns
 * }}}
 */
private[spark] object DatabaseStatement {
  private val words = "(?i)\\b(tags?|undrop|dropped|restore|transactions)\\b".r

  private val Usage = Map(
    "CREATE TAG" ->
      "CREATE TAG [IF NOT EXISTS] tag [AS OF VERSION n | AS OF TIMESTAMP time] [RETAIN n DAYS] [COMMENT 'text']",
    "DROP TAG" -> "DROP TAG [IF EXISTS] tag",
    "SHOW TAGS" -> "SHOW TAGS [IN catalog]",
    "UNDROP TABLE" -> "UNDROP TABLE name [WITH ID 'id']",
    "SHOW TABLES DROPPED" -> "SHOW TABLES DROPPED [IN catalog]",
    "SHOW TRANSACTIONS" -> "SHOW TRANSACTIONS [IN catalog]",
    "RESTORE DATABASE" -> "RESTORE DATABASE catalog TO {VERSION n | TIMESTAMP time | TAG tag}"
  )

  /** The statement that a text is as a whole, or none. */
  def of(sql: String, parameters: Parameters): Option[DatabaseStatement] =
    if (words.findFirstIn(sql).isEmpty) None
    else {
      val tokens = parameters.in(Tokens.whole(sql)).toList
      Usage.find { case (begin, _) => tokens.map(word).startsWith(begin.split(' ')) }.map { case (begin, usage) =>
        val rest = tokens.drop(begin.split(' ').length)
        parsed(begin, rest).getOrElse(throw new LockstepException(
          "LOCKSTEP_SYNTAX",
          s"`${tokens.map(_.getText).mkString(" ")}` (${Tokens.position(tokens.head)}) is not understood. It is said as $usage.",
          "42601"
        ))
      }
    }

  private def parsed(begin: String, rest: List[Token]): Option[DatabaseStatement] = begin match {
    case "CREATE TAG" =>
      val (exists, after) = skipped(rest, "IF", "NOT", "EXISTS")
      for {
        (tag, more) <- name(after)
        options <- tagOptions(more, Seq.empty)
      } yield DatabaseStatement(
        "create_tag",
        ("tag" -> tag) +: options ++: Option.when(exists)("if_not_exists" -> true).toSeq)
    case "DROP TAG" =>
      val (exists, after) = skipped(rest, "IF", "EXISTS")
      name(after).collect { case (tag, Nil) =>
        DatabaseStatement("drop_tag", ("tag" -> tag) +: Option.when(exists)("if_exists" -> true).toSeq)
      }
    case "SHOW TAGS" => shown("tags", rest)
    case "SHOW TABLES DROPPED" => shown("dropped_tables", rest)
    case "SHOW TRANSACTIONS" => shown("transactions", rest)
    case "UNDROP TABLE" =>
      multipart(rest).flatMap {
        case (parts, Nil) => Some(DatabaseStatement("undrop", table = Some(parts)))
        case (parts, List(by, id, text)) if word(by) == "WITH" && word(id) == "ID" && isString(text) =>
          Some(DatabaseStatement("undrop", Seq("id" -> unquoted(text)), Some(parts)))
        case _ => None
      }
    case "RESTORE DATABASE" =>
      name(rest).flatMap {
        case (catalog, to :: kind :: value) if word(to) == "TO" =>
          val (_, after) = skipped(value, "AS", "OF")
          Moment.of(kind :: after).collect { case (when, Nil) =>
            DatabaseStatement("restore", Seq(when), catalog = Some(catalog))
          }
        case _ => None
      }
  }

  private def shown(procedure: String, rest: List[Token]): Option[DatabaseStatement] = rest match {
    case Nil => Some(DatabaseStatement(procedure))
    case in :: catalog if Set("IN", "FROM").contains(word(in)) =>
      name(catalog).collect { case (each, Nil) => DatabaseStatement(procedure, catalog = Some(each)) }
    case _ => None
  }

  /** With what goes on what says a tag's version by a time. */
  private val AfterTime = Seq(Seq("RETAIN"), Seq("COMMENT"), Seq("AS", "OF"))

  @scala.annotation.tailrec
  private def tagOptions(tokens: List[Token], values: Seq[(String, Any)]): Option[Seq[(String, Any)]] = tokens match {
    case Nil => Option.when(values.map(_._1).distinct.size == values.size)(values)
    case as :: of :: rest if word(as) == "AS" && word(of) == "OF" =>
      Moment.of(rest, AfterTime, withTag = false) match {
        case Some((when, more)) => tagOptions(more, values :+ when)
        case None => None
      }
    case retain :: days :: unit :: rest
        if word(retain) == "RETAIN" && isNumber(days) && Set("DAY", "DAYS").contains(word(unit)) =>
      tagOptions(rest, values :+ ("retain_days" -> BigInt(days.getText)))
    case comment :: text :: rest if word(comment) == "COMMENT" && isString(text) =>
      tagOptions(rest, values :+ ("comment" -> unquoted(text)))
    case _ => None
  }

  private def skipped(tokens: List[Token], expected: String*): (Boolean, List[Token]) =
    if (tokens.map(word).startsWith(expected)) (true, tokens.drop(expected.size)) else (false, tokens)
}
