package lockstep.spark

import org.apache.spark.sql.catalyst.{FunctionIdentifier, TableIdentifier}
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.parser.{
  ParameterContext,
  ParseException,
  ParserInterface,
  PositionMapper,
  Substitution
}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.trees.CurrentOrigin
import org.apache.spark.sql.types.{DataType, StructType}

/**
 * Claims the transaction statements and gives `SYSTEM_VERSION` its meaning; all else is the delegate's (Spark's and
 * Delta's), untouched. Parsing has no side effect: Spark Connect parses a statement twice.
 */
private[spark] class TransactionParser(delegate: ParserInterface) extends ParserInterface {

  override def parsePlan(sql: String): LogicalPlan = parse(sql, Parameters.Empty)

  override def parsePlanWithParameters(sql: String, parameters: ParameterContext): LogicalPlan =
    parse(sql, Parameters.of(parameters))

  override def parseQuery(sql: String): LogicalPlan =
    positioned(sql, Tokens.rewriteSystemVersion(sql), Nil)(delegate.parseQuery)

  private def parse(sql: String, parameters: Parameters): LogicalPlan =
    Tokens.statement(
      sql,
      parameters).fold(Script.parse(sql, parameters)(delegated(sql, parameters)))(TransactionCommand(_))

  /** Parses a text that stands for the user's, and is as long. */
  private def delegated(sql: String, parameters: Parameters)(text: String): LogicalPlan =
    parameters.bySpark(text) match {
      case Right((filled, replaced)) =>
        positioned(sql, Tokens.rewriteSystemVersion(filled), replaced)(delegate.parsePlan)
      case Left(unknown) =>
        try positioned(sql, Tokens.rewriteSystemVersion(parameters.byWords(text)), Nil)(delegate.parsePlan)
        catch { case _: ParseException => throw unknown.withCommand(sql) }
    }

  /** Parses what became of the user's text, so that positions in errors, and the texts of statements, are the user's. */
  private def positioned(sql: String, text: String, replaced: List[Substitution])(
      parser: String => LogicalPlan): LogicalPlan =
    if (text == sql) parser(sql)
    else {
      val origin = CurrentOrigin.get.copy(positionMapper = Some(PositionMapper(sql, text, replaced)))
      try CurrentOrigin.withOrigin(origin)(parser(text))
      catch { case e: ParseException if e.command.isDefined => throw e.withCommand(sql) }
    }

  override def parseExpression(sql: String): Expression = delegate.parseExpression(sql)

  /** Spark's takes two parts. Delta's `DeltaTableBuilder` asks it all the same, and uses all of a name that it took. */
  override def parseTableIdentifier(sql: String): TableIdentifier = delegate.parseMultipartIdentifier(sql) match {
    case Seq(catalog, namespace, table) if LockstepCatalog.isOne(catalog) =>
      TableIdentifier(table, Some(namespace), Some(catalog))
    case _ => delegate.parseTableIdentifier(sql)
  }

  override def parseFunctionIdentifier(sql: String): FunctionIdentifier = delegate.parseFunctionIdentifier(sql)
  override def parseMultipartIdentifier(sql: String): Seq[String] = delegate.parseMultipartIdentifier(sql)
  override def parseTableSchema(sql: String): StructType = delegate.parseTableSchema(sql)
  override def parseDataType(sql: String): DataType = delegate.parseDataType(sql)
  override def parseRoutineParam(sql: String): StructType = delegate.parseRoutineParam(sql)
}
