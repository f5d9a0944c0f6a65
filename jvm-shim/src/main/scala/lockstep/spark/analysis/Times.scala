package lockstep.spark.analysis

import org.apache.spark.sql.catalyst.expressions.{Cast, Expression, Literal}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.TimestampType

/** Times that are said in words, as microseconds since 1970. */
private[analysis] object Times {

  /** What an expression without columns says; None: no time. A text without a zone is of the session's. */
  def micros(time: Expression): Option[Long] =
    Cast(time, TimestampType, Some(SQLConf.get.sessionLocalTimeZone), ansiEnabled = false).eval() match {
      case number: Long => Some(number)
      case _ => None
    }

  def micros(time: String): Option[Long] = micros(Literal(time))
}
