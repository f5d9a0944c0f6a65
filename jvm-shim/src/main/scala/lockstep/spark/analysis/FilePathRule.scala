package lockstep.spark.analysis

import lockstep.spark.overlay.Overlay
import lockstep.spark.scans.{NoTables, OverlaidRelation, Scans}
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
import org.apache.spark.sql.execution.datasources.LogicalRelation

/**
 * `_metadata.file_path` and `input_file_name()` of a query give paths without the overlay, as plain Delta gives them.
 *
 * Delta's own plans, which find files by these, read a chosen batch of files, and are left as they are: a batch's files
 * are known to Delta by the overlay's names.
 */
private[spark] object FilePathRule extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    if (NoTables.in(plan) || read(plan).isEmpty) plan
    else
      plan.resolveOperatorsUp { case node =>
        lazy val columns = read(node).flatMap(_.output).filter(_.name == "_metadata").map(_.exprId).toSet
        lazy val isUsers = files(Scans.relations(node)).nonEmpty && !readsBatch(node)
        node.transformExpressionsUp {
          case path @ GetStructField(AttributeReference("_metadata", _, _, _), _, Some("file_path"))
              if path.child.references.forall(each => columns.contains(each.exprId)) =>
            real(path)
          case path: InputFileName if isUsers => real(path)
        }
      }

  /** The tables of Lockstep catalogs that are read below, or changed: Delta's commands hide theirs in a field. */
  private def read(plan: LogicalPlan): Seq[LogicalRelation] =
    files((plan +: plan.productIterator.collect { case field: LogicalPlan => field }.toSeq).flatMap(Scans.relations))

  /** Those that are read as they are, and not for their changes. */
  private def files(tables: Seq[OverlaidRelation]): Seq[LogicalRelation] = tables.filter(_.log.nonEmpty).map(_.relation)

  private def readsBatch(plan: LogicalPlan): Boolean = plan.exists {
    case relation: LogicalRelation =>
      OverlaidRelation.of(relation).flatMap(_.index).exists(_.isInstanceOf[TahoeBatchFileIndex])
    case _ => false
  }

  private def real(path: Expression): Expression =
    RegExpReplace(path, Literal(Prefix), Literal("$1://$2/"))

  /** `lockstep://<view>.<scheme>[.<authority>]/`: see `Overlay.parse`. */
  private val Prefix = s"^${Overlay.Scheme}://[^./]+\\.([^./]+)\\.?([^/]*)/"
}
