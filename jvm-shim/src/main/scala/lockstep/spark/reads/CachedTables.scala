package lockstep.spark.reads

import lockstep.spark.scans.OverlaidRelation
import lockstep.spark.transactions.Transactions
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis.EliminateSubqueryAliases
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeSet, NamedExpression}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, Project}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.delta.Snapshot
import org.apache.spark.sql.delta.files.TahoeLogFileIndex
import org.apache.spark.sql.delta.stats.PreparedDeltaFileIndex
import org.apache.spark.sql.execution.columnar.InMemoryRelation
import org.apache.spark.sql.execution.datasources.{HadoopFsRelation, LogicalRelation}
import org.apache.spark.sql.lockstep.Internals

/**
 * Spark looks for cached data by comparing plans. What SQL reads of a table has its version in the plan; what
 * `spark.table`, and so `spark.catalog.cacheTable`, reads has none. This rule brings the two together where the versions are
 * the same, just before Spark looks; and what was cached without a version, and is not the newest any more, is cached anew.
 * Inside a transaction it does neither: what its queries may read is judged by plans as they were made.
 */
private[spark] case class CachedTables(session: SparkSession) extends Rule[LogicalPlan] {

  override def apply(plan: LogicalPlan): LogicalPlan =
    if (Internals.cachesNothing(session) || CachedTables.isLooking.get || Transactions.isOpen(session)) plan
    else {
      CachedTables.isLooking.set(true)
      try looked(plan)
      finally CachedTables.isLooking.set(false)
    }

  private def looked(plan: LogicalPlan): LogicalPlan = {
    // A plan that is a table, and no more, is one that is to be cached or taken out of the cache.
    val isTable = CachedTables.OfHead.unapply(EliminateSubqueryAliases(plan)).nonEmpty
    plan.transformWithSubqueries { case CachedTables.OfHead(table) =>
      if (table.index.isTimeTravelQuery) pinned(table, isTable) else live(table)
    }
  }

  private def pinned(table: CachedTables.OfHead, isTable: Boolean): LogicalPlan = {
    val unpinned = table.at(None)
    val cache = Option.unless(isCached(table.plan))(unpinned).flatMap(cached(_, table.index.version))
    cache.fold(table.plan)(data => if (isTable) unpinned else data.withOutput(table.plan.output))
  }

  private def live(table: CachedTables.OfHead): LogicalPlan =
    if (isCached(table.plan)) {
      val _ = cached(table.plan, table.newest.version)
      table.plan
    } else {
      val pinned = table.at(Some(table.newest))
      if (isCached(pinned)) pinned else table.plan
    }

  private def isCached(plan: LogicalPlan) = Internals.cached(session, plan).nonEmpty

  /** What is cached of a table, at this version. What is older is cached anew, if this is the newest one. */
  private def cached(live: LogicalPlan, version: Long): Option[InMemoryRelation] = {
    def data = Internals.cached(session, live)
    if (data.flatMap(versionOf).exists(_ < version)) Internals.cacheAnew(session, live)
    data.filter(versionOf(_).contains(version))
  }

  private def versionOf(data: InMemoryRelation): Option[Long] =
    Internals.locations(data).collectFirst { case index: PreparedDeltaFileIndex => index.version }
}

private[spark] object CachedTables {

  /** What this rule looks for in the cache is normalized too, and must stay as it is. */
  private val isLooking = ThreadLocal.withInitial[Boolean](() => false)

  /**
   * A table of a catalog, as it is published.
   *
   * @param plan its relation, or the projection of it in which Spark fills up the values of its CHAR columns
   */
  final case class OfHead(
      plan: LogicalPlan,
      relation: LogicalRelation,
      files: HadoopFsRelation,
      index: TahoeLogFileIndex) {

    def newest: Snapshot = index.deltaLog.update(stalenessAcceptable = true, catalogTableOpt = index.catalogTableOpt)

    def at(snapshot: Option[Snapshot]): LogicalPlan = {
      val other = index.copy(
        snapshotAtAnalysis = snapshot.getOrElse(index.snapshotAtAnalysis),
        isTimeTravelQuery = snapshot.nonEmpty)
      val moved = relation.copy(relation = files.copy(location = other)(files.sparkSession))
      if (plan eq relation) moved else plan.withNewChildren(Seq(moved))
    }
  }

  object OfHead {
    def unapply(plan: LogicalPlan): Option[OfHead] = plan match {
      case relation: LogicalRelation => of(plan, relation)
      case Project(fields, relation: LogicalRelation) if isColumnByColumn(fields, relation.output) => of(plan, relation)
      case _ => None
    }

    private def of(plan: LogicalPlan, relation: LogicalRelation): Option[OfHead] =
      for {
        table <- OverlaidRelation.of(relation) if table.isHead
        index <- table.log
        files <- Some(relation.relation).collect { case files: HadoopFsRelation => files }
      } yield new OfHead(plan, relation, files, index)

    private def isColumnByColumn(fields: Seq[NamedExpression], columns: Seq[Attribute]) =
      fields.size == columns.size && fields.zip(columns).forall { case (field, column) =>
        field.name == column.name && field.references.subsetOf(AttributeSet(column))
      }
  }
}
