package lockstep.spark.statements

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.lockstep.LockstepException

/** How a session's settings name its catalogs. */
private[spark] object CatalogSettings {
  val Prefix = "spark.sql.catalog."

  /** What a catalog of ours is set to. That class is built on what asks here, so its name is written out. */
  val ClassName = "lockstep.spark.LockstepCatalog"

  /** What Spark calls its own catalog by. */
  val OfSpark: String = Prefix + "spark_catalog"

  /** What Delta has Spark's own catalog be. */
  val Deltas = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

  /** A class of ours is none for Spark's own catalog: Spark and Delta ask the metastore past it, for some statements. */
  def checkOfSpark(value: Option[String]): Unit =
    if (value.map(_.trim).contains(ClassName))
      throw new LockstepException(
        "LOCKSTEP_CONFIGURATION",
        s"$OfSpark cannot be $ClassName: a name of two parts would mean a lake's table in some statements, and one of the " +
          s"metastore in others. Nothing was done. Set it to $Deltas, and give the lake a name of its own, as " +
          s"spark.sql.catalog.lake. For names of two parts to mean the lake's tables, set spark.sql.catalog.lake.session-names " +
          "to true.",
        "F0000"
      )

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
