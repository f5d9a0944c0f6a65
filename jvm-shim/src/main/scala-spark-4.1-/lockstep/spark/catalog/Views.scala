package lockstep.spark.catalog

import com.fasterxml.jackson.databind.JsonNode
import lockstep.spark.statements.StatementScope
import org.apache.spark.sql.connector.catalog.{Identifier, Table, TableCatalog}

/** The views of a catalog, for a Spark that knows none there: what a lake has is told from what it has not. */
private[spark] trait Views extends TableCatalog {

  protected def ask(op: String, args: (String, Any)*): JsonNode
  protected def names(ident: Identifier): Seq[(String, Any)]

  /** Those that `SHOW TABLE EXTENDED` lists: none, as in `SHOW TABLES`. */
  def describedViews(namespace: Array[String], pattern: String): Seq[(String, String)] = Nil

  /** A view as it was: Spark could not read it. */
  protected def pastView(ident: Identifier, when: (String, Any)): Option[Table] = None

  protected def viewExists(ident: Identifier): Boolean =
    !StatementScope.ask(name, ident, isLookedAt = false)(read => ask("view", names(ident) ++ read: _*)).get("missing").asBoolean
}

private[spark] object Views {

  /** Whether Spark asks a catalog for a view where a query names one. */
  val AreRead = false
}
