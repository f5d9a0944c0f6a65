package lockstep.spark.catalog

import com.fasterxml.jackson.databind.JsonNode
import lockstep.spark.LockstepCatalog
import lockstep.spark.reads.Reads
import lockstep.spark.scans.Scans
import lockstep.spark.statements.StatementScope
import lockstep.spark.transactions.Transactions
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.FunctionIdentifier
import org.apache.spark.sql.catalyst.analysis.{NoSuchFunctionException, SQLFunctionExpression}
import org.apache.spark.sql.catalyst.catalog.{SQLFunction, UserDefinedFunction}
import org.apache.spark.sql.catalyst.expressions.{
  Expression,
  ExpressionInfo,
  Literal,
  NamedArgumentExpression,
  NamedLambdaVariable,
  UnresolvedNamedLambdaVariable
}
import org.apache.spark.sql.catalyst.plans.logical.{
  FunctionSignature,
  InputParameter,
  LogicalPlan,
  NamedParametersSupport,
  View
}
import org.apache.spark.sql.connector.catalog.{FunctionCatalog, Identifier}
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.internal.connector.V1Function
import org.apache.spark.sql.lockstep.{Internals, LockstepException}
import org.apache.spark.sql.types.{DataType, StructField, StructType, TimestampType}

import scala.jdk.CollectionConverters._

/**
 * The functions of a catalog, which are SQL. Spark takes one into a plan as it does those of its own catalog: its body stands
 * in the place of the call, so nothing of it is called row by row. Python keeps the definitions in the timeline. Spark asks
 * a catalog for functions of one value alone; those that return a table are found by `analysis.TableFunctionCalls`.
 */
private[spark] trait Functions extends FunctionCatalog {

  protected def session: SparkSession
  protected def ask(op: String, args: (String, Any)*): JsonNode
  protected def names(ident: Identifier): Seq[(String, Any)]
  protected def missingNamespace[T](namespace: Array[String])(body: => T): T

  override def listFunctions(namespace: Array[String]): Array[Identifier] = missingNamespace(namespace) {
    LockstepCatalog.listed(ask("functions", "namespace" -> namespace.toSeq))
  }

  override def loadFunction(ident: Identifier): UnboundFunction = {
    val function = definition(ident).getOrElse(throw new NoSuchFunctionException(ident))
    V1Function(
      function.toExpressionInfo,
      (arguments: Seq[Expression]) => Functions.called(session, function, arguments))
  }

  /** The call of a function that returns a table; none if there is no such function. */
  private[spark] def tableFunction(ident: Identifier, arguments: Seq[Expression]): Option[LogicalPlan] =
    definition(ident).map { function =>
      if (!function.isTableFunc) throw TableFunctions.notOfTables(function)
      Functions.check(session, function, arguments)
      TableFunctionCall(function, Functions.ordered(session, function, arguments))
    }

  /** What Spark says of a function where it is asked to describe it; none if there is no such function. */
  private[spark] def functionInfo(ident: Identifier): Option[ExpressionInfo] =
    definition(ident).map(_.toExpressionInfo)

  private[spark] def createFunction(ident: Identifier, function: SQLFunction, mode: String): Unit =
    missingNamespace(ident.namespace) {
      val _ = ask(
        "create_function",
        names(ident) ++ Seq("mode" -> mode, "function" -> Functions.written(session, function)): _*)
    }

  private[spark] def dropFunction(ident: Identifier): Boolean =
    ask("drop_function", names(ident): _*).get("dropped").asBoolean

  /** A function as the statement, or the view that is read as it was, has to see it; asked for once an analysis. */
  private def definition(ident: Identifier): Option[SQLFunction] = {
    val past = Scans.asOf(SQLConf.get).collect { case (view, version) if view.head == name => version }
    StatementScope.function(name, ident, past.map(version => s"@$version"))(asked(ident, past))
  }

  private def asked(ident: Identifier, past: Option[Long]): Option[SQLFunction] = {
    val tx = Transactions.of(session)
    val answer = StatementScope.ask(name, Functions.stored(ident), isLookedAt = false)(read =>
      ask("function", names(ident) ++ read ++ past.map(version => "version" -> s"@$version"): _*))
    Option.unless(answer.get("missing").asBoolean) {
      val mark = if (past.isEmpty) Scans.viewed(name, answer.get("name"), answer.get("version")) else None
      for (open <- tx; definition <- mark) Reads.toldView(open, definition)
      val asOf = past.map(Scans.asOf(name +: Views.texts(answer.get("name")).toSeq, _))
      Functions.read(Functions.identifier(name, ident), answer.get("function"), mark, asOf)
    }
  }
}

private[spark] object Functions {

  /** The name under which a function is kept among the views: see Python's `lockstep.timeline.functions`. */
  private def stored(ident: Identifier): Identifier = Identifier.of(ident.namespace, s"${ident.name}()")

  /** What Spark calls a function; it knows a namespace by one text. */
  def identifier(catalog: String, ident: Identifier): FunctionIdentifier =
    FunctionIdentifier(ident.name, Some(ident.namespace.mkString(".")), Some(catalog))

  /** The expression that a call is, as Spark's own catalog makes it: its analyzer puts the body in the place of that. */
  def called(session: SparkSession, function: SQLFunction, arguments: Seq[Expression]): Expression = {
    if (function.isTableFunc) throw TableFunctions.notOfValues(function)
    check(session, function, arguments)
    SQLFunctionExpression(
      function.name.unquotedString,
      function,
      ordered(session, function, arguments),
      Some(function.getScalarFuncReturnType))
  }

  /** Refuses a call that Spark would not take, or whose function means something else in this session. */
  private def check(session: SparkSession, function: SQLFunction, arguments: Seq[Expression]): Unit = {
    if (arguments.exists(_.exists {
        case _: NamedLambdaVariable | _: UnresolvedNamedLambdaVariable => true
        case _ => false
      }))
      throw new LockstepException(
        "LOCKSTEP_UNSUPPORTED",
        s"function ${function.name.unquotedString} in a lambda: Spark takes no SQL function there. Write its body out",
        "0A000")
    FunctionBodies.checkReplaced(session, function, FunctionBodies.call(session, function))
  }

  /**
   * The arguments in the order of the parameters, where some are said by name. Spark would put the defaults of the others
   * among them, and look for names in these where the function is called: those at the end are left to the function, which
   * has them in its own settings, and one in between is taken if it is a literal.
   */
  private def ordered(session: SparkSession, function: SQLFunction, arguments: Seq[Expression]): Seq[Expression] =
    if (!arguments.exists(_.isInstanceOf[NamedArgumentExpression])) arguments
    else {
      val parser = session.sessionState.sqlParser
      val parameters = withItsSettings(function) {
        function.inputParam.toSeq.flatten.map(each =>
          InputParameter(each.name, Internals.default(each).map(SQLFunction.parseDefault(_, parser))))
      }
      val all = NamedParametersSupport.defaultRearrange(
        FunctionSignature(parameters),
        arguments,
        function.name.unquotedString,
        SQLConf.get.resolver)
      val said = arguments.map {
        case NamedArgumentExpression(_, value) => value
        case value => value
      }
      def isGiven(value: Expression) = said.exists(_ eq value)
      val (upToLast, rest) = all.splitAt(all.lastIndexWhere(isGiven) + 1)
      val needed = if (rest.forall(isLiteral)) all else upToLast // with these a call has the name that Spark gives it
      needed.zip(parameters).collectFirst {
        case (value, parameter) if !isGiven(value) && !isLiteral(value) => parameter
      }
        .foreach { parameter =>
          throw new LockstepException(
            "LOCKSTEP_UNSUPPORTED",
            s"function ${function.name.unquotedString} is called without its parameter ${parameter.name}, and with a " +
              "later one by its name: the default would be looked for in the settings of this session. Say it, too",
            "0A000"
          )
        }
      needed
    }

  /** Reads a text of a function in the settings that it was made in: a view that keeps to its own does so, too. */
  def withItsSettings[T](function: SQLFunction)(read: => T): T =
    SQLConf.withExistingConf(View.effectiveSQLConf(function.getSQLConfigs, isTempView = true))(read)

  /** Whether an expression means the same wherever it stands. Spark reads a time in the zone of the session that calls. */
  private def isLiteral(value: Expression): Boolean = value match {
    case literal: Literal => literal.dataType != TimestampType
    case _ => false
  }

  def written(session: SparkSession, function: SQLFunction): Map[String, Any] = {
    val manager = session.sessionState.catalogManager
    val returns = function.returnType match {
      case Left(value) => StructType(Seq(StructField(function.name.funcName, value)))
      case Right(columns) => columns
    }
    Map(
      "body" -> function.exprText.orElse(function.queryText),
      "is_query" -> function.queryText.isDefined,
      "parameters" -> function.inputParam.map(_.json),
      "returns" -> returns.json,
      "is_table" -> function.isTableFunc,
      "is_deterministic" -> function.deterministic.getOrElse(true),
      "comment" -> function.comment,
      "collation" -> function.collation,
      "catalog" -> manager.currentCatalog.name,
      "namespace" -> manager.currentNamespace.toSeq,
      "configs" -> function.getSQLConfigs
    )
  }

  /**
   * @param mark
   *   which definition it is, for the plans that use it to tell: a function in a plan has nothing else of ours
   * @param asOf
   *   what says that it is read as it was, among the settings of its analysis; so what it reads is read as that was
   */
  def read(
      name: FunctionIdentifier,
      node: JsonNode,
      mark: Option[String],
      asOf: Option[(String, String)]): SQLFunction = {
    val configs = (LockstepCatalog.textMap(node.get("configs")).asScala ++ asOf).map { case (key, value) =>
      (UserDefinedFunction.SQL_CONFIG_PREFIX + key) -> value
    }
    val (body, isQuery) = (text(node.get("body")), node.get("is_query").asBoolean)
    val (returns, isTable) = (struct(node.get("returns").asText), node.get("is_table").asBoolean)
    SQLFunction(
      name,
      text(node.get("parameters")).map(struct),
      if (isTable) Right(returns) else Left(returns.head.dataType),
      body.filterNot(_ => isQuery),
      body.filter(_ => isQuery),
      text(node.get("comment")),
      text(node.get("collation")),
      Some(node.get("is_deterministic").asBoolean),
      containsSQL = Some(!isTable),
      isTable,
      SQLFunction.catalogAndNamespaceToProps(
        node.get("catalog").asText,
        Views.texts(node.get("namespace")).toSeq) ++ configs ++ FunctionBodies.pinned ++ mark.map(Scans.Viewed -> _),
      createTimeMs = 0 // two analyses of one call are one plan
    )
  }

  private def struct(json: String): StructType = DataType.fromJson(json).asInstanceOf[StructType]

  private def text(node: JsonNode): Option[String] = Option(node).filterNot(_.isNull).map(_.asText)
}
