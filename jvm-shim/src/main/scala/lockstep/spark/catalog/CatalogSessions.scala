package lockstep.spark.catalog

import java.util.{Collections, WeakHashMap}

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.connector.catalog.CatalogPlugin

import scala.jdk.CollectionConverters._

/**
 * Finds the session that a catalog belongs to. Spark makes one catalog object per session but does not tell it whose;
 * the active session of the thread is only a guess (`other.range(1).write.saveAsTable(…)` runs under another's).
 */
private[spark] object CatalogSessions {
  private val known = Collections.synchronizedMap(new WeakHashMap[SparkSession, java.lang.Boolean]())

  def add(session: SparkSession): Unit = known.synchronized {
    val _ = known.put(session, true)
  }

  def owner(catalog: CatalogPlugin): SparkSession = {
    val candidates = SparkSession.getActiveSession.toSeq ++ known.synchronized(known.keySet.asScala.toList)
    candidates.find(owns(_, catalog)).getOrElse(SparkSession.active)
  }

  private def owns(session: SparkSession, catalog: CatalogPlugin): Boolean = {
    val catalogs = session.sessionState.catalogManager
    catalogs.isCatalogRegistered(catalog.name) && (catalogs.catalog(catalog.name) eq catalog)
  }
}
