package lockstep.spark.statements

import org.apache.spark.sql.SparkSession

/** How a session's settings name its catalogs. */
private[spark] object CatalogSettings {
  val Prefix = "spark.sql.catalog."

  /** What a catalog of ours is set to. That class is built on what asks here, so its name is written out. */
  val ClassName = "lockstep.spark.LockstepCatalog"

  /** What a session says of a catalog of ours, without the prefix; none if it has no such catalog. */
  def of(session: SparkSession, name: String): Option[Map[String, String]] = {
    val all = session.conf.getAll
    Option.when(all.get(Prefix + name).contains(ClassName)) {
      val beginning = s"$Prefix$name."
      all.collect { case (key, value) if key.startsWith(beginning) => key.stripPrefix(beginning) -> value }
    }
  }

  /** The names of a session's catalogs of ours, of which none is loaded for that. */
  def namesIn(session: SparkSession): Iterable[String] = session.conf.getAll.collect {
    case (key, ClassName) if key.startsWith(Prefix) => key.stripPrefix(Prefix)
  }
}
