package lockstep.spark.execution

import lockstep.spark.{Bridge, LockstepCatalog}
import lockstep.spark.overlay.Overlay
import org.apache.spark.sql.{Row, SparkSession}
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.delta.catalog.DeltaTableV2
import org.apache.spark.sql.delta.lockstep.KeptFiles
import org.apache.spark.sql.execution.command.LeafRunnableCommand

import io.delta.tables.execution.VacuumTableCommand

import scala.jdk.CollectionConverters._

/**
 * VACUUM of one of our tables: the files of versions that can be read stay, whatever its retention says, and so do those
 * that other tables need, open transactions, and readers of versions that have just expired.
 */
private[spark] case class Vacuum(command: VacuumTableCommand, table: DeltaTableV2) extends LeafRunnableCommand {
  override def nodeName: String = command.nodeName
  override def innerChildren: Seq[LogicalPlan] = Seq(command)
  override val output: Seq[Attribute] = command.output
  override lazy val metrics = command.metrics

  override def run(session: SparkSession): Seq[Row] = {
    val about = Seq("uri" -> table.path.toString, "catalogs" -> LockstepCatalog.in(session))
    val answer = Bridge.call("kept_versions", session, about: _*)
    val first = Option(answer.get("first")).filterNot(_.isNull).map(_.asLong)
    val alone = answer.get("alone").elements().asScala.map(_.asLong).toSeq
    val files = answer.get("files").elements().asScala.map(_.asText).toSeq
    val real = Overlay.parse(table.path.toUri.getAuthority).real(table.path)
    KeptFiles.vacuum(session, table, command, first, alone, files, answer.get("since").asLong, real)
  }
}
