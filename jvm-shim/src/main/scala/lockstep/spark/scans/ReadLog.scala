package lockstep.spark.scans

import java.lang.ref.WeakReference

import org.apache.spark.sql.catalyst.QueryPlanningTracker
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan

import scala.collection.mutable

/**
 * What a transaction, or a statement on its own, has read: in which folders, and of which loadings of tables it is known
 * what was read of them. The rest count as read in whole.
 */
final private[spark] class ReadLog {
  import ReadLog._

  private val open = mutable.LinkedHashSet.empty[Run]
  private val joined = mutable.LinkedHashSet.empty[Scan]
  private val folders = mutable.HashSet.empty[String]
  private val touches = mutable.LinkedHashSet.empty[Long]

  def add(run: Run, plan: LogicalPlan): Unit = synchronized {
    folders ++= Scans.folders(plan)
    Scans.touches(plan).filter(_ => touches.size < MaxTouches).foreach(touches.add)
    if (open.add(run) && open.size > MaxRuns) {
      val (over, going) = open.toSeq.partition(_.isOver)
      over.foreach(run => joined ++= run.scans)
      open.clear()
      open ++= going
      widen()
    }
  }

  /** Whether it is told of reads of the table that a file belongs to. */
  def knows(file: String): Boolean = synchronized(folders.exists(folder => file.startsWith(s"$folder/")))

  def scans: Seq[Map[String, Any]] = synchronized((joined.toSet ++ open.flatMap(_.scans)).toSeq.map(_.fields))

  def settled: Seq[Long] = synchronized(touches.toSeq)

  /** What is read is only ever added to: too many conditions become whole tables. */
  private def widen(): Unit = if (joined.size > MaxScans) {
    val whole = joined.map(_.copy(where = None)).toSet
    joined.clear()
    joined ++= whole
  }
}

private[spark] object ReadLog {
  private val MaxRuns = 1000
  private val MaxScans = 10000
  private val MaxTouches = 100000

  /**
   * What one query reads. The optimizer moves its filters down step by step, so of one run the newest answer counts: it is
   * of the whole plan as it then stands.
   */
  final class Run(tracker: QueryPlanningTracker) {
    @volatile private[spark] var scans = Set.empty[Scan]

    /** What it reads by path. Delta may answer it from statistics, and then the plan that is executed has none of it. */
    @volatile private[spark] var paths = ByPath.Nothing
    private val planning = new WeakReference(tracker)

    /** Whether the optimizer has done with it. A phase is among a query's once it has ended. */
    private[ReadLog] def isOver: Boolean =
      Option(planning.get).forall(_.phases.contains(QueryPlanningTracker.OPTIMIZATION))
  }
}
