package lockstep.spark.statements

import org.apache.spark.sql.catalyst.analysis.AnalysisContext

private[spark] object AnalysisNow {

  /** Whether this thread analyzes a statement, one too that our rule has not seen. */
  def isUnderWay: Boolean = !AnalysisContext.get.isDefault
}
