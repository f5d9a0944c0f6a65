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

  /** What a transaction statement is hidden behind: as short as `COMMIT`, and gone before anybody could run it. */
  private val Placeholder = "USE  x"

  /** Words after which a statement of a script begins. */
  private val Before =
    Set("BEGIN", "ATOMIC", ";", ":", "THEN", "ELSE", "DO", "LOOP", "REPEAT", "SQLEXCEPTION", "FOUND")

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
    val text = hidden.foldLeft(blanked) { case (masking, Hidden(first, last, _)) =>
      masked(masking, first, last, Placeholder)
    }
    val statements = hidden.map(h => Tokens.inCharacters(text, h.first.getStartIndex) -> h.statement).toMap
    parser(text) match {
      case body: CompoundBody if atomic.isDefined => AtomicBlock(restored(body, statements))
      case body: CompoundBody => restored(body, statements)
      case other => other
    }
  }

  private case class Hidden(first: Token, last: Token, statement: TransactionStatement)

  /** Those of a script, each as a whole: up to its semicolon. */
  private def transactionStatements(tokens: IndexedSeq[Token], parameters: Parameters): Seq[Hidden] =
    tokens.indices.drop(1).filter(at => Before.contains(word(tokens(at - 1)))).flatMap { at =>
      val statement = tokens.drop(at).takeWhile(_.getType != SqlBaseLexer.SEMICOLON)
      val ends = at + statement.size < tokens.size
      if (ends && statement.nonEmpty)
        TransactionStatement.of(parameters.in(statement)).map(Hidden(statement.head, statement.last, _))
      else None
    }

  private def word(token: Token): String = token.getText.toUpperCase(java.util.Locale.ROOT)

  private def masked(sql: String, first: Token, last: Token, by: String): String = {
    val length = last.getStopIndex + 1 - first.getStartIndex
    sql.patch(first.getStartIndex, by.padTo(length, ' '), length)
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
        val hidden = Filled.start(single.origin).flatMap(statements.get)
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
