package lockstep.spark.parser

import lockstep.spark.execution.{AtomicBlock, TransactionCommand}
import lockstep.spark.grammar.{Filled, Parameters, Tokens, TransactionStatement}
import org.antlr.v4.runtime.Token
import org.apache.spark.sql.catalyst.parser.SqlBaseLexer
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.trees.CurrentOrigin

/**
 * `BEGIN … END` with transaction statements inside, and `BEGIN ATOMIC … END`. Spark's grammar of scripts has none of
 * them, and no place for others'. So each is put out of Spark's sight behind a statement of the same length, and put
 * back into the script that Spark makes of the text: every position in an error message stays right.
 */
private[spark] object Script {

  /** What a transaction statement is hidden behind: as short as `BEGIN`, and gone before anybody could run it. */
  private val Placeholder = "USE x"

  /** Words after which a statement of a script begins; it also does behind what a handler is for. */
  private val Before = Set("BEGIN", "ATOMIC", ";", "THEN", "ELSE", "DO", "LOOP", "REPEAT")

  /** Parses a text with Spark's parser, whether or not it is such a script. */
  def parse(sql: String, parameters: Parameters)(parser: String => LogicalPlan): LogicalPlan =
    if (!Tokens.maySayTransaction(sql)) parser(sql)
    else {
      val tokens = Tokens.whole(sql)
      val isScript = tokens.size > 2 && tokens.head.getType == SqlBaseLexer.BEGIN &&
        tokens.last.getType == SqlBaseLexer.END
      if (isScript) parse(sql, tokens, parameters.byName)(parser) else parser(sql)
    }

  private def parse(sql: String, tokens: IndexedSeq[Token], parameters: Parameters)(
      parser: String => LogicalPlan): LogicalPlan = {
    val atomic = Option(tokens(1)).filter(_.getType == SqlBaseLexer.ATOMIC)
    val hidden = transactionStatements(tokens, parameters)
    val blanked = atomic.fold(sql)(word => masked(sql, word, word, ""))
    // From the last one on: the places of those before it stay what they are.
    val text = hidden.foldRight(blanked) { case (Hidden(first, last, _), masking) =>
      masked(masking, first, last, Placeholder)
    }
    val statements = hidden.map(h => Tokens.inCharacters(sql, h.first.getStartIndex) -> h.statement).toMap
    parser(text) match {
      case body: CompoundBody if atomic.isDefined => AtomicBlock(restored(body, statements))
      case body: CompoundBody => restored(body, statements)
      case other => other
    }
  }

  private case class Hidden(first: Token, last: Token, statement: TransactionStatement)

  /** Those of a script, each as a whole: up to its semicolon. */
  private def transactionStatements(tokens: IndexedSeq[Token], parameters: Parameters): Seq[Hidden] = {
    val handled = handlers(tokens).toSet
    tokens.indices.drop(1).filter(at => Before.contains(word(tokens(at - 1))) || handled(at)).flatMap { at =>
      val statement = tokens.drop(at).takeWhile(_.getType != SqlBaseLexer.SEMICOLON)
      val ends = at + statement.size < tokens.size
      // Behind THEN or ELSE it is a column that ends a CASE: `ELSE release END`.
      val isValue = statement.lastOption.exists(_.getType == SqlBaseLexer.END)
      if (ends && statement.nonEmpty && !isValue)
        TransactionStatement.of(parameters.in(statement)).map(Hidden(statement.head, statement.last, _))
      else None
    }
  }

  /** Where what handlers do begins: behind `HANDLER FOR` and what they are for. */
  private def handlers(tokens: IndexedSeq[Token]): Seq[Int] = {
    @scala.annotation.tailrec
    def behind(at: Int): Int = {
      val end = tokens.slice(at, at + 3).map(word).toList match {
        case "SQLSTATE" :: "VALUE" :: _ => at + 3
        case ("SQLSTATE" | "NOT") :: _ => at + 2
        case _ => at + 1 + 2 * (tokens.drop(at + 1).grouped(2).takeWhile(two => word(two.head) == ".").size)
      }
      if (tokens.lift(end).exists(word(_) == ",")) behind(end + 1) else end
    }
    tokens.indices.filter(at => tokens.slice(at, at + 2).map(word) == Seq("HANDLER", "FOR")).map(at => behind(at + 2))
  }

  private def word(token: Token): String = token.getText.toUpperCase(java.util.Locale.ROOT)

  /** With a space in the place of each character of some words, but for what is put there, and for the ends of lines. */
  private def masked(sql: String, first: Token, last: Token, by: String): String = {
    val hidden = sql.substring(first.getStartIndex, last.getStopIndex + 1)
    val blank = hidden.codePoints.toArray.map(c => if (c == '\n' || c == '\r') c.toChar else ' ').mkString
    sql.patch(first.getStartIndex, by + blank.drop(by.length), hidden.length)
  }

  /** Puts the hidden statements back. By hand: Spark's `transform` of scripts forgets their handlers. */
  private def restored(body: CompoundBody, statements: Map[Int, TransactionStatement]): CompoundBody = {
    var putBack = 0
    def each(node: CompoundPlanStatement): CompoundPlanStatement = CurrentOrigin.withOrigin(node.origin)(node match {
      case inner: CompoundBody => in(inner)
      case n: IfElseStatement => n.copy(conditionalBodies = n.conditionalBodies.map(in), elseBody = n.elseBody.map(in))
      case n: SearchedCaseStatement =>
        n.copy(conditionalBodies = n.conditionalBodies.map(in), elseBody = n.elseBody.map(in))
      case n: SimpleCaseStatement =>
        n.copy(conditionalBodies = n.conditionalBodies.map(in), elseBody = n.elseBody.map(in))
      case n: WhileStatement => n.copy(body = in(n.body))
      case n: RepeatStatement => n.copy(body = in(n.body))
      case n: LoopStatement => n.copy(body = in(n.body))
      case n: ForStatement => n.copy(body = in(n.body))
      case single: SingleStatement =>
        // That of a handler says of itself where the handler begins.
        val hidden =
          Seq(single.origin, single.parsedPlan.origin).flatMap(Filled.start).flatMap(statements.get).headOption
        hidden.foreach(_ => putBack += 1)
        hidden.fold(single)(statement => SingleStatement(TransactionCommand(statement)))
      case other => other
    })
    def in(body: CompoundBody): CompoundBody = body.copy(
      collection = body.collection.map(each),
      handlers = body.handlers.map(handler => handler.copy(body = in(handler.body))))
    val whole = in(body)
    if (putBack != statements.size)
      throw new IllegalStateException(s"$putBack of ${statements.size} transaction statements were found in the script")
    whole
  }
}
