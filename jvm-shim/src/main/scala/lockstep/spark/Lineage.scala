package lockstep.spark

import scala.collection.mutable

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.execution.datasources.FileScanRDD
import org.apache.spark.sql.lockstep.{Internals, LockstepException}

/** RDDs: what Spark computes rows by, and no longer says from which plan. */
private[spark] object Lineage {
  private val Most = 100000

  /**
   * Whether rows of ours among what an RDD is computed from are read by an RDD that was made before the transaction, or of a
   * table that the transaction has not read: then the plan which made it is older. What a cache holds counts as read by
   * who reads the cache; what was checkpointed is nobody's but the checkpoint's.
   */
  def isOlder(rdd: RDD[_], tx: Open): Boolean = {
    val seen = mutable.HashSet.empty[Int]
    val todo = mutable.Stack(Step(rdd, None))
    var found = false
    while (todo.nonEmpty && !found) {
      val next = todo.pop()
      val files = ours(next.rdd)
      found = files.nonEmpty && next.reader.getOrElse(next.rdd.id) < tx.firstRdd ||
        next.reader.isEmpty && files.exists(file => !tx.reads.knows(file))
      if (seen.add(next.rdd.id))
        next.rdd.dependencies.foreach { dependency =>
          val through = next.reader.orElse(Option.when(Internals.isCache(dependency.rdd))(next.rdd.id))
          todo.push(Step(dependency.rdd, through))
        }
      if (seen.size > Most) found = true // what is not known is refused
    }
    found
  }

  /** An RDD that another is computed from, and which one reads the cache that lies between them, if one does. */
  private case class Step(rdd: RDD[_], reader: Option[Int])

  /** A file of ours that is read, which stands for the others: a scan has one table's. */
  private def ours(rdd: RDD[_]): Option[String] = rdd match {
    case scan: FileScanRDD =>
      val files = scan.filePartitions.iterator.flatMap(_.files).map(_.toPath.toUri)
      files.find(uri => uri.getScheme == Overlay.Scheme && !uri.getPath.contains("/_delta_log/")).map(_.getPath)
    case _ => None
  }

  def refusal(tx: Open): LockstepException = new LockstepException(
    "LOCKSTEP_ACTIVE_TRANSACTION",
    s"rows of an RDD from before BEGIN are read, which need not be what the open transaction (${tx.id}) sees: make the " +
      "RDD, and the DataFrame that it comes from, again inside it.",
    "25001"
  )
}
