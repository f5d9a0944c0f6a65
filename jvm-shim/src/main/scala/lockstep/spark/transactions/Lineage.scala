package lockstep.spark.transactions

import java.net.URI

import scala.collection.mutable

import lockstep.spark.overlay.Overlay
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.execution.{ExternalRDD, LogicalRDD}
import org.apache.spark.sql.execution.columnar.InMemoryRelation
import org.apache.spark.sql.execution.datasources.FileScanRDD
import org.apache.spark.sql.lockstep.{Internals, LockstepException}

/** RDDs: what Spark computes rows by, and no longer says from which plan. */
private[spark] object Lineage {
  private val Most = 100000

  /** The RDDs that a plan has rows from, those among them from which a cache was filled that it reads. */
  def of(plan: LogicalPlan): Seq[RDD[_]] = plan.collectWithSubqueries {
    case rows: LogicalRDD => Seq(rows.rdd)
    case rows: ExternalRDD[_] => Seq(rows.rdd)
    case cache: InMemoryRelation => of(cache.cacheBuilder.logicalPlan)
  }.flatten

  /**
   * Refuses rows of ours among what an RDD is computed from, if they are read by an RDD that was made before the
   * transaction, or of a table that the transaction has not read: then the plan which made it is older. What a cache holds
   * counts as read by who reads the cache; what was checkpointed is nobody's but the checkpoint's.
   */
  def refusal(rdd: RDD[_], tx: OpenTransaction): Option[LockstepException] = refusal(rdd, tx, Most)

  def refusal(rdd: RDD[_], tx: OpenTransaction, most: Int): Option[LockstepException] = {
    val seen = mutable.HashSet.empty[Step]
    val refusals = steps(rdd, step => !tx.computable.has(step) && seen.add(step)).flatMap { step =>
      if (isOlder(step, tx)) Some(older(tx)) else Option.when(seen.size > most)(tooMany(tx, most))
    }.nextOption()
    if (refusals.isEmpty) tx.computable.add(seen)
    refusals
  }

  /** The transactions through whose views an RDD's rows are read, of the first of those that it is computed from. */
  def transactions(rdd: RDD[_]): Set[String] = {
    val seen = mutable.HashSet.empty[Step]
    steps(rdd, seen.add).take(Most).flatMap(step => files(step.rdd).find(isOverlaid)).flatMap { file =>
      Overlay.parse(file.getAuthority).id
    }.toSet
  }

  /** An RDD and those that it is computed from, as far as they are new. */
  private def steps(rdd: RDD[_], isNew: Step => Boolean): Iterator[Step] = {
    val todo = mutable.Stack(Step(rdd, None))
    Iterator.continually(()).takeWhile(_ => todo.nonEmpty).map(_ => todo.pop()).filter(isNew).map { next =>
      next.rdd.dependencies.foreach { dependency =>
        val through = next.reader.orElse(Option.when(Internals.isCache(dependency.rdd))(next.rdd.id))
        todo.push(Step(dependency.rdd, through))
      }
      next
    }
  }

  /** What has been looked at and may be computed, so that nobody looks again for each job. */
  final class Known {
    private val ids = mutable.HashSet.empty[Int]

    private[Lineage] def has(step: Step): Boolean = synchronized(step.reader.isEmpty && ids.contains(step.rdd.id))

    private[Lineage] def add(steps: Iterable[Step]): Unit = synchronized {
      if (ids.size < Most) steps.foreach(step => if (step.reader.isEmpty) ids += step.rdd.id)
    }
  }

  /** An RDD that another is computed from, and which one reads the cache that lies between them, if one does. */
  private case class Step(rdd: RDD[_], reader: Option[Int])

  private def isOlder(step: Step, tx: OpenTransaction): Boolean = {
    val file = ours(step.rdd, tx)
    (file.nonEmpty || isEmptyScan(step.rdd)) && step.reader.getOrElse(step.rdd.id) < tx.firstRdd ||
    step.reader.isEmpty && file.filter(isOverlaid).exists(each => !tx.reads.knows(each.getPath))
  }

  /**
   * A file of ours that is read, which stands for the others: a scan has one table's. Those that a shallow clone shares with
   * its source have their real names.
   */
  private def ours(rdd: RDD[_], tx: OpenTransaction): Option[URI] =
    files(rdd).find(uri => isOverlaid(uri) || isBelow(uri, tx.root))

  private def files(rdd: RDD[_]): Iterator[URI] = rdd match {
    case scan: FileScanRDD =>
      val all = scan.filePartitions.iterator.flatMap(_.files).map(_.toPath.toUri)
      all.filterNot(_.getPath.contains("/_delta_log/"))
    case _ => Iterator.empty
  }

  /** Whether it is a scan of a table none of whose files may have rows for it: of which table, it does not say. */
  private def isEmptyScan(rdd: RDD[_]): Boolean = rdd match {
    case scan: FileScanRDD => scan.filePartitions.forall(_.files.isEmpty)
    case _ => false
  }

  private def isOverlaid(uri: URI): Boolean = uri.getScheme == Overlay.Scheme

  /** Schemes are not compared: one store may have several, as `s3` and `s3a`. */
  private def isBelow(uri: URI, root: URI): Boolean =
    Option(uri.getAuthority).getOrElse("") == Option(root.getAuthority).getOrElse("") &&
      uri.getPath.startsWith(s"${root.getPath.stripSuffix("/")}/")

  private def older(tx: OpenTransaction): LockstepException = new LockstepException(
    "LOCKSTEP_ACTIVE_TRANSACTION",
    s"rows of an RDD from before BEGIN are read, which need not be what the open transaction (${tx.id}) sees: make the " +
      "RDD, and the DataFrame that it comes from, again inside it.",
    "25001"
  )

  private def tooMany(tx: OpenTransaction, most: Int): LockstepException = new LockstepException(
    "LOCKSTEP_ACTIVE_TRANSACTION",
    s"an RDD is computed from more than $most others, too many to see whether the open transaction (${tx.id}) may read " +
      "their rows: checkpoint it, or one that it comes from.",
    "25001"
  )
}
