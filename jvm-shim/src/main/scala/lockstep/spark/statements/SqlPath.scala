package lockstep.spark.statements

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.lockstep.LockstepException

/**
 * Spark 4.2's `SET PATH`, in development and off by default: with it a name of one part is looked for in several schemas, of
 * several catalogs, and nobody but Spark knows in which of them it was found.
 */
private[spark] object SqlPath {
  private val Setting = "spark.sql.path.enabled"

  /** Refuses a name of one part, in a session that has anything of Lockstep's to take it for. */
  def refuse(session: SparkSession, name: String): Unit =
    if (session.conf.get(Setting, "false").toBoolean && CatalogSettings.namesIn(session).nonEmpty)
      throw new LockstepException(
        "LOCKSTEP_UNSUPPORTED",
        s"$name cannot be looked for while $Setting is on: it may be in any schema of the path. Nothing was done. Write the " +
          s"name with its schema, or set $Setting to false",
        "0A000"
      )
}
