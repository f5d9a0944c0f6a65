package lockstep.spark

import org.apache.spark.sql.catalyst.{FunctionIdentifier, TableIdentifier}
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.parser.{NamedParameterContext, ParameterContext, ParseException, ParserInterface}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.types.{DataType, StructType}

/**
 * Claims the transaction statements and gives `SYSTEM_VERSION` its meaning; all else is the delegate's (Spark's and
 * Delta's), untouched. Parsing has no side effect: Spark Connect parses a statement twice.
 */
private[spark] class TransactionParser(delegate: ParserInterface) extends ParserInterface {

  override def parsePlan(sql: String): LogicalPlan = parse(sql)(delegate.parsePlan)

  /** Forwarded because Spark's default forgets the parameters. */
  override def parsePlanWithParameters(sql: String, parameters: ParameterContext): LogicalPlan =
    parse(sql, named(parameters))(delegate.parsePlanWithParameters(_, parameters))

  /** A parameter's value as SQL text: the version of a time travel must be in the text before it is parsed. */
  private def named(parameters: ParameterContext)(name: String): Option[String] = parameters match {
    case NamedParameterContext(values) => values.get(name).map(_.sql)
    case _ => None
  }

  override def parseQuery(sql: String): LogicalPlan = rewriting(sql)(delegate.parseQuery)

  private def parse(sql: String, parameter: String => Option[String] = _ => None)(
      parser: String => LogicalPlan): LogicalPlan =
    Tokens.statement(sql).fold(rewriting(sql, parameter)(Script.parse(_)(parser)))(TransactionCommand(_))

  private def rewriting(sql: String, parameter: String => Option[String] = _ => None)(
      parser: String => LogicalPlan): LogicalPlan =
    try parser(Tokens.rewriteSystemVersion(sql, parameter))
    catch { case e: ParseException if e.command.isDefined => throw e.withCommand(sql) }

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
