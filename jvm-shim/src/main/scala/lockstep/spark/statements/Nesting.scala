package lockstep.spark.statements

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.execution.SQLExecution

/**
 * In which of Spark's executions something happens on a thread.
 *
 * @param root      the outermost execution; none outside of all
 * @param execution the innermost one
 */
final private[statements] case class Nesting(root: Option[Long], execution: Option[Long]) {

  /** Whether this is within an execution that was begun where the other is: executions are numbered as they begin. */
  def isInside(other: Nesting): Boolean = execution.exists { number =>
    other.execution.forall(_ < number) && other.root.forall(root.contains)
  }
}

private[statements] object Nesting {
  def of(session: SparkSession): Nesting = {
    def number(key: String) = Option(session.sparkContext.getLocalProperty(key)).flatMap(_.toLongOption)
    Nesting(number(SQLExecution.EXECUTION_ROOT_ID_KEY), number(SQLExecution.EXECUTION_ID_KEY))
  }
}
