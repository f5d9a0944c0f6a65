package lockstep.spark.analysis

import java.util.Locale

import lockstep.spark.LockstepCatalog
import lockstep.spark.catalog.{TableFunctionCall, TableFunctions}
import lockstep.spark.statements.StatementScope
import org.apache.spark.sql.{AnalysisException, SparkSession}
import org.apache.spark.sql.catalyst.analysis.{AnalysisContext, FunctionResolution, UnresolvedTableValuedFunction}
import org.apache.spark.sql.catalyst.FunctionIdentifier
import org.apache.spark.sql.catalyst.plans.logical.{AnalysisHelper, LogicalPlan}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.util.quoteIfNeeded
import org.apache.spark.sql.connector.catalog.Identifier

/**
 * Calls of functions that return a table. Spark asks no catalog but its own for one, so a call of a Lockstep catalog's is
 * found before Spark looks, and its query put in its place when Spark has resolved the arguments, which may be columns of
 * what the call is joined to (LATERAL).
 */
private[spark] case class TableFunctionCalls(session: SparkSession) extends Rule[LogicalPlan] {

  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperatorsUp {
    case call: TableFunctionCall if call.arguments.forall(_.resolved) => TableFunctions.resolved(session, call)
  }
}

private[spark] object TableFunctionCalls {

  def place(session: SparkSession, plan: LogicalPlan): LogicalPlan = AnalysisHelper.allowInvokingTransformsInAnalyzer {
    plan.transformDownWithSubqueries { case call: UnresolvedTableValuedFunction => placed(session, call) }
  }

  private def placed(session: SparkSession, call: UnresolvedTableValuedFunction): LogicalPlan = {
    val places = candidates(session, call.name).takeWhile(name => !isSparks(session, name)).flatMap(ours(session, _))
    val found = places.view.flatMap { case (catalog, ident) =>
      catalog.tableFunction(ident, call.functionArgs)
    }.headOption
    if (found.nonEmpty && call.isStreaming)
      throw RowChanges.unsupported(s"STREAM ${quoted(call.name)}: a function is no stream")
    found.getOrElse {
      if (places.isEmpty) call
      else
        throw new AnalysisException(
          errorClass = "UNRESOLVABLE_TABLE_VALUED_FUNCTION",
          messageParameters = Map("name" -> quoted(call.name)),
          origin = call.origin)
    }
  }

  /** The whole names that a name may stand for, as Spark goes through them. */
  private def candidates(session: SparkSession, parts: Seq[String]): Seq[Seq[String]] =
    if (parts.size == 1) {
      val here = AnalysisContext.get
      session.sessionState.catalogManager.resolutionPathEntriesForAnalysis(
        here.resolutionPathEntries,
        here.catalogAndNamespace).map(_ ++ parts)
    } else if (FunctionResolution.sessionNamespaceKind(parts).nonEmpty) Nil
    else Seq(StatementScope.qualified(session, parts))

  /** Whether Spark finds a function under a whole name that is no other catalog's, as far as this is visible here. */
  private def isSparks(session: SparkSession, name: Seq[String]): Boolean = {
    val functions = session.sessionState.catalog
    if (FunctionResolution.sessionNamespaceKind(name).nonEmpty) {
      val whole = FunctionIdentifier(name.last.toLowerCase(Locale.ROOT), Some(name(1)), Some(name.head))
      Seq(true, false).exists(functions.lookupFunctionInfoByIdentifier(whole, _).nonEmpty)
    } else
      name.size == 3 && name.head.equalsIgnoreCase(SessionNames.SessionCatalog) &&
      functions.isPersistentFunction(FunctionIdentifier(name.last, Some(name(1))))
  }

  private def ours(session: SparkSession, name: Seq[String]): Option[(LockstepCatalog, Identifier)] =
    Option.when(LockstepCatalog.isOne(name.head))(session.sessionState.catalogManager.catalog(name.head)).collect {
      case catalog: LockstepCatalog => (catalog, Identifier.of(name.tail.init.toArray, name.last))
    }

  private def quoted(name: Seq[String]): String = name.map(quoteIfNeeded).mkString(".")
}
