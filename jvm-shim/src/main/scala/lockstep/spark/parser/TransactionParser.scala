package lockstep.spark.parser

import lockstep.spark.LockstepCatalog
import lockstep.spark.analysis.{CatalogNames, DeltaTravel, ProcedureCalls, SessionNames, StatementRule}
import lockstep.spark.catalog.Procedures
import lockstep.spark.execution.TransactionCommand
import lockstep.spark.grammar.{DatabaseStatement, Filled, ParameterParser, Parameters, Said, Tokens}
import lockstep.spark.statements.{AnalyzedQuery, StatementText}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.{FunctionIdentifier, TableIdentifier}
import org.apache.spark.sql.catalyst.analysis.UnresolvedProcedure
import org.apache.spark.sql.catalyst.expressions.{Expression, Literal, NamedArgumentExpression}
import org.apache.spark.sql.catalyst.parser.{ParseException, ParserInterface}
import org.apache.spark.sql.catalyst.plans.logical.{Call, LogicalPlan}
import org.apache.spark.sql.lockstep.Internals
import org.apache.spark.sql.types.{DataType, StructType}

/**
 * Claims the transaction statements and gives `SYSTEM_VERSION` its meaning; all else is the delegate's (Spark's and
 * Delta's), untouched. Parsing has no side effect: Spark Connect parses a statement twice.
 */
private[spark] class TransactionParser(session: SparkSession, spark: ParserInterface) extends ParameterParser {

  /** No session looks for a table before it has parsed the name, so this is before its first analysis. */
  private lazy val delegate: ParserInterface = {
    Internals.analyzeFirst(session, StatementRule(session))
    spark
  }

  override def parsePlan(sql: String): LogicalPlan = parse(sql, Parameters.Empty)

  override def parseQuery(sql: String): LogicalPlan =
    rewritten(Filled(sql)).parse(sql)(text => ChangesTime.told(text)(delegate.parseQuery(text)))

  override protected def parse(sql: String, parameters: Parameters): LogicalPlan =
    Tokens.statement(sql, parameters).map(TransactionCommand(_)).orElse(
      DatabaseStatement.of(sql, parameters).map(said(sql, _))).getOrElse(
      Script.parse(sql, parameters)(delegated(sql, parameters)))

  /** What a statement says in other words than those of a CALL. */
  private def said(sql: String, statement: DatabaseStatement): LogicalPlan = {
    val name = statement.catalog.toSeq ++ Seq(Procedures.Namespace, statement.procedure)
    val arguments = statement.arguments.map {
      case (key, number: BigInt) => NamedArgumentExpression(key, Literal(number.toLong))
      case (key, said: Said) => NamedArgumentExpression(key, said.parsed(delegate))
      case (key, value) => NamedArgumentExpression(key, Literal(value))
    }
    val call = Call(UnresolvedProcedure(name), arguments)
    statement.table.foreach(call.setTagValue(ProcedureCalls.Table, _))
    call.setTagValue(ProcedureCalls.Times, statement.arguments.collect { case (key, _: Said) => key }.toSet)
    if (statement.catalog.isEmpty) call.setTagValue(ProcedureCalls.NoCatalog, true)
    StatementText.mark(call, sql)
  }

  /** Parses a text that stands for the user's, and is as long. */
  private def delegated(sql: String, parameters: Parameters)(text: String): LogicalPlan = {
    val plan = parameters.bySpark(text) match {
      case Right(filled) => rewritten(filled).parse(sql)(text => ChangesTime.told(text)(delegate.parsePlan(text)))
      case Left(unknown) =>
        try rewritten(Filled(parameters.byWords(text))).parse(sql)(delegate.parsePlan)
        catch { case _: ParseException => throw unknown.withCommand(sql) }
    }
    AnalyzedQuery.mark(plan)
    SessionNames.parsed(
      session,
      StatementText.mark(if (Tokens.isDeltaTravel(text)) DeltaTravel.mark(plan) else plan, sql))
  }

  private def rewritten(filled: Filled): Filled = filled.copy(text = Tokens.rewriteSystemVersion(filled.text))

  override def parseExpression(sql: String): Expression = delegate.parseExpression(sql)

  /** Spark's takes two parts. Delta's `DeltaTableBuilder` asks it all the same, and uses all of a name that it took. */
  override def parseTableIdentifier(sql: String): TableIdentifier = delegate.parseMultipartIdentifier(sql) match {
    case Seq(catalog, namespace, table) if LockstepCatalog.isOne(catalog) =>
      TableIdentifier(table, Some(namespace), Some(catalog))
    case _ => delegate.parseTableIdentifier(sql)
  }

  override def parseFunctionIdentifier(sql: String): FunctionIdentifier = delegate.parseFunctionIdentifier(sql)
  override def parseMultipartIdentifier(sql: String): Seq[String] = {
    val parts = delegate.parseMultipartIdentifier(sql)
    CatalogNames.hasParsed(parts)
    SessionNames.parsed(session, parts)
  }

  override def parseTableSchema(sql: String): StructType = delegate.parseTableSchema(sql)
  override def parseDataType(sql: String): DataType = delegate.parseDataType(sql)
  override def parseRoutineParam(sql: String): StructType = delegate.parseRoutineParam(sql)
}
