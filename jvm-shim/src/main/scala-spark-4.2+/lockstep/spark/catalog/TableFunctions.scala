package lockstep.spark.catalog

import org.apache.spark.sql.{AnalysisException, SparkSession}
import org.apache.spark.sql.catalyst.TableIdentifier
import org.apache.spark.sql.catalyst.analysis.{AnalysisContext, SQLFunctionNode, SQLTableFunction, UnresolvedLeafNode}
import org.apache.spark.sql.catalyst.catalog.{
  CatalogStorageFormat,
  CatalogTable,
  CatalogTableType,
  SQLFunction,
  UserDefinedFunctionErrors
}
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeReference, Expression}
import org.apache.spark.sql.catalyst.plans.Inner
import org.apache.spark.sql.catalyst.plans.logical.{
  LateralJoin,
  LogicalPlan,
  OneRowRelation,
  Project,
  SubqueryAlias,
  SupportsSubquery,
  WithCTE
}
import org.apache.spark.sql.types.StructType

/** A call of a function that returns a table. Its query takes the place of this as soon as the arguments are resolved. */
private[spark] case class TableFunctionCall(function: SQLFunction, arguments: Seq[Expression])
    extends UnresolvedLeafNode with SupportsSubquery

/**
 * Functions that return a table: views with parameters. Spark makes the plan of a call, as it does for its own catalog, and
 * that plan has the tables in it that the query reads. Of the names in a query Spark 4.2 says that they are looked for where
 * the caller is; here they are looked for where the function was made, as in a view.
 */
private[spark] object TableFunctions {

  /** The functions whose queries this thread is just analyzing, the innermost first. */
  private val analyzing = ThreadLocal.withInitial[List[SQLFunction]](() => Nil)

  /** The query of a function, analyzed, with the arguments of a call in the places of the parameters. */
  def resolved(session: SparkSession, call: TableFunctionCall): LogicalPlan = {
    val (function, around) = (call.function, analyzing.get)
    // Through views, since a query calls none. Spark counts how deep these are, and its stack ends before that.
    if (around.contains(function))
      throw UserDefinedFunctionErrors.cyclicFunctionReference((function +: around).reverse.map(_.name).mkString(" -> "))
    val taken = SQLTableFunction(function.name.unquotedString, function, call.arguments, columns(function))
    analyzing.set(function +: around)
    try AnalysisContext.withAnalysisContext(asView(function)) {
        session.sessionState.analyzer.ResolveSQLTableFunctions(taken)
      }
    finally analyzing.set(around)
  }

  /** The plan of a call before it is analyzed, as Spark's own catalog makes it. */
  def plan(session: SparkSession, function: SQLFunction, arguments: Seq[Expression]): LogicalPlan =
    Functions.withItsSettings(function) {
      session.sessionState.catalog.makeSQLTableFunctionPlan(
        function.name.unquotedString,
        function,
        arguments,
        columns(function))
    }

  /** What the query of a function without columns gives, which was analyzed: Spark's plan may have the parameters before it. */
  def outputOf(function: SQLFunction, analyzed: LogicalPlan): Seq[Attribute] = analyzed match {
    case SQLFunctionNode(_, SubqueryAlias(_, Project(_, body))) => body match {
        case LateralJoin(Project(parameters, _: OneRowRelation), query, Inner, None)
            if parameters.nonEmpty && parameters.forall(_.qualifier == Seq(function.name.funcName)) =>
          query.plan.output
        case query => query.output
      }
    case WithCTE(node, _) => outputOf(function, node)
    case other => throw new IllegalStateException(s"the call of a function is no query of it: ${other.nodeName}")
  }

  /** What says that a scalar function stands where a table has to be. */
  def notOfTables(function: SQLFunction): AnalysisException =
    new AnalysisException(
      errorClass = "NOT_A_TABLE_FUNCTION",
      messageParameters = Map("functionName" -> function.name.quotedString))

  /** And the other way round. */
  def notOfValues(function: SQLFunction): AnalysisException =
    new AnalysisException(
      errorClass = "NOT_A_SCALAR_FUNCTION",
      messageParameters = Map("functionName" -> function.name.quotedString))

  private def columns(function: SQLFunction): Seq[Attribute] =
    function.getTableFuncReturnCols.fields.toSeq.map(column =>
      AttributeReference(column.name, column.dataType, column.nullable)())

  /** A view that was made where the function was: Spark keeps of both in the same way where that is. */
  def asView(function: SQLFunction): CatalogTable =
    CatalogTable(
      TableIdentifier(function.name.funcName, function.name.database, function.name.catalog),
      CatalogTableType.VIEW,
      CatalogStorageFormat.empty,
      new StructType,
      properties = function.properties.map { case (key, value) => CatalogTable.VIEW_PREFIX + key -> value }
    )
}
