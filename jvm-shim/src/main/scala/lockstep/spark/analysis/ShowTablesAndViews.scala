package lockstep.spark.analysis

import lockstep.spark.LockstepCatalog
import lockstep.spark.overlay.RealPaths
import org.apache.spark.sql.{Row, SparkSession}
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.execution.command.LeafRunnableCommand
import org.apache.spark.sql.execution.datasources.v2.ShowTablesExtendedExec

/**
 * `SHOW TABLE EXTENDED`, which lists what a namespace holds. Spark's for catalogs knows tables and temporary views; the
 * namespace's views, which it lists for its own catalog, are added here, and places are where files really lie.
 */
private[spark] case class ShowTablesAndViews(
    catalog: LockstepCatalog,
    namespace: Seq[String],
    pattern: String,
    override val output: Seq[Attribute])
    extends LeafRunnableCommand {

  override def run(session: SparkSession): Seq[Row] = {
    val (temporary, tables) = ShowTablesExtendedExec(output, catalog, namespace, pattern).executeCollect().toSeq.map {
      row => Row(row.getString(0), row.getString(1), row.getBoolean(2), RealPaths.in(row.getString(3)))
    }.partition(_.getBoolean(2))
    val views = catalog.describedViews(namespace.toArray, pattern).map { case (name, information) =>
      Row(LockstepCatalog.quoted(namespace), name, false, information)
    }
    (tables ++ views).sortBy(_.getString(1)) ++ temporary
  }
}
