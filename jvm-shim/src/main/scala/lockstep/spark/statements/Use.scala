package lockstep.spark.statements

import com.fasterxml.jackson.databind.JsonNode

/**
 * How a statement uses a table, as far as its unresolved plan tells.
 *
 * @param name what requests call it
 */
sealed abstract private[spark] class Use(val name: String) {
  def isTarget: Boolean = this match {
    case Append | Changed | Target => true
    case Live | Pinned => false
  }
}

/** The statement adds rows to the table, or alters its schema or properties, and reads none of it. */
private[spark] case object Append extends Use("append")

/** The statement changes rows that it finds by a condition. */
private[spark] case object Changed extends Use("changed")

/** The statement changes the table in another way, or is a command about it: it must see the newest state of it. */
private[spark] case object Target extends Use("target")

/** A relation alone that is no SQL, as in `spark.table(…)`: like Delta, it is read afresh each time it is used. */
private[spark] case object Live extends Use("live")

/** One table of a query: all of a query's tables are read at one database version. */
private[spark] case object Pinned extends Use("pinned")

/**
 * What Spark wants of a relation that it loads.
 *
 * @param writes whether the statement is about to write it
 * @param when   as of when it is wanted, a field of the request; none: as it is now
 */
final private[spark] case class Wanted(use: Use, writes: Boolean = false, when: Option[(String, Any)] = None) {

  /** Whether it matters what plain Delta writers did up to now. What the database was at a time is known. */
  def isLookedAt: Boolean = !when.exists(_._1 == "system_time_micros")

  /** What a request says of it. */
  def fields: Seq[(String, Any)] = Seq("use" -> use.name) ++ Option.when(writes)("writes" -> true) ++ when
}

/**
 * A relation as Python answered about it.
 *
 * @param touch the number of this loading
 */
final private[spark] case class Loading(answer: JsonNode, touch: Long)
