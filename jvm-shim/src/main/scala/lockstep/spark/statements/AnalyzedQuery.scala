package lockstep.spark.statements

import lockstep.spark.scans.Scans
import lockstep.spark.transactions.EndedTransactions
import org.apache.spark.sql.catalyst.analysis.ParameterizedQuery
import org.apache.spark.sql.catalyst.plans.logical.{
  LogicalPlan,
  MergeIntoTable,
  UnresolvedWith,
  V2CreateTableAsSelectPlan,
  V2WriteCommand,
  WithCTE
}
import org.apache.spark.sql.catalyst.trees.TreeNodeTag
import org.apache.spark.sql.lockstep.LockstepException

/**
 * What became of a query when it was analyzed. `DataFrame.writeTo` and `mergeInto` hand Spark the query as it was before,
 * whose names would be looked up anew: in another version of the database, and on the other side of a transaction's end.
 */
final private[spark] class AnalyzedQuery {
  private var isTaken = false
  @volatile private[statements] var plan: Option[LogicalPlan] = None

  /** This, for the first analysis of the query alone: that is the one which its DataFrame shows. */
  private def taken: Option[AnalyzedQuery] = synchronized {
    val isFirst = !isTaken
    isTaken = true
    Option.when(isFirst)(this)
  }
}

private[spark] object AnalyzedQuery {

  /** On the plan that was parsed, or made by name: whatever stands for that later has it too. */
  private val Tag = TreeNodeTag[AnalyzedQuery]("lockstep.analyzed")

  /** Has a plan know what it will be analyzed to. */
  def mark(plan: LogicalPlan): Unit = if (of(plan).isEmpty) {
    val query = new AnalyzedQuery
    plan.setTagValue(Tag, query)
    plan match {
      case named: UnresolvedWith => named.child.setTagValue(Tag, query) // what it becomes is a new node
      case _ =>
    }
  }

  /** What a plan is that is analyzed now, if it never was before. */
  def begun(plan: LogicalPlan): Option[AnalyzedQuery] = of(plan).flatMap(_.taken)

  /** A plan that writes a query, with that query as it was analyzed before, if that read tables of ours. */
  def place(plan: LogicalPlan): LogicalPlan = plan match {
    case write: V2WriteCommand => placed(write, write.query)
    case make: V2CreateTableAsSelectPlan => placed(make, make.query)
    case merge: MergeIntoTable => placed(merge, merge.sourceTable)
    case _ => plan
  }

  private def placed(plan: LogicalPlan, query: LogicalPlan): LogicalPlan =
    (if (query.resolved) None else of(query)).fold(plan) { known =>
      val analyzed = known.plan.getOrElse(throw new LockstepException(
        "LOCKSTEP_UNSUPPORTED",
        "Spark would look up anew what this DataFrame reads, and what it was when it was made is not known. Nothing was " +
          "done. Write df.select(\"*\") in its place",
        "0A000"
      ))
      if (Scans.relations(analyzed).isEmpty && EndedTransactions.ofSystemTables(analyzed).isEmpty) plan
      else plan.mapChildren(child => if (child eq query) analyzed else child)
    }

  private def of(plan: LogicalPlan): Option[AnalyzedQuery] = plan match {
    case parameterized: ParameterizedQuery => of(parameterized.child)
    case named: WithCTE => of(named.plan)
    case _ => plan.getTagValue(Tag)
  }
}
