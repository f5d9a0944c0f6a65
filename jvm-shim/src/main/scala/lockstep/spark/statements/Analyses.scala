package lockstep.spark.statements

import java.lang.ref.{Reference, ReferenceQueue, WeakReference}
import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.sql.catalyst.analysis.AnalysisContext

/**
 * The statements whose analyses are under way. Spark gives each analysis a relation cache of its own, which the analyses
 * of its views, subqueries and functions share: that object is the analysis' identity. Analyses nest, as deep as Delta's
 * own queries go, and one that fails is never told to have ended; so a statement is kept for as long as Spark keeps the
 * relation cache, and then forgotten.
 */
final private[spark] class Analyses {
  private val collected = new ReferenceQueue[AnyRef]
  private val statements = new ConcurrentHashMap[Analyses.Key, StatementScope]()

  /**
   * The statement of this thread's analysis; None outside one. An analysis that began without our rule has one all the
   * same, which reads all of its tables at one database version.
   */
  def current: Option[StatementScope] =
    Option(statements.get(key)).orElse(Option.when(AnalysisNow.isUnderWay)(open()))

  def open(): StatementScope = {
    forgetCollected()
    statements.computeIfAbsent(key, _ => new StatementScope)
  }

  private def key = new Analyses.Key(AnalysisContext.get.relationCache, collected)

  private def forgetCollected(): Unit =
    Iterator.continually(collected.poll()).takeWhile(_ != null).foreach((key: Reference[_]) => statements.remove(key))
}

private object Analyses {

  /** By identity: equal relation caches are many. */
  final private class Key(cache: AnyRef, collected: ReferenceQueue[AnyRef])
      extends WeakReference[AnyRef](cache, collected) {
    override val hashCode: Int = System.identityHashCode(cache)

    override def equals(other: Any): Boolean = other match {
      case key: Key => (key eq this) || Option(get).exists(_ eq key.get)
      case _ => false
    }
  }
}
