package lockstep.spark.parser

import lockstep.spark.grammar.Tokens
import org.apache.spark.sql.catalyst.parser.ParseException
import org.apache.spark.sql.lockstep.LockstepException

/**
 * `CHANGES FROM SYSTEM_TIME time`, with a time that is no literal. Spark's parser itself says what a time comes to there, before
 * anybody has looked up a function: it fails by an assertion, or takes `current_timestamp` for a column.
 */
private[parser] object ChangesTime {

  /** Parses a text, and says what Spark's parser does not say. */
  def told[T](text: String)(parse: => T): T =
    try parse
    catch {
      case e: AssertionError if isSparks(e) => throw noLiteral(e)
      case e: ParseException if e.getCondition == OfColumns && Tokens.saysChangesOfTimes(text) => throw noLiteral(e)
    }

  /** Spark's name of "timestamp expression cannot refer to any columns". */
  private val OfColumns = "_LEGACY_ERROR_TEMP_0056"

  private def isSparks(e: AssertionError) = e.getStackTrace.exists(_.getMethodName == "resolveTimestampForChanges")

  private def noLiteral(cause: Throwable) = {
    val refusal = new LockstepException(
      "LOCKSTEP_UNSUPPORTED",
      "a time of CHANGES FROM that is no literal: to Spark's parser it is one, such as TIMESTAMP'2026-01-31 12:00:00', or a " +
        "parameter whose value is a time. Ask for the time in a query of its own, and give it as such a parameter.",
      "0A000"
    )
    refusal.addSuppressed(cause)
    refusal
  }
}
