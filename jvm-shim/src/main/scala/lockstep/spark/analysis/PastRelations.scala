package lockstep.spark.analysis

import lockstep.spark.LockstepCatalog
import lockstep.spark.scans.Scans
import lockstep.spark.statements.{StatementScope, SystemTime}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis.{RelationTimeTravel, UnresolvedRelation}
import org.apache.spark.sql.catalyst.plans.logical.{AnalysisHelper, LogicalPlan, View}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lockstep.LockstepException
import org.apache.spark.sql.util.CaseInsensitiveStringMap

import scala.jdk.CollectionConverters._

/**
 * Tables that are read as they were without `AS OF` behind them: a DataFrame says so by options, and what a view reads that
 * is itself read as it was is read as it was then.
 */
private[spark] object PastRelations {
  private val Version = "systemVersionAsOf"
  private val Time = "systemTimeAsOf"

  /** Options that say in another way which version is meant. */
  private val Others = Seq("versionAsOf", "timestampAsOf")

  /** Options that say which one version is meant, of the database or of the table. */
  val Options: Seq[String] = Version +: Time +: Others

  def place(session: SparkSession, plan: LogicalPlan): LogicalPlan = {
    val ofView = Scans.asOf(SQLConf.get)
    AnalysisHelper.allowInvokingTransformsInAnalyzer {
      plan.transformDownWithSubqueries {
        case table: UnresolvedRelation if (ofView.isDefined || !table.options.isEmpty) && isOurs(session, table) =>
          byOptions(table).orElse(ofView.collect {
            case (view, version) if named(session, table).head == view.head && !table.isStreaming =>
              RelationTimeTravel(table, None, Some(s"@$version"))
          }).getOrElse(table)
      }
    }
  }

  private def named(session: SparkSession, table: UnresolvedRelation) =
    StatementScope.qualified(session, table.multipartIdentifier)

  private def isOurs(session: SparkSession, table: UnresolvedRelation) =
    LockstepCatalog.isOne(named(session, table).head) &&
      !StatementScope.isTemporary(session, table.multipartIdentifier)

  private def byOptions(table: UnresolvedRelation): Option[LogicalPlan] = {
    val options = table.options
    val said = Options.filter(options.containsKey)
    if (!said.exists(Seq(Version, Time).contains)) None
    else {
      if (said.size > 1)
        throw invalid(s"the options ${said.mkString(" and ")} each say which version is meant: give one")
      if (table.isStreaming) throw RowChanges.unsupported(s"the option ${said.head} of a stream: it reads what is new")
      val rest = options.asCaseSensitiveMap.asScala.filterNot { case (key, _) => key.equalsIgnoreCase(said.head) }
      val plain = table.copy(options = new CaseInsensitiveStringMap(rest.asJava))
      val value = options.get(said.head)
      Some(
        if (said.head == Version) RelationTimeTravel(plain, None, Some(s"@$value"))
        else {
          val micros = Times.micros(value).getOrElse(
            throw invalid(s"the option $Time is '$value', and no time: write 2026-01-31 12:00:00"))
          RelationTimeTravel(plain, Some(SystemTime.of(micros)), None)
        })
    }
  }

  private def invalid(what: String) = new LockstepException("LOCKSTEP_INVALID", what, "22023")
}

/**
 * Views as they were. Spark puts one in the place of a relation with `AS OF`, and forgets to analyze it, as it does where a
 * relation says by its options which version it is of: so that is what it is asked for instead.
 */
private[spark] object PastViews extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperatorsUp {
    case view: View if !view.child.resolved =>
      Scans.asOf(view).fold[LogicalPlan](view) { case (name, version) =>
        val options = Map(SQLConf.get.getConf(SQLConf.TIME_TRAVEL_VERSION_KEY) -> s"@$version")
        UnresolvedRelation(name, new CaseInsensitiveStringMap(options.asJava), isStreaming = false)
      }
  }
}
