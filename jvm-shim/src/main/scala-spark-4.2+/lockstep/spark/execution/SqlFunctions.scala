package lockstep.spark.execution

import lockstep.spark.LockstepCatalog
import lockstep.spark.catalog.{FunctionBodies, Functions}
import lockstep.spark.transactions.JudgedByPython
import org.apache.spark.sql.{AnalysisException, Row, SparkSession}
import org.apache.spark.sql.catalyst.{CapturesConfig, FunctionIdentifier}
import org.apache.spark.sql.catalyst.analysis.NoSuchFunctionException
import org.apache.spark.sql.catalyst.catalog.{SQLFunction, UserDefinedFunction}
import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, Cast, ExpressionInfo}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, OneRowRelation, Project}
import org.apache.spark.sql.connector.catalog.Identifier
import org.apache.spark.sql.execution.command.{
  CreateUserDefinedFunctionCommand,
  DescribeFunctionCommand,
  LeafRunnableCommand
}
import org.apache.spark.sql.lockstep.Internals
import org.apache.spark.sql.types.NullType

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
      isDeterministic: Option[Boolean])

  /**
   * The function that a statement says, with the type of its result. Whether its body may stand in the place of a call is
   * found by analyzing one: of it Spark's own catalog makes the plan that is analyzed, then as for each later call.
   */
  private def checked(session: SparkSession, name: FunctionIdentifier, text: Text): SQLFunction = {
    val (parser, conf) = (session.sessionState.sqlParser, session.sessionState.conf)
    val parameters = text.parameters.map(UserDefinedFunction.parseRoutineParam(_, parser, text.collation))
    for (them <- parameters) {
      CreateUserDefinedFunctionCommand.checkParameterNotNull(them, text.parameters.getOrElse(""))
      CreateUserDefinedFunctionCommand.checkParameterNameDuplication(them, conf, name)
      CreateUserDefinedFunctionCommand.checkDefaultsTrailing(them, name)
    }
    val said = SQLFunction.parseReturnTypeText(text.returns, isTableFunc = false, parser, text.collation)
    val function = SQLFunction(
      name,
      parameters,
      said.getOrElse(Left(NullType)),
      text.expression,
      text.query,
      text.comment,
      text.collation,
      text.isDeterministic,
      containsSQL = Some(true),
      isTableFunc = false,
      sqlConfigsToProps(conf, UserDefinedFunction.SQL_CONFIG_PREFIX)
    )
    FunctionBodies.checkSession(session, function)
    for (each <- parameters.toSeq.flatten; default <- Internals.default(each)) {
      // By itself: below a call it could mean a parameter before it.
      val value = Alias(Cast(SQLFunction.parseDefault(default, parser), each.dataType), each.name)()
      val _ = analyzedBody(session, function, Project(Seq(value), OneRowRelation()))
    }
    val call = FunctionBodies.call(session, function)
    val analyzed = analyzedBody(session, function, if (said.isEmpty) uncast(call) else call)
    function.copy(
      returnType = Left(analyzed.schema.head.dataType),
      deterministic = Some(text.isDeterministic.getOrElse(analyzed.deterministic)))
  }

  /** A call without the type of its result, which is then that of the body. */
  private def uncast(call: LogicalPlan): LogicalPlan = call match {
    case Project(Seq(Alias(cast: Cast, label)), inputs) => Project(Seq(Alias(cast.child, label)()), inputs)
    case other => throw new IllegalStateException(s"the call of a function is no cast: ${other.nodeName}")
  }

  private def analyzedBody(session: SparkSession, function: SQLFunction, call: LogicalPlan): LogicalPlan = {
    FunctionBodies.checkParsed(function, call)
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
