package lockstep.spark.analysis

import lockstep.spark.LockstepCatalog
import lockstep.spark.catalog.FunctionBodies
import lockstep.spark.execution.{CreateSqlFunction, DescribeSqlFunction, DropSqlFunction}
import lockstep.spark.grammar.Tokens
import lockstep.spark.statements.StatementScope
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.FunctionIdentifier
import org.apache.spark.sql.catalyst.analysis.{UnresolvedFunctionName, UnresolvedIdentifier}
import org.apache.spark.sql.catalyst.catalog.LanguageSQL
import org.apache.spark.sql.catalyst.plans.logical.{
  CreateUserDefinedFunction,
  DescribeFunction,
  DropFunction,
  LogicalPlan
}
import org.apache.spark.sql.connector.catalog.Identifier
import org.apache.spark.sql.lockstep.LockstepException

/**
 * CREATE, DROP and DESCRIBE FUNCTION of a Lockstep catalog become commands: Spark has them for its own catalog alone. What
 * makes a function in another language than SQL stays what it is, and Spark refuses it.
 */
private[spark] object FunctionStatements {

  def place(session: SparkSession, plan: LogicalPlan): LogicalPlan = plan match {
    case said: CreateUserDefinedFunction if said.language == LanguageSQL =>
      said.child match {
        case UnresolvedIdentifier(parts, _) =>
          ours(session, parts).fold(plan) { case (catalog, ident) => created(session, catalog, ident, said) }
        case _ => plan
      }
    case DropFunction(UnresolvedIdentifier(parts, _), ifExists) =>
      ours(session, parts).fold(plan) { case (catalog, ident) => DropSqlFunction(catalog, ident, ifExists) }
    case DescribeFunction(UnresolvedFunctionName(parts, _, _), isExtended) if !isSparks(session, parts) =>
      ours(session, parts).flatMap { case (catalog, ident) =>
        catalog.functionInfo(ident).map(DescribeSqlFunction(named(catalog, ident), _, isExtended))
      }.getOrElse(plan)
    case other => other
  }

  /** Whether a name means one of Spark's own functions, or one of the session: those come first, where a name is alone. */
  private def isSparks(session: SparkSession, parts: Seq[String]): Boolean = parts.size == 1 && {
    val functions = session.sessionState.catalog
    functions.isBuiltinFunction(parts.head) || functions.isTemporaryFunction(FunctionIdentifier(parts.head))
  }

  /** The catalog that a name is of, and the function's name in it; none if the catalog is not Lockstep's. */
  private def ours(session: SparkSession, parts: Seq[String]): Option[(LockstepCatalog, Identifier)] = {
    val name = StatementScope.qualified(session, parts)
    Option.when(LockstepCatalog.isOne(name.head))(session.sessionState.catalogManager.catalog(name.head)).collect {
      case catalog: LockstepCatalog => (catalog, Identifier.of(name.tail.init.toArray, name.last))
    }
  }

  private def named(catalog: LockstepCatalog, ident: Identifier): String =
    LockstepCatalog.quoted(catalog.name +: ident.namespace.toSeq :+ ident.name)

  private def created(
      session: SparkSession,
      catalog: LockstepCatalog,
      ident: Identifier,
      said: CreateUserDefinedFunction): LogicalPlan = {
    val query = said.queryText.map(Tokens.restoreSystemVersion)
    if (said.isTableFunc) query.foreach(checkNames(session, catalog, ident, _))
    CreateSqlFunction(
      catalog,
      ident,
      CreateSqlFunction.Text(
        said.inputParamText,
        said.returnTypeText,
        said.exprText,
        query,
        said.comment,
        said.collation,
        said.isDeterministic,
        said.isTableFunc),
      if (said.replace) "replace" else if (said.ignoreIfExists) "if_not_exists" else "create"
    )
  }

  /** Refuses a query that would mean something else to a session without `session-names`, as in a view. */
  private def checkNames(session: SparkSession, catalog: LockstepCatalog, ident: Identifier, query: String): Unit = {
    val said = FunctionBodies.said(session.sessionState.sqlParser.parsePlan(query))
    if (said.exists(node => SessionNames.place(session, node) != node))
      throw new LockstepException(
        "LOCKSTEP_UNSUPPORTED",
        s"function ${named(catalog, ident)} says a table by its old name, which is another's, or nobody's, to sessions " +
          s"without session-names. Nothing was made. Write the lake's names: ${catalog.name}.<namespace>.<table>",
        "0A000"
      )
  }
}
