package lockstep.spark.execution

import lockstep.spark.LockstepCatalog
import lockstep.spark.catalog.{FunctionBodies, Functions, TableFunctionCall, TableFunctions}
import lockstep.spark.transactions.JudgedByPython
import org.apache.spark.sql.{AnalysisException, Row, SparkSession}
import org.apache.spark.sql.catalyst.{CapturesConfig, FunctionIdentifier}
import org.apache.spark.sql.catalyst.analysis.{NoSuchFunctionException, UnresolvedAlias}
import org.apache.spark.sql.catalyst.catalog.{SQLFunction, UserDefinedFunction, UserDefinedFunctionErrors}
import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, Cast, ExpressionInfo}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, OneRowRelation, Project}
import org.apache.spark.sql.connector.catalog.Identifier
import org.apache.spark.sql.execution.command.{
  CreateUserDefinedFunctionCommand,
  DescribeFunctionCommand,
  LeafRunnableCommand
}
import org.apache.spark.sql.lockstep.Internals
import org.apache.spark.sql.types.{DataType, NullType, StructField, StructType}

/**
 * `CREATE FUNCTION` of a Lockstep catalog.
 *
 * @param mode what becomes of a function that is there, as Python calls it
 */
private[spark] case class CreateSqlFunction(
    catalog: LockstepCatalog,
    ident: Identifier,
    text: CreateSqlFunction.Text,
    mode: String)
    extends LeafRunnableCommand with JudgedByPython {

  override def changesSomething: Boolean = true

  override def run(session: SparkSession): Seq[Row] = {
    catalog.createFunction(
      ident,
      CreateSqlFunction.checked(session, Functions.identifier(catalog.name, ident), text),
      mode)
    Nil
  }
}

private[spark] object CreateSqlFunction extends CapturesConfig {

  /** What a statement says of a function: texts, which are Spark's to parse. */
  final case class Text(
      parameters: Option[String],
      returns: String,
      expression: Option[String],
      query: Option[String],
      comment: Option[String],
      collation: Option[String],
      isDeterministic: Option[Boolean],
      isTable: Boolean)

  /**
   * The function that a statement says, with the type of its result, or the columns of its table. Whether its body may stand
   * in the place of a call is found by analyzing one: of it Spark's own catalog makes the plan that is analyzed, then as for
   * each later call.
   */
  private def checked(session: SparkSession, name: FunctionIdentifier, text: Text): SQLFunction = {
    val (parser, conf) = (session.sessionState.sqlParser, session.sessionState.conf)
    val parameters = text.parameters.map(UserDefinedFunction.parseRoutineParam(_, parser, text.collation))
    for (them <- parameters) {
      CreateUserDefinedFunctionCommand.checkParameterNotNull(them, text.parameters.getOrElse(""))
      CreateUserDefinedFunctionCommand.checkParameterNameDuplication(them, conf, name)
      CreateUserDefinedFunctionCommand.checkDefaultsTrailing(them, name)
    }
    val said = SQLFunction.parseReturnTypeText(text.returns, text.isTable, parser, text.collation)
    val function = SQLFunction(
      name,
      parameters,
      said.getOrElse(if (text.isTable) Right(new StructType) else Left(NullType)),
      text.expression,
      text.query,
      text.comment,
      text.collation,
      text.isDeterministic,
      containsSQL = Some(!text.isTable),
      text.isTable,
      sqlConfigsToProps(conf, UserDefinedFunction.SQL_CONFIG_PREFIX) ++ placeOf(session)
    )
    FunctionBodies.checkSession(session, function)
    for (each <- parameters.toSeq.flatten; default <- Internals.default(each)) {
      // By itself: below a call it could mean a parameter before it. It is one value, whatever the function returns.
      val value = Alias(Cast(SQLFunction.parseDefault(default, parser), each.dataType), each.name)()
      val ofValue = function.copy(returnType = Left(each.dataType), isTableFunc = false)
      val _ = analyzedValue(session, ofValue, Project(Seq(value), OneRowRelation()))
    }
    val (returns, analyzed) =
      if (text.isTable) ofTable(session, function, Option.when(said.nonEmpty)(text.returns))
      else {
        val call = FunctionBodies.call(session, function)
        val analyzed = analyzedValue(session, function, if (said.isEmpty) uncast(call) else call)
        (Left(analyzed.schema.head.dataType), analyzed)
      }
    function.copy(
      returnType = returns,
      deterministic = Some(text.isDeterministic.getOrElse(analyzed.deterministic)))
  }

  /** Where names in a body are looked for: where it is made. */
  private def placeOf(session: SparkSession): Map[String, String] = {
    val manager = session.sessionState.catalogManager
    SQLFunction.catalogAndNamespaceToProps(manager.currentCatalog.name, manager.currentNamespace.toSeq)
  }

  /**
   * The columns of a function that returns a table, and the plan of a call. Spark counts those of a query only where it makes
   * a function of its own, so here it is analyzed without any first.
   *
   * @param said what the statement says of columns; none: they are those of the query
   */
  private def ofTable(
      session: SparkSession,
      function: SQLFunction,
      said: Option[String]): (Either[DataType, StructType], LogicalPlan) = {
    val query = function.getExpressionAndQuery(session.sessionState.sqlParser, isTableFunc = true)._2.getOrElse(
      throw UserDefinedFunctionErrors.bodyIsNotAQueryForSqlTableUdf(function.name.funcName))
    val call = FunctionBodies.call(session, function)
    FunctionBodies.checkParsed(session, function, call)
    FunctionBodies.checkCalls(function, call)
    FunctionBodies.checkReplaced(session, function, call)
    def analyzed(columns: StructType) = {
      val made = function.copy(returnType = Right(columns))
      Internals.analyzed(session, TableFunctionCall(made, FunctionBodies.nothing(made)))
    }
    val output = TableFunctions.outputOf(function, analyzed(new StructType))
    val columns = function.getTableFuncReturnCols match {
      case _ if said.isEmpty => inferred(function, query, output)
      case columns if columns.size == output.size => columns
      case columns =>
        throw new AnalysisException(
          errorClass = "USER_DEFINED_FUNCTIONS.RETURN_COLUMN_COUNT_MISMATCH",
          messageParameters = Map(
            "outputSize" -> output.size.toString,
            "returnParamSize" -> columns.size.toString,
            "name" -> function.name.unquotedString)
        )
    }
    CreateUserDefinedFunctionCommand.checkParameterNotNull(columns, said.getOrElse(""))
    CreateUserDefinedFunctionCommand.checkReturnsColumnDuplication(columns, session.sessionState.conf, function.name)
    val whole = analyzed(columns)
    FunctionBodies.checkAnalyzed(function, whole)
    (Right(columns), whole)
  }

  /** The columns of a query, which has to name them, as where Spark makes a function of its own. */
  private def inferred(function: SQLFunction, query: LogicalPlan, output: Seq[Attribute]): StructType = query match {
    case Project(fields, _) if fields.exists(_.isInstanceOf[UnresolvedAlias]) =>
      throw UserDefinedFunctionErrors.missingColumnNamesForSqlTableUdf(function.name.funcName)
    case _ => StructType(output.map(column => StructField(column.name, column.dataType)))
  }

  /** A call without the type of its result, which is then that of the body. */
  private def uncast(call: LogicalPlan): LogicalPlan = call match {
    case Project(Seq(Alias(cast: Cast, label)), inputs) => Project(Seq(Alias(cast.child, label)()), inputs)
    case other => throw new IllegalStateException(s"the call of a function is no cast: ${other.nodeName}")
  }

  private def analyzedValue(session: SparkSession, function: SQLFunction, call: LogicalPlan): LogicalPlan = {
    FunctionBodies.checkParsed(session, function, call)
    val analyzed = Internals.analyzed(session, call)
    FunctionBodies.checkCalls(function, call)
    FunctionBodies.checkReplaced(session, function, call)
    if (analyzed.exists(node => !node.isInstanceOf[Project] && !node.isInstanceOf[OneRowRelation]))
      throw new AnalysisException(
        errorClass = "USER_DEFINED_FUNCTIONS.CANNOT_CONTAIN_COMPLEX_FUNCTIONS",
        messageParameters = Map("queryText" -> function.exprText.orElse(function.queryText).getOrElse(""))
      )
    FunctionBodies.checkAnalyzed(function, analyzed)
    analyzed
  }
}

/** `DROP FUNCTION` of a Lockstep catalog. */
private[spark] case class DropSqlFunction(catalog: LockstepCatalog, ident: Identifier, ifExists: Boolean)
    extends LeafRunnableCommand with JudgedByPython {

  override def changesSomething: Boolean = true

  override def run(session: SparkSession): Seq[Row] = {
    if (!catalog.dropFunction(ident) && !ifExists) throw new NoSuchFunctionException(ident)
    Nil
  }
}

/**
 * `DESCRIBE FUNCTION` of a Lockstep catalog: what Spark says, which takes each function for one of its own catalog, and asks
 * for a time that is the timeline's to tell.
 */
private[spark] case class DescribeSqlFunction(name: String, info: ExpressionInfo, isExtended: Boolean)
    extends LeafRunnableCommand with JudgedByPython {
  private val said = DescribeFunctionCommand(info, isExtended)

  override val output: Seq[Attribute] = said.output
  override def changesSomething: Boolean = false

  override def run(session: SparkSession): Seq[Row] =
    said.run(session).map(_.getString(0)).filterNot(_.startsWith("Create Time:")).map {
      case line if line.startsWith("Function:") => Row(line.replaceFirst("(Function:\\s*).*", "$1") + name)
      case line => Row(line)
    }
}
