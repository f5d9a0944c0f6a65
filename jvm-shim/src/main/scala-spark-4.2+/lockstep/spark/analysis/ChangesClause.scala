package lockstep.spark.analysis

import lockstep.spark.analysis.RowChanges.{Net, Raw, WithoutCopies}
import lockstep.spark.catalog.Bound
import lockstep.spark.grammar.{Filled, Tokens}
import org.apache.spark.sql.catalyst.analysis.{RelationChanges, UnresolvedRelation}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap
import org.apache.spark.sql.connector.catalog.ChangelogContext.DeduplicationMode
import org.apache.spark.sql.connector.catalog.ChangelogRange.{TimestampRange, UnboundedRange, VersionRange}

import scala.jdk.CollectionConverters._
import scala.jdk.OptionConverters._

/** `table CHANGES FROM … TO …`, and `spark.read.changes(…)`, which Spark has since 4.2. */
private[analysis] object ChangesClause {

  /** The table that is asked for its changes, and the same of another. */
  def unapply(node: LogicalPlan): Option[(UnresolvedRelation, UnresolvedRelation => LogicalPlan)] = node match {
    case changes @ RelationChanges(table: UnresolvedRelation, _) =>
      Some((table, other => changes.copy(relation = other)))
    case _ => None
  }

  def of(node: LogicalPlan): Option[RowChanges] = node match {
    case changes @ RelationChanges(table: UnresolvedRelation, context) =>
      val range = context.range
      val bounds = range match {
        case versions: VersionRange =>
          def bound(version: String, isInclusive: Boolean) = Bound(Some(version), None, isInclusive)
          Some(
            bound(versions.startingVersion, range.startingBoundInclusive) ->
              versions.endingVersion.toScala.map(bound(_, range.endingBoundInclusive)))
        case times: TimestampRange =>
          def bound(micros: Long, isInclusive: Boolean) = Bound(None, Some(micros), isInclusive)
          Some(
            bound(times.startingTimestamp, range.startingBoundInclusive) ->
              times.endingTimestamp.toScala.map(bound(_, range.endingBoundInclusive)))
        case _: UnboundedRange => None
      }
      bounds.map { case (start, end) =>
        RowChanges(table, isOfDatabase(changes), start, end, mode(context.deduplicationMode), context.computeUpdates)
      }.orElse(RowChanges.of(table, CaseInsensitiveMap(table.options.asScala.toMap)))
    case _ => None
  }

  private def mode(mode: DeduplicationMode) = mode match {
    case DeduplicationMode.NONE => Raw
    case DeduplicationMode.DROP_CARRYOVERS => WithoutCopies
    case DeduplicationMode.NET_CHANGES => Net
  }

  /** Spark takes SYSTEM_VERSION and VERSION for one word, and keeps neither: so it is looked up in the text. */
  private def isOfDatabase(changes: RelationChanges): Boolean = {
    val origin = changes.origin
    origin.sqlText.exists(text => Filled.start(origin).exists(Tokens.changesOfSystem(text, _)))
  }
}
