package lockstep.spark.statements

import org.apache.spark.sql.catalyst.analysis.UnresolvedTableValuedFunction
import org.apache.spark.sql.catalyst.expressions.{Literal, StringLiteral}
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.util.quoteIfNeeded
import org.apache.spark.sql.types.StringType

/** Delta's `table_changes('table', …)`, which resolves its table by itself; of its kin only this one takes a name. */
private[spark] object ChangesFunction {
  private val Name = "table_changes"

  /** The name of the table, and the same of a table of another name. */
  def unapply(node: LogicalPlan): Option[(Seq[String], Seq[String] => LogicalPlan)] = node match {
    case call @ UnresolvedTableValuedFunction(Seq(function), StringLiteral(text) +: rest, _)
        if function.equalsIgnoreCase(Name) =>
      def of(name: Seq[String]) = Literal.create(name.map(quoteIfNeeded).mkString("."), StringType)
      Some((CatalystSqlParser.parseMultipartIdentifier(text), name => call.copy(functionArgs = of(name) +: rest)))
    case _ => None
  }
}
