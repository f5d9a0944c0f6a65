package lockstep.spark.catalog

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.FunctionIdentifier
import org.apache.spark.sql.catalyst.analysis.{
  CTESubstitution,
  FunctionRegistry,
  FunctionRegistryBase,
  SQLFunctionExpression,
  SQLScalarFunction,
  TableFunctionRegistry,
  UnresolvedFunction,
  UnresolvedGenerator,
  UnresolvedRelation,
  UnresolvedTableValuedFunction
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
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, View}
import org.apache.spark.sql.catalyst.trees.TreePattern.{
  PARAMETER,
  PLAN_EXPRESSION,
  PLAN_WITH_UNRESOLVED_IDENTIFIER,
  UNRESOLVED_IDENTIFIER
}
import org.apache.spark.sql.lockstep.{Internals, LockstepException}

import java.util.Locale

/**
 * What the body of a function, and the defaults of its parameters, may say: the same in every session that calls it. Spark
 * analyzes a body anew for each call, in the session of the caller. So the body names nothing that a session has of its own,
 * and nothing that is looked for where the caller is. Only the query of a function that returns a table names tables.
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
  def call(session: SparkSession, function: SQLFunction): LogicalPlan =
    if (function.isTableFunc) TableFunctions.plan(session, function, nothing(function))
    else session.sessionState.catalog.makeSQLFunctionPlan(function.name.funcName, function, nothing(function))

  /** The arguments of a call that says nothing: NULL where a parameter has no default. */
  def nothing(function: SQLFunction): Seq[Expression] =
    for (each <- function.inputParam.toSeq.flatten if Internals.default(each).isEmpty)
      yield Literal.create(null, each.dataType)

  /** Refuses to make a function where its body would be analyzed in another way than where it is called. */
  def checkSession(session: SparkSession, function: SQLFunction): Unit = {
    val path = session.sessionState.catalogManager.resolutionPathEntriesForAnalysis(None, Nil)
    val texts = function.exprText ++ function.queryText ++ function.inputParam.toSeq.flatten.flatMap(Internals.default)
    if (!path.headOption.exists(_.map(_.toLowerCase(Locale.ROOT)) == Sparks))
      throw unsupported(
        function,
        "is made in a session that looks for functions elsewhere before it takes Spark's own " +
          "(spark.sql.functionResolution.sessionOrder, or SET PATH), and others do not. Make it in one that does not"
      )
    if (texts.exists(_.contains("${")))
      throw unsupported(
        function,
        "has ${ in it, which Spark would take for a setting of the session that calls it. Write it in parts: concat('$', '{')")
  }

  /** Refuses what is known before a body is analyzed, and is not to be seen after that. */
  def checkParsed(session: SparkSession, function: SQLFunction, call: LogicalPlan): Unit = {
    val nodes = said(call)
    if (!function.isTableFunc && call.containsPattern(PLAN_EXPRESSION))
      throw unsupported(
        function,
        "has a query in it, and which tables that reads could not be judged. Join them where the function is called, or make a view")
    if (isOpen(nodes))
      throw unsupported(
        function,
        "has IDENTIFIER(), or the marker of a parameter, in it: what that names is found where it is called. Write the name")
    nodes.foreach {
      case table: UnresolvedRelation if table.isStreaming =>
        throw unsupported(function, "reads a stream. Leave STREAM out")
      case table: UnresolvedRelation if session.sessionState.catalog.isTempView(table.multipartIdentifier) =>
        throw unsupported(
          function,
          s"reads ${table.name}, which is a temporary view of this session. Write out what that says, or name a table in full")
      case _ =>
    }
  }

  /** Refuses a body that calls what is none of Spark's own functions. */
  def checkCalls(function: SQLFunction, call: LogicalPlan): Unit =
    for (each <- calls(call) if each.own.isEmpty) throw foreign(function, each.name.mkString("."))

  /** Refuses a body in a session that has another function for one of Spark's own: an extension may put one in its place. */
  def checkReplaced(session: SparkSession, function: SQLFunction, call: LogicalPlan): Unit =
    for (each <- calls(call) if each.own.exists(own => each.here(session).forall(_ ne own)))
      throw refused(
        function,
        s"calls ${each.name.last}, and an extension (spark.sql.extensions) has put another function in the place of " +
          "Spark's own, for this session alone. Nothing was done. Use a session without it"
      )

  /**
   * Refuses a function of Spark's own catalog that is to be one of a Lockstep catalog's, as far as the text says what it is:
   * Spark has analyzed it where it was made.
   */
  def checkMoved(session: SparkSession, function: SQLFunction, call: LogicalPlan): Unit = {
    checkSession(session, function)
    checkParsed(session, function, call)
    checkCalls(function, call)
    checkReplaced(session, function, call)
    calls(call).map(_.name.last).find(name => Reflecting(name.toLowerCase(Locale.ROOT))).foreach(name =>
      throw reflects(function, name))
  }

  /** Spark's functions that call what a session has in its class path. */
  private val Reflecting = Set("java_method", "reflect", "try_reflect")

  /** The names of what is called in a plan that was parsed and is none of Spark's own functions. */
  def notSparks(plan: LogicalPlan): Seq[Seq[String]] = calls(plan).filter(_.own.isEmpty).map(_.name)

  /** Whether something in a plan is named by an expression, or by who runs a statement. */
  def isOpen(said: Seq[LogicalPlan]): Boolean =
    said.exists(_.containsAnyPattern(UNRESOLVED_IDENTIFIER, PLAN_WITH_UNRESOLVED_IDENTIFIER, PARAMETER))

  /** What a body calls, for one value or as a table. */
  sealed private trait Called {
    def name: Seq[String]

    /** Spark's own function of that name, which only a name without a schema says; none if it has none. */
    def own: Option[AnyRef]

    /** What a session has under the name of one of Spark's own. */
    def here(session: SparkSession): Option[AnyRef]

    protected def builder[T](registry: FunctionRegistryBase[T]): Option[AnyRef] =
      Option.when(name.size == 1)(name.last.toLowerCase(Locale.ROOT)).flatMap(own =>
        registry.lookupFunctionBuilder(FunctionIdentifier(own, Some(Sparks.last), Some(Sparks.head))))
  }

  final private case class OfValue(name: Seq[String]) extends Called {
    override def own: Option[AnyRef] = builder(FunctionRegistry.builtin)
    override def here(session: SparkSession): Option[AnyRef] = builder(session.sessionState.functionRegistry)
  }

  final private case class OfTable(name: Seq[String]) extends Called {
    override def own: Option[AnyRef] = builder(TableFunctionRegistry.builtin)
    override def here(session: SparkSession): Option[AnyRef] = builder(session.sessionState.tableFunctionRegistry)
  }

  private def calls(call: LogicalPlan): Seq[Called] = said(call).flatMap { node =>
    val asTable = Seq(node).collect { case table: UnresolvedTableValuedFunction => OfTable(table.name) }
    asTable ++ node.expressions.flatMap(_.collect {
      case each: UnresolvedFunction if !each.isInternal => OfValue(each.nameParts)
      case each: UnresolvedGenerator => OfValue(each.name.nameParts)
    })
  }

  /** All parts of a plan that was parsed. A name that it gives a query of its own (WITH) is no table's in them. */
  def said(plan: LogicalPlan): Seq[LogicalPlan] = CTESubstitution(plan).collectWithSubqueries { case node => node }

  /** The same of one that was analyzed, without what the definitions of views say: that is theirs. */
  private def written(plan: LogicalPlan): Seq[LogicalPlan] = plan match {
    case _: View => Nil
    case node => node +: (node.children ++ node.subqueries).flatMap(written)
  }

  /** Refuses what a body has come to mean that only this session knows. */
  def checkAnalyzed(function: SQLFunction, analyzed: LogicalPlan): Unit =
    for (each <- written(analyzed).flatMap(_.expressions).flatMap(_.collect { case part: Expression => part }))
      each match {
        case _: VariableReference =>
          throw unsupported(function, "uses a variable of the session. Make it a parameter")
        case reflected: CallMethodViaReflection => throw reflects(function, reflected.prettyName)
        case _: SQLFunctionExpression | _: SQLScalarFunction | _: UserDefinedExpression | _: ApplyFunctionExpression =>
          throw foreign(function, each.toString)
        case _ if !function.isTableFunc && each.containsPattern(PLAN_EXPRESSION) =>
          throw unsupported(function, "has come to have a query in it")
        case _ =>
      }

  private def reflects(function: SQLFunction, called: String): LockstepException =
    unsupported(
      function,
      s"calls $called, whose classes another session may not have. Call it where the function is called")

  private def foreign(function: SQLFunction, called: String): LockstepException =
    unsupported(function, s"calls $called, which is none of Spark's own functions. Write out what it does")

  private def unsupported(function: SQLFunction, what: String): LockstepException =
    refused(function, s"$what. Nothing was made")

  private def refused(function: SQLFunction, what: String): LockstepException =
    new LockstepException("LOCKSTEP_UNSUPPORTED", s"function ${function.name.unquotedString} $what", "0A000")
}
