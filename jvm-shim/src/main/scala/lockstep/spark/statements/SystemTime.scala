package lockstep.spark.statements

import lockstep.spark.grammar.{Filled, Tokens}
import org.apache.spark.sql.catalyst.analysis.RelationTimeTravel
import org.apache.spark.sql.catalyst.expressions.{Add, Cast, Expression, Literal, MicrosToTimestamp, UnixMicros}
import org.apache.spark.sql.catalyst.plans.logical.{AnalysisHelper, LogicalPlan}
import org.apache.spark.sql.catalyst.trees.TreePattern.RELATION_TIME_TRAVEL
import org.apache.spark.sql.types.TimestampType

/**
 * `SYSTEM_TIME AS OF t` means the database as it was at `t`, `TIMESTAMP AS OF t` Delta's own table version. Spark's
 * tree does not keep which was written, and hands the catalog nothing but microseconds. So the words before the
 * expression are looked up in the statement's text, the former gets [[SystemTime.Offset]] added, and the catalog takes
 * it off again.
 */
private[spark] object SystemTime {

  /** About 100,000 years in microseconds: past every time that a Delta table can have. */
  private val Offset = 3155760000000000000L

  /** The time that was asked for, if these microseconds came from `SYSTEM_TIME AS OF`. */
  def unapply(micros: Long): Option[Long] = if (micros >= Offset / 2) Some(micros - Offset) else None

  /** An expression for a time of the database. */
  def of(micros: Long): Expression = Literal(micros + Offset, TimestampType)

  def mark(plan: LogicalPlan): LogicalPlan =
    if (!plan.containsPattern(RELATION_TIME_TRAVEL)) plan
    else
      AnalysisHelper.allowInvokingTransformsInAnalyzer {
        plan.transformDownWithSubqueries {
          case travel @ RelationTimeTravel(_, Some(time), _) if isSystemTime(time) =>
            travel.copy(timestamp =
              Some(MicrosToTimestamp(Add(UnixMicros(Cast(time, TimestampType)), Literal(Offset)))))
        }
      }

  /** A marked expression is built here and has no place in the text, so it is not marked twice. */
  private def isSystemTime(time: Expression): Boolean =
    time.origin.sqlText.exists { sql =>
      val starts = time.collect(Function.unlift(e => Filled.start(e.origin)))
      starts.nonEmpty && Tokens.followsSystemTime(sql, starts.min)
    }
}
