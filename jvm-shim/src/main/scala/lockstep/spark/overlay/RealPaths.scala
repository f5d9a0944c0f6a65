package lockstep.spark.overlay

import java.util.regex.Matcher

import org.apache.hadoop.fs.Path
import org.apache.spark.sql.{Row, SparkSession}
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.execution.command.{LeafRunnableCommand, RunnableCommand}

/** A command whose answer has paths in it, as they are without the overlay. */
private[spark] case class RealPaths(command: RunnableCommand) extends LeafRunnableCommand {
  override def nodeName: String = command.nodeName
  override def innerChildren: Seq[LogicalPlan] = Seq(command)
  override val output: Seq[Attribute] = command.output
  override lazy val metrics = command.metrics

  override def run(session: SparkSession): Seq[Row] = command.run(session).map { row =>
    Row.fromSeq(row.toSeq.map {
      case text: String => RealPaths.in(text)
      case value => value
    })
  }
}

private[spark] object RealPaths {

  def isOverlay(path: String): Boolean = path.startsWith(s"${Overlay.Scheme}://")

  /** A text, with the paths in it as they are without the overlay. */
  def in(text: String): String = {
    val shown = Root.replaceAllIn(
      text,
      uri => Matcher.quoteReplacement(Overlay.parse(uri.group(1)).real(new Path("/")).toString))
    Cut.replaceAllIn(
      shown,
      cut => {
        val authority = Option(cut.group(3)).fold("")(bucket => s"//$bucket")
        Matcher.quoteReplacement(s"${cut.group(1)}${cut.group(2)}:$authority/")
      }
    )
  }

  /** Up to the path; whatever else begins like that in a user's comment stays as it is. */
  private val Root = s"${Overlay.Scheme}://((?:head|(?:headk)?[0-9a-fxk]+-(?:new|[0-9]+))\\.[^/\\s]+)/".r

  /** Where Delta's plans of UPDATE and MERGE cut the beginning of a long path off, in the middle of our URI's first part. */
  private val Cut =
    "(Delta\\[version=[0-9]+, \\.\\.\\. )[0-9a-z-]*\\.(file|s3a?|gs|abfss?|hdfs)(?:\\.([^/\\s]+))?/".r
}
