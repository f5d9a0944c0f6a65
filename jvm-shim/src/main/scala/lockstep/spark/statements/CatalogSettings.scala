package lockstep.spark.statements

import org.apache.spark.sql.SparkSession

/** How a session's settings name its catalogs. */
private[spark] object CatalogSettings {
  val Prefix = "spark.sql.catalog."

  /** What a catalog of ours is set to. That class is built on what asks here, so its name is written out. */
  val ClassName = "lockstep.spark.LockstepCatalog"

  /** The names of a session's catalogs of ours, of which none is loaded for that. */
  def namesIn(session: SparkSession): Iterable[String] = session.conf.getAll.collect {
    case (key, ClassName) if key.startsWith(Prefix) => key.stripPrefix(Prefix)
  }
}
