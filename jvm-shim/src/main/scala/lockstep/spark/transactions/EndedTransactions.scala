package lockstep.spark.transactions

import java.util.{Collections, LinkedHashMap, Map => JavaMap}

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import lockstep.spark.overlay.Overlay
import lockstep.spark.scans.Scans
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.execution.columnar.InMemoryRelation
import org.apache.spark.sql.execution.datasources.v2.{DataSourceV2Relation, DataSourceV2ScanRelation}
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

  def check(view: Overlay.View): Unit = reason(view.transaction).foreach(refuse)

  /** Refuses a plan that reads what an ended transaction saw: a cache would answer it without a look at any file. */
  def check(plan: LogicalPlan): Unit =
    if (!ids.isEmpty)
      Scans.relations(plan).flatMap(relation => reason(relation.view.transaction)).headOption.foreach(refuse)

  /**
   * Refuses the use of a view or a function, outside a transaction, as a transaction had defined it. Python marks such a
   * definition by a version below 0, and tells within a transaction whether it is that one's.
   */
  def checkViews(marks: Set[JsonNode]): Unit = marks.find(Scans.isOwn).foreach { mark =>
    val name = mark.get("name").elements().asScala.map(_.asText).mkString(".")
    refuse(
      s"A transaction of another session, or one that has ended or went back to a savepoint, had defined $name, and a " +
        "DataFrame that was made inside it is used. Make it again.")
  }

  /** Refuses a plan of an execution that shows what an ended transaction saw of system tables, cached or not. */
  def checkSystemTables(plan: LogicalPlan): Unit =
    if (!ids.isEmpty) {
      val caches = plan.collectWithSubqueries { case cache: InMemoryRelation => cache.cacheBuilder.logicalPlan }
      (plan +: caches).flatMap(ofSystemTables).flatMap(reason).headOption.foreach(refuse)
    }

  /** Whose views the system tables show that a plan reads. */
  def ofSystemTables(plan: LogicalPlan): Seq[Option[String]] = plan.collectWithSubqueries {
    case relation: DataSourceV2Relation => relation.table
    case scan: DataSourceV2ScanRelation => scan.relation.table
  }.collect { case table: ShowsTransaction => table.transaction }

  private def refuse(message: String): Nothing =
    throw new LockstepException("LOCKSTEP_NO_TRANSACTION", message, "25P01")

  private def reason(transaction: Option[String]): Option[String] =
    transaction.filter(ids.containsKey).map(id =>
      s"Transaction $id has ended, or went back to a savepoint, and a DataFrame or DeltaTable that was made inside it before " +
        "that is used. Make it again.")
}

/** A table that shows what a transaction sees, and no other. */
private[spark] trait ShowsTransaction {

  /** The transaction, if there is one. */
  def transaction: Option[String]
}
