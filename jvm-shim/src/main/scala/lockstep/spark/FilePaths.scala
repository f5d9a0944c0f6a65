package lockstep.spark

import org.apache.spark.sql.catalyst.expressions.{
  AttributeReference,
  Expression,
  GetStructField,
  InputFileName,
  Literal,
  RegExpReplace
}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.delta.files.TahoeBatchFileIndex
import org.apache.spark.sql.execution.datasources.{HadoopFsRelation, LogicalRelation}

/**
 * `_metadata.file_path` and `input_file_name()` of a query give paths without the overlay, as plain Delta gives them.
 *
 * Delta's own plans, which find files by these, read a chosen batch of files, and are left as they are: a batch's files
 * are known to Delta by the overlay's names.
 */
private[spark] object FilePathRule extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    if (read(plan).isEmpty) plan
    else
      plan.resolveOperatorsUp { case node =>
        lazy val files = read(node).flatMap(_.output).filter(_.name == "_metadata").map(_.exprId).toSet
        lazy val isUsers = Scans.relations(node).nonEmpty && !readsBatch(node)
        node.transformExpressionsUp {
          case path @ GetStructField(AttributeReference("_metadata", _, _, _), _, Some("file_path"))
              if path.child.references.forall(each => files.contains(each.exprId)) =>
            real(path)
          case path: InputFileName if isUsers => real(path)
        }
      }

  /** The tables of Lockstep catalogs that are read below, or changed: Delta's commands hide theirs in a field. */
  private def read(plan: LogicalPlan): Seq[LogicalRelation] =
    (plan +: plan.productIterator.collect { case field: LogicalPlan => field }.toSeq).flatMap(Scans.relations).map(_._1)

  private def readsBatch(plan: LogicalPlan): Boolean = plan.exists {
    case LogicalRelation(HadoopFsRelation(_: TahoeBatchFileIndex, _, _, _, _, _), _, _, _, _) => true
    case _ => false
  }

  private def real(path: Expression): Expression =
    RegExpReplace(path, Literal(Overlaid), Literal("$1://$2/"))

  /** `lockstep://<view>.<scheme>[.<authority>]/`: see `Overlay.parse`. */
  private val Overlaid = s"^${Overlay.Scheme}://[^./]+\\.([^./]+)\\.?([^/]*)/"
}
