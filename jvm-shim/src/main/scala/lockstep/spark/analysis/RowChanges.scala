package lockstep.spark.analysis

import lockstep.spark.LockstepCatalog
import lockstep.spark.catalog.Bound
import lockstep.spark.scans.Scans
import lockstep.spark.statements.StatementScope
import lockstep.spark.transactions.Transactions
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation
import org.apache.spark.sql.catalyst.plans.logical.{AnalysisHelper, LogicalPlan, SubqueryAlias}
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap
import org.apache.spark.sql.connector.catalog.Identifier
import org.apache.spark.sql.delta.catalog.DeltaTableV2
import org.apache.spark.sql.delta.lockstep.ChangedRows
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lockstep.LockstepException

import scala.jdk.CollectionConverters._

/**
 * The rows of a table that changed between two versions, of the database or of the table.
 *
 * Spark 4.2 has `CHANGES FROM … TO …` for it, and asks a catalog's `loadChangelog`. That gives a source of Spark's second
 * kind, and is not told whether it was SYSTEM_VERSION or VERSION; Delta's tables are of the first kind, and read their own
 * change data as such, with vectors, pruning and columns. So the clause is replaced by Delta's plan before Spark asks.
 * The same can be said by options, in any Spark.
 */
private[spark] case class RowChanges(
    table: UnresolvedRelation,
    isOfDatabase: Boolean,
    start: Bound,
    end: Option[Bound],
    told: RowChanges.Told,
    computesUpdates: Boolean) {
  import RowChanges.unsupported

  /** The plan that reads them; None if the table is not one of Lockstep's. */
  def plan(session: SparkSession): Option[LogicalPlan] = {
    val parts = StatementScope.qualified(session, table.multipartIdentifier)
    if (!LockstepCatalog.isOne(parts.head) || StatementScope.isTemporary(session, table.multipartIdentifier)) None
    else
      session.sessionState.catalogManager.catalog(parts.head) match {
        case catalog: LockstepCatalog =>
          Some(plan(session, catalog, Identifier.of(parts.tail.init.toArray, parts.last)))
        case _ => None
      }
  }

  private def plan(session: SparkSession, catalog: LockstepCatalog, ident: Identifier): LogicalPlan = {
    if (table.isStreaming)
      throw unsupported(
        "a stream of the changes of a table: read it with readStream and the option readChangeFeed, which is Delta's")
    if (Scans.asOf(SQLConf.get).isDefined)
      throw unsupported(
        s"the changes of ${table.multipartIdentifier.mkString(".")} in a view that is read as it was: ask for them in a query of " +
          "their own, TO the version that is meant")
    val found = catalog.rowChanges(ident, isOfDatabase, start, end)
    val delta = DeltaTableV2(session, found.path)
    val shown = ChangedRows.at(delta.deltaLog, found.version)
    val versions = if (isOfDatabase) found.commits.flatMap(_.versions) else ofTable(delta, found.version)
    val changed = ChangedRows.of(session, shown, versions)
    val rows = new ToldRows(changed, found.name.mkString("."))
    val plan = rows.as(told, computesUpdates, if (isOfDatabase) Some(found.commits) else None)
    val named = SubqueryAlias(catalog.name +: found.name, plan)
    Scans.markChanges(named, Transactions.current(session))
    named
  }

  /** Which versions of its log are meant, of those up to the last. */
  private def ofTable(delta: DeltaTableV2, last: Long): Seq[Long] = {
    def number(bound: Bound): Option[Long] = bound.version.map { text =>
      text.toLongOption.filter(version => version >= 0 && version <= last).getOrElse(throw new LockstepException(
        "LOCKSTEP_INVALID",
        s"'$text' is no version of ${table.multipartIdentifier.mkString(".")}: its versions go from 0 to $last. " +
          "SYSTEM_VERSION counts those of the database.",
        "22023"
      ))
    }
    def at(bound: Bound) = ChangedRows.lastAt(delta.deltaLog, bound.micros.get)
    val first =
      number(start).map(version => if (start.isInclusive) version else version + 1).getOrElse(at(start).fold(0L) {
        case (version, isJustThen) => if (isJustThen && start.isInclusive) version else version + 1
      })
    val through = end.fold(last) { bound =>
      number(bound).map(version => if (bound.isInclusive) version else version - 1).getOrElse(at(bound).fold(-1L) {
        case (version, isJustThen) => if (isJustThen && !bound.isInclusive) version - 1 else version
      })
    }
    if (number(start).exists(older => end.flatMap(number).exists(_ < older)))
      throw new LockstepException(
        "LOCKSTEP_INVALID",
        s"table version ${start.version.get} is newer than ${end.get.version.get}: name the older one first.",
        "22023")
    first to math.min(through, last)
  }
}

private[spark] object RowChanges {

  /** What is told of rows that were removed and added again as they were, or more than once. */
  sealed trait Told

  /** Each of them. */
  case object Raw extends Told

  /** Nothing, of what one version did. */
  case object WithoutCopies extends Told

  /** Nothing, of all versions together. */
  case object Net extends Told

  def unsupported(what: String) = new LockstepException("LOCKSTEP_UNSUPPORTED", what, "0A000")

  /** Puts plans in the places of tables that are asked for their changes. */
  def place(session: SparkSession, plan: LogicalPlan): LogicalPlan = {
    val asked: PartialFunction[LogicalPlan, RowChanges] =
      Function.unlift(node => ChangesClause.of(node).orElse(byOptions(node)))
    AnalysisHelper.allowInvokingTransformsInAnalyzer {
      plan.transformDownWithSubqueries {
        case node if asked.isDefinedAt(node) => asked(node).plan(session).getOrElse(node)
      }
    }
  }

  private def byOptions(node: LogicalPlan): Option[RowChanges] = node match {
    case table: UnresolvedRelation => of(table, CaseInsensitiveMap(table.options.asScala.toMap))
    case _ => None
  }

  private val Start = "startingSystem"
  private val End = "endingSystem"

  /** What a table's options ask for. */
  def of(table: UnresolvedRelation, options: Map[String, String]): Option[RowChanges] = {
    def bound(end: String, key: String) = {
      val isInclusive = flag(s"${key}BoundInclusive", default = true)
      val version = options.get(s"${end}Version")
      val time = options.get(s"${end}Time")
      if (version.isDefined && time.isDefined)
        throw invalid(s"${end}Version and ${end}Time are two ways to say one thing")
      version.map(text => Bound(Some(text), None, isInclusive))
        .orElse(time.map(text => Bound(None, Some(micros(s"${end}Time", text)), isInclusive)))
    }
    def flag(key: String, default: Boolean): Boolean = options.get(key).fold(default)(text =>
      text.toBooleanOption.getOrElse(throw invalid(s"the option $key is '$text', and neither true nor false")))
    bound(Start, "starting") match {
      case None if bound(End, "ending").isDefined =>
        throw invalid(s"${End}Version and ${End}Time need a $Start… to begin at")
      case None => None
      case Some(start) =>
        options.keys.find(Others.contains).foreach(other =>
          throw invalid(s"the options $other and $Start… exclude each other: they say different versions"))
        val end = bound(End, "ending")
        if (end.exists(_.version.isDefined != start.version.isDefined))
          throw invalid("a range is between two versions, or between two times")
        Some(RowChanges(
          table.copy(options = org.apache.spark.sql.util.CaseInsensitiveStringMap.empty),
          isOfDatabase = true,
          start,
          end,
          options.get("deduplicationMode").fold[Told](WithoutCopies)(mode),
          flag("computeUpdates", default = false)
        ))
    }
  }

  /** Options, in lower case, that say versions in other ways: ranges of the table's, and one version. */
  private val Others = Set("startingversion", "endingversion", "startingtimestamp", "endingtimestamp") ++
    PastRelations.Options.map(_.toLowerCase(java.util.Locale.ROOT))

  private def mode(text: String): Told = text.toLowerCase(java.util.Locale.ROOT) match {
    case "none" => Raw
    case "dropcarryovers" => WithoutCopies
    case "netchanges" => Net
    case _ => throw invalid(s"deduplicationMode is '$text': expected none, dropCarryovers or netChanges")
  }

  private def micros(option: String, text: String): Long =
    Times.micros(
      text).getOrElse(throw invalid(s"the option $option is '$text', and no time: write 2026-01-31 12:00:00"))

  private def invalid(what: String) = new LockstepException("LOCKSTEP_INVALID", what, "22023")
}
