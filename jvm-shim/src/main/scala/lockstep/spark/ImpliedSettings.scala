package lockstep.spark

import lockstep.spark.statements.CatalogSettings
import org.apache.spark.SparkContext
import org.apache.spark.sql.lockstep.Internals

/** What else Lockstep needs said, where a user said only `spark.sql.extensions` and `spark.sql.catalog.<name>`. */
private[spark] object ImpliedSettings {
  val DeltaExtension = "io.delta.sql.DeltaSparkSessionExtension"

  private val ofSpark = Map(
    CatalogSettings.OfSpark -> CatalogSettings.Deltas,
    "spark.delta.logStore.lockstep.impl" -> classOf[LockstepLogStore].getName
  )

  private val ofHadoop = Map(
    "fs.lockstep.impl" -> classOf[LockstepFileSystem].getName,
    "fs.AbstractFileSystem.lockstep.impl" -> classOf[LockstepFileContext].getName,
    // Each transaction has an authority of its own: a cache of file systems would grow with every one.
    "fs.lockstep.impl.disable.cache" -> "true"
  )

  /** Names of settings whose values Spark is to hide: its own default, and what stores have besides. As in Python's `session.py`. */
  private val Keys =
    "(?i:secret|password|token|access[._]?key|account[._]?key|master[._]?key|sas[._]?key|service[._]account|" +
      "private[._]?key|proxy_url)"

  /** Says what was left unsaid, before the first session reads it; returns the names of all extensions. */
  def complete(context: SparkContext): Set[String] = {
    CatalogSettings.checkOfSpark(context.getConf.getOption(CatalogSettings.OfSpark))
    Internals.setIfMissing(context, ofSpark)
    Internals.hide(context, Keys)
    ofHadoop.foreach { case (key, value) => context.hadoopConfiguration.setIfUnset(key, value) }
    context.getConf.get("spark.sql.extensions", "").split(",").map(_.trim).toSet
  }
}
