package lockstep.spark.catalog

import org.apache.hadoop.fs.Path

/** Where a range of versions begins or ends: at a version or a time. */
private[spark] case class Bound(version: Option[String], micros: Option[Long], isInclusive: Boolean) {
  def fields: Map[String, Any] = Map("version" -> version, "micros" -> micros, "inclusive" -> isInclusive)
}

/** Some versions of a table's log, which one database version made. */
private[spark] case class Commits(first: Long, last: Long, version: Long, committedAtMicros: Long) {
  def versions: Seq[Long] = first to last
}

/**
 * A table, and what was committed to it in a range of database versions.
 *
 * @param version the table version whose columns are shown
 */
private[spark] case class ChangeRange(path: Path, name: Seq[String], version: Long, commits: Seq[Commits])
