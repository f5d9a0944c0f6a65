package lockstep.spark

import org.apache.spark.SPARK_VERSION
import org.apache.spark.sql.delta.DeltaLog
import org.apache.spark.sql.lockstep.LockstepException

/** Refuses a Spark or a Delta that this jar is not for, before anything of theirs is missing half-way. */
private[spark] object Versions {
  private val Numbered = """(\d+\.\d+).*""".r
  private val DeltaJar = """.*/delta-spark_(\d+\.\d+)_[^/]*\.jar""".r

  def check(): Unit = {
    val deltaPlace = Option(classOf[DeltaLog].getProtectionDomain.getCodeSource).map(_.getLocation.toString)
    val versions = Seq(
      ("Spark", minor(SPARK_VERSION), Built.Spark),
      ("Delta", minor(io.delta.VERSION), minor(Built.Delta)),
      (
        "a delta-spark for Spark",
        deltaPlace.collect { case DeltaJar(spark) => spark }.getOrElse(Built.Spark),
        Built.Spark)
    )
    versions.filter { case (_, has, wants) => has != wants }.foreach { case (what, has, wants) =>
      throw new LockstepException(
        "LOCKSTEP_UNSUPPORTED",
        s"this is $what $has, and Lockstep's jar was made for $what $wants. What goes together, for each Spark 4.0, 4.1 " +
          s"and 4.2: lockstep-spark_<Spark>_2.13, delta-spark_<Spark>_2.13 ${minor(Built.Delta)} and delta-storage " +
          s"${minor(Built.Delta)}. `python -m lockstep jars` names those for an installed pyspark.",
        "0A000"
      )
    }
  }

  private def minor(version: String): String = version match {
    case Numbered(number) => number
    case other => other
  }
}
