package lockstep.spark

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis.EliminateSubqueryAliases
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
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
    val isTable = EliminateSubqueryAliases(plan).isInstanceOf[LogicalRelation]
    plan.transformWithSubqueries { case CachedTables.OfHead(table) =>
      if (table.index.isTimeTravelQuery) pinned(table, isTable) else live(table)
    }
  }

  private def pinned(table: CachedTables.OfHead, isTable: Boolean): LogicalPlan = {
    val unpinned = table.at(None)
    val found = Option.unless(isCached(table.relation))(unpinned).flatMap(cached(_, table.index.version))
    found.fold[LogicalPlan](table.relation)(data =>
      if (isTable) unpinned else data.withOutput(table.relation.output))
  }

  private def live(table: CachedTables.OfHead): LogicalPlan =
    if (Internals.cached(session, table.relation).isEmpty) {
      val pinned = table.at(Some(table.newest))
      if (isCached(pinned)) pinned else table.relation
    } else {
      val _ = cached(table.relation, table.newest.version)
      table.relation
    }

  private def isCached(relation: LogicalRelation) = Internals.cached(session, relation).nonEmpty

  /** What is cached of a table, at this version. What is older is cached anew, if this is the newest one. */
  private def cached(live: LogicalRelation, version: Long): Option[InMemoryRelation] = {
    def found = Internals.cached(session, live)
    if (found.flatMap(versionOf).exists(_ < version)) Internals.cacheAnew(session, live)
    found.filter(versionOf(_).contains(version))
  }

  private def versionOf(data: InMemoryRelation): Option[Long] =
    Internals.locations(data).collectFirst { case index: PreparedDeltaFileIndex => index.version }
}

private object CachedTables {

  /** What this rule looks for in the cache is normalized too, and must stay as it is. */
  private val isLooking = ThreadLocal.withInitial[Boolean](() => false)

  /** A table of a catalog, as it is published. */
  final case class OfHead(relation: LogicalRelation, files: HadoopFsRelation, index: TahoeLogFileIndex) {

    def newest: Snapshot = index.deltaLog.update(stalenessAcceptable = true, catalogTableOpt = index.catalogTableOpt)

    def at(snapshot: Option[Snapshot]): LogicalRelation = {
      val other = index.copy(
        snapshotAtAnalysis = snapshot.getOrElse(index.snapshotAtAnalysis),
        isTimeTravelQuery = snapshot.nonEmpty)
      relation.copy(relation = files.copy(location = other)(files.sparkSession))
    }
  }

  object OfHead {
    def unapply(plan: LogicalPlan): Option[OfHead] = plan match {
      case relation: LogicalRelation => Overlaid.of(relation).filter(_.isHead).flatMap(found => of(relation, found.log))
      case _ => None
    }

    private def of(relation: LogicalRelation, index: Option[TahoeLogFileIndex]): Option[OfHead] =
      (relation.relation, index) match {
        case (files: HadoopFsRelation, Some(index)) => Some(new OfHead(relation, files, index))
        case _ => None
      }
  }
}
