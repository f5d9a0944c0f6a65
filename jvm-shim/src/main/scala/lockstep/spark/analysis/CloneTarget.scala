package lockstep.spark.analysis

import lockstep.spark.LockstepCatalog
import lockstep.spark.statements.StatementScope
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation
import org.apache.spark.sql.catalyst.plans.logical.{CloneTableStatement, LogicalPlan}
import org.apache.spark.sql.connector.catalog.Identifier
import org.apache.spark.sql.delta.catalog.DeltaTableV2
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation

/**
 * Delta makes a clone in a catalog that is not its own in two commits, the first of them, an empty table, while it
 * analyzes the statement. At a path it makes it in one, when the statement runs. So the target becomes one.
 */
private[spark] object CloneTarget {

  def place(session: SparkSession, plan: LogicalPlan): LogicalPlan = plan match {
    case clone @ CloneTableStatement(_, target: UnresolvedRelation, _, _, _, _, _) =>
      val parts = StatementScope.qualified(session, target.multipartIdentifier)
      session.sessionState.catalogManager.catalog(parts.head) match {
        case catalog: LockstepCatalog =>
          place(session, clone, catalog, Identifier.of(parts.tail.init.toArray, parts.last))
        case _ => clone
      }
    case other => other
  }

  private def place(
      session: SparkSession,
      clone: CloneTableStatement,
      catalog: LockstepCatalog,
      ident: Identifier): LogicalPlan =
    // Delta itself says that the table exists, or does nothing IF NOT EXISTS.
    if (!clone.isReplaceCommand && catalog.tableExists(ident)) clone
    else {
      val mode =
        if (!clone.isReplaceCommand) "create" else if (clone.isCreateCommand) "create_or_replace" else "replace"
      val answer = catalog.place(ident, mode, provider = None, location = clone.targetLocation)
      val table = DeltaTableV2(session, new Path(answer.get("uri").asText))
      clone.copy(target = DataSourceV2Relation.create(table, None, None), targetLocation = None)
    }
}
