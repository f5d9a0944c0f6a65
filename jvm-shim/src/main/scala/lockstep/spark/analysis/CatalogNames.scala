package lockstep.spark.analysis

import lockstep.spark.LockstepCatalog
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis.{UnresolvedNamespace, UnresolvedTableOrView}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, ShowTables}

/**
 * Names without a catalog in `spark.catalog.tableExists("t", "ns")`, `listTables("ns")` and the like. Spark looks for them in
 * its own catalog, as before it had others; while a Lockstep catalog is the current one they mean what they mean in SQL.
 */
private[spark] object CatalogNames {

  /** The name that this thread has parsed last: what Spark made of a name that was said in full. */
  private val parsed = new ThreadLocal[Option[Seq[String]]] {
    override def initialValue: Option[Seq[String]] = None
  }

  def hasParsed(name: Seq[String]): Unit = parsed.set(Some(name))

  def place(session: SparkSession, plan: LogicalPlan): LogicalPlan = {
    val name = parsed.get
    parsed.set(None)
    def isOurs = LockstepCatalog.isOne(session.sessionState.catalogManager.currentCatalog.name)
    plan match {
      case exists: UnresolvedTableOrView if exists.commandName == "Catalog.tableExists" && isOurs =>
        exists.copy(multipartIdentifier = written(name, exists.multipartIdentifier))
      case show: ShowTables if show.origin.sqlText.isEmpty && isOurs =>
        show.namespace match {
          case namespace: UnresolvedNamespace => show.copy(namespace = named(name, namespace))
          case _ => show
        }
      case namespace: UnresolvedNamespace if isOurs => named(name, namespace)
      case other => other
    }
  }

  private def named(name: Option[Seq[String]], namespace: UnresolvedNamespace): UnresolvedNamespace =
    namespace.copy(multipartIdentifier = written(name, namespace.multipartIdentifier))

  /** What was said, where Spark may have put its own catalog before it. */
  private def written(name: Option[Seq[String]], parts: Seq[String]): Seq[String] = name match {
    case Some(whole) if whole == parts => parts
    case Some(short) if parts.endsWith(short) => short
    case _ if parts.headOption.contains("spark_catalog") => parts.tail
    case _ => parts
  }
}
