package lockstep.spark.catalog

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.FunctionIdentifier
import org.apache.spark.sql.catalyst.analysis.{
  FunctionRegistry,
  SQLFunctionExpression,
  SQLScalarFunction,
  UnresolvedFunction
}
import org.apache.spark.sql.catalyst.catalog.{SQLFunction, UserDefinedFunction}
import org.apache.spark.sql.catalyst.expressions.{
  ApplyFunctionExpression,
  CallMethodViaReflection,
  Expression,
  Literal,
  UserDefinedExpression,
  VariableReference
}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.trees.TreePattern.{PARAMETER, PLAN_EXPRESSION, UNRESOLVED_IDENTIFIER}
import org.apache.spark.sql.lockstep.{Internals, LockstepException}

import java.util.Locale

/**
 * What the body of a function, and the defaults of its parameters, may say: the same in every session that calls it. Spark
 * analyzes a body anew for each call, in the session of the caller. So the body names nothing that a session has of its own,
 * nothing that is looked for where the caller is, and no table, which could not be judged.
 */
private[spark] object FunctionBodies {

  /** What Spark calls the schema of its own functions. */
  private val Sparks = Seq("system", "builtin")

  private val Order = UserDefinedFunction.SQL_CONFIG_PREFIX + "spark.sql.functionResolution.sessionOrder"

  /**
   * What keeps names in a body Spark's own: the order in which functions are looked for, and the path, for a session in which
   * Spark has paths (spark.sql.path.enabled).
   */
  val pinned: Map[String, String] = Map(
    Order -> "second",
    SQLFunction.FUNCTION_RESOLUTION_PATH -> """[["system","builtin"]]""")

  /** The plan of a call of a function, as Spark's own catalog makes it, before it is analyzed. */
  def call(session: SparkSession, function: SQLFunction): LogicalPlan = {
    val needed = function.inputParam.toSeq.flatten.filter(Internals.default(_).isEmpty)
    session.sessionState.catalog.makeSQLFunctionPlan(
      function.name.funcName,
      function,
      needed.map(each => Literal.create(null, each.dataType)))
  }

  /** Refuses to make a function where its body would be analyzed in another way than where it is called. */
  def checkSession(session: SparkSession, function: SQLFunction): Unit = {
    val path = session.sessionState.catalogManager.resolutionPathEntriesForAnalysis(None, Nil)
    if (!path.headOption.exists(_.map(_.toLowerCase(Locale.ROOT)) == Sparks))
      throw unsupported(
        function,
        "is made in a session that looks for functions elsewhere before it takes Spark's own " +
          "(spark.sql.functionResolution.sessionOrder, or SET PATH), and others do not. Make it in one that does not"
      )
    val texts = function.exprText ++ function.queryText ++ function.inputParam.toSeq.flatten.flatMap(Internals.default)
    if (texts.exists(_.contains("${")))
      throw unsupported(
        function,
        "has ${ in it, which Spark would take for a setting of the session that calls it. Write it in parts: concat('$', '{')")
  }

  /** Refuses what is known before a body is analyzed, and is not to be seen after that. */
  def checkParsed(function: SQLFunction, call: LogicalPlan): Unit = {
    if (call.containsPattern(PLAN_EXPRESSION))
      throw unsupported(
        function,
        "has a query in it, and which tables that reads could not be judged. Join them where the function is called, or make a view")
    if (call.containsAnyPattern(UNRESOLVED_IDENTIFIER, PARAMETER))
      throw unsupported(
        function,
        "has IDENTIFIER(), or the marker of a parameter, in it: what that names is found where it is called. Write the name")
  }

  /** Refuses a body that calls what is none of Spark's own functions. */
  def checkCalls(function: SQLFunction, call: LogicalPlan): Unit =
    for (each <- calls(call) if each.nameParts.size > 1 || builder(FunctionRegistry.builtin, each).isEmpty)
      throw foreign(function, each.nameParts.mkString("."))

  /** Refuses a body in a session that has another function for one of Spark's own: an extension may put one in its place. */
  def checkReplaced(session: SparkSession, function: SQLFunction, call: LogicalPlan): Unit =
    for {
      each <- calls(call)
      own <- builder(FunctionRegistry.builtin, each)
      if builder(session.sessionState.functionRegistry, each).forall(_ ne own)
    } throw refused(
      function,
      s"calls ${each.nameParts.last}, and an extension (spark.sql.extensions) has put another function in the place of " +
        "Spark's own, for this session alone. Nothing was done. Use a session without it"
    )

  private def calls(call: LogicalPlan): Seq[UnresolvedFunction] =
    call.flatMap(_.expressions).flatMap(_.collect { case each: UnresolvedFunction if !each.isInternal => each })

  private def builder(registry: FunctionRegistry, call: UnresolvedFunction): Option[Seq[Expression] => Expression] =
    registry.lookupFunctionBuilder(
      FunctionIdentifier(call.nameParts.last.toLowerCase(Locale.ROOT), Some(Sparks.last), Some(Sparks.head)))

  /** Refuses what a body has come to mean that only this session knows. */
  def checkAnalyzed(function: SQLFunction, analyzed: LogicalPlan): Unit =
    for (each <- analyzed.flatMap(_.expressions).flatMap(_.collect { case part: Expression => part })) each match {
      case _: VariableReference =>
        throw unsupported(function, "uses a variable of the session. Make it a parameter")
      case reflected: CallMethodViaReflection =>
        throw unsupported(
          function,
          s"calls ${reflected.prettyName}, whose classes another session may not have. Call it where the function is called")
      case _: SQLFunctionExpression | _: SQLScalarFunction | _: UserDefinedExpression | _: ApplyFunctionExpression =>
        throw foreign(function, each.toString)
      case _ if each.containsPattern(PLAN_EXPRESSION) =>
        throw unsupported(function, "has come to have a query in it")
      case _ =>
    }

  private def foreign(function: SQLFunction, called: String): LockstepException =
    unsupported(function, s"calls $called, which is none of Spark's own functions. Write out what it does")

  private def unsupported(function: SQLFunction, what: String): LockstepException =
    refused(function, s"$what. Nothing was made")

  private def refused(function: SQLFunction, what: String): LockstepException =
    new LockstepException("LOCKSTEP_UNSUPPORTED", s"function ${function.name.unquotedString} $what", "0A000")
}
