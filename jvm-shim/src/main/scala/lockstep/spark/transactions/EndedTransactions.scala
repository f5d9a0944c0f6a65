package lockstep.spark.transactions

import java.util.{Collections, LinkedHashMap, Map => JavaMap}

import lockstep.spark.overlay.Overlay
import lockstep.spark.scans.Scans
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.lockstep.LockstepException

/**
 * The transactions that ended in this driver, the newest of them: a DataFrame made inside one and used afterwards would
 * silently show what was there at BEGIN, for its staged commits are gone from under its URI. It gets an error instead.
 */
private[spark] object EndedTransactions {
  private val Remembered = 10000

  private val ids = Collections.synchronizedMap(new LinkedHashMap[String, java.lang.Boolean] {
    override def removeEldestEntry(eldest: JavaMap.Entry[String, java.lang.Boolean]): Boolean = size > Remembered
  })

  def add(transaction: Option[String]): Unit = transaction.foreach { id =>
    val _ = ids.put(id, true)
  }

  def check(view: Overlay.View): Unit = reason(view).foreach(message => throw new java.io.IOException(message))

  /** Refuses a plan that reads what an ended transaction saw: a cache would answer it without a look at any file. */
  def check(plan: LogicalPlan): Unit =
    if (!ids.isEmpty)
      Scans.relations(plan).flatMap(relation => reason(relation.view)).headOption.foreach(message =>
        throw new LockstepException("LOCKSTEP_NO_TRANSACTION", message, "25P01"))

  private def reason(view: Overlay.View): Option[String] =
    view.transaction.filter(ids.containsKey).map(id =>
      s"Transaction $id has ended, or went back to a savepoint, and a DataFrame or DeltaTable that was made inside it before " +
        "that is used. Make it again.")
}
