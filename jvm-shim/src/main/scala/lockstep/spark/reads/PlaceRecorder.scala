package lockstep.spark.reads

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, ReturnAnswer}
import org.apache.spark.sql.execution.adaptive.LogicalQueryStage
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy}

/**
 * Looks at every query that is about to be planned, and plans nothing: by now its optimizer has chosen the partitions that
 * are read of a table, which none of the rules sees that an extension may add to it.
 */
private[spark] case class PlaceRecorder(session: SparkSession) extends SparkStrategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = {
    plan match {
      case ReturnAnswer(query) if !isPlannedAgain(query) => Reads.planning(session, query)
      case _ => ()
    }
    Nil
  }

  /** While a query runs, Spark plans again what is left of it. */
  private def isPlannedAgain(query: LogicalPlan): Boolean = query.exists(_.isInstanceOf[LogicalQueryStage])
}
