package lockstep.spark.catalog

import com.fasterxml.jackson.databind.JsonNode
import lockstep.spark.LockstepCatalog
import lockstep.spark.grammar.Tokens
import lockstep.spark.reads.Reads
import lockstep.spark.scans.Scans
import lockstep.spark.statements.StatementScope
import lockstep.spark.transactions.Transactions
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis.{NoSuchTableException, NoSuchViewException, ViewAlreadyExistsException}
import org.apache.spark.sql.catalyst.util.{CharVarcharUtils, StringUtils}
import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lockstep.{LockstepException, ViewAsTable}
import org.apache.spark.sql.types.{DataType, StructType}

import scala.jdk.CollectionConverters._

/** The views of a catalog: Spark makes and reads them, Python keeps their definitions in the timeline. */
private[spark] trait Views extends RelationCatalog {

  protected def session: SparkSession
  protected def ask(op: String, args: (String, Any)*): JsonNode
  protected def names(ident: Identifier): Seq[(String, Any)]
  protected def missingNamespace[T](namespace: Array[String])(body: => T): T

  /** Spark asks for a name that may be either's. */
  override def loadRelation(ident: Identifier): Relation =
    try loadTable(ident)
    catch { case e: NoSuchTableException => view(ident).getOrElse(throw e) }

  override def loadView(ident: Identifier): View =
    view(ident).getOrElse(throw new NoSuchViewException(ident))

  override def viewExists(ident: Identifier): Boolean = view(ident).isDefined

  override def listViews(namespace: Array[String]): Array[Identifier] = missingNamespace(namespace) {
    LockstepCatalog.listed(ask("views", "namespace" -> namespace.toSeq))
  }

  override def createView(ident: Identifier, view: View): View = put(ident, view, "create")

  override def replaceView(ident: Identifier, view: View): View = put(ident, view, "replace")

  override def createOrReplaceView(ident: Identifier, view: View): View = put(ident, view, "create_or_replace")

  override def dropView(ident: Identifier): Boolean = ask("drop_view", names(ident): _*).get("dropped").asBoolean

  override def renameView(from: Identifier, to: Identifier): Unit = {
    val _ = orSpark(from) {
      ask("rename_view", names(from) ++ Seq("to" -> (to.namespace.toSeq :+ to.name)): _*)
    }
  }

  /** The names of the views that a pattern fits, and what `SHOW TABLE EXTENDED` says of each, as it speaks of tables. */
  def describedViews(namespace: Array[String], pattern: String): Seq[(String, String)] = {
    val shown = StringUtils.filterPattern(listViews(namespace).toSeq.map(_.name), pattern)
    shown.map(Identifier.of(namespace, _)).flatMap(ident =>
      view(ident).map(ident.name -> Views.described(name, ident, _)))
  }

  private def view(ident: Identifier): Option[View] = {
    val tx = Transactions.of(session)
    val answer = StatementScope.ask(name, ident, isLookedAt = false)(read => ask("view", names(ident) ++ read: _*))
    Option.unless(answer.get("missing").asBoolean) {
      val mark = Scans.viewed(name, answer.get("name"), answer.get("version"))
      for (open <- tx; definition <- mark) Reads.toldView(open, definition)
      Views.read(answer.get("view"), mark.map(Scans.Viewed -> _))
    }
  }

  /**
   * A view as it was, with what it reads as that was. Spark looks for nothing but a table where a version is said, and
   * takes for a view what looks like one of its own catalog's.
   */
  protected def pastView(ident: Identifier, when: (String, Any)): Option[Table] = {
    val answer =
      StatementScope.ask(name, ident, isLookedAt = false)(read => ask("view", names(ident) ++ read :+ when: _*))
    Option.when(!answer.get("missing").asBoolean) {
      // What says of a view that it is read as it was is among its own settings, which are not looked at then.
      if (SQLConf.get.useCurrentSQLConfigsForView)
        throw new LockstepException(
          "LOCKSTEP_UNSUPPORTED",
          s"$ident as it was, while ${SQLConf.USE_CURRENT_SQL_CONFIGS_FOR_VIEW.key} is true: set that to false",
          "0A000")
      val view = Views.read(
        answer.get("view"),
        Some(Scans.asOf(name +: Views.texts(answer.get("name")).toSeq, answer.get("version").asLong)))
      ViewAsTable.of(this, ident, view)
    }
  }

  private def put(ident: Identifier, view: View, mode: String): View = missingNamespace(ident.namespace) {
    orSpark(ident) {
      ask("create_view", names(ident) ++ Seq("replace" -> mode, "view" -> Views.written(view)): _*)
    }
    view
  }

  /** What Spark's own commands look out for, as they know it. */
  private def orSpark[T](ident: Identifier)(body: => T): T =
    try body
    catch {
      case e: LockstepException if e.getSqlState == "42P07" => throw new ViewAlreadyExistsException(ident)
      case e: LockstepException if e.getSqlState == "42P01" => throw new NoSuchViewException(ident)
    }
}

private[spark] object Views {

  /** Whether Spark asks a catalog for a view where a query names one. */
  val AreRead = true

  def written(view: View): Map[String, Any] = Map(
    "text" -> Tokens.restoreSystemVersion(view.queryText),
    "schema" -> CharVarcharUtils.getRawSchema(view.schema).json,
    "catalog" -> Option(view.currentCatalog),
    "namespace" -> Option(view.currentNamespace).fold(Seq.empty[String])(_.toSeq),
    "configs" -> view.sqlConfigs.asScala.toMap.removed(Scans.Viewed),
    "mode" -> Option(view.schemaMode),
    "query_columns" -> Option(view.queryColumnNames).fold(Seq.empty[String])(_.toSeq),
    "properties" -> view.properties.asScala
  )

  /**
   * With CHAR columns as Spark's own views have them: strings that say so. Others are neither padded nor encoded.
   *
   * @param mark
   *   which definition it is, for the plans that use it to tell, or that it is read as it was: a view in a plan has
   *   nothing else of ours.
   */
  def read(node: JsonNode, mark: Option[(String, String)]): View = {
    val schema = DataType.fromJson(node.get("schema").asText).asInstanceOf[StructType]
    val builder = new View.Builder()
      .withSchema(CharVarcharUtils.replaceCharVarcharWithStringInSchema(schema))
      .withProperties(LockstepCatalog.textMap(node.get("properties")))
      .withQueryText(node.get("text").asText)
      .withCurrentNamespace(texts(node.get("namespace")))
      .withSqlConfigs((LockstepCatalog.textMap(node.get("configs")).asScala ++ mark).asJava)
      .withQueryColumnNames(texts(node.get("query_columns")))
    text(node.get("catalog")).foreach(builder.withCurrentCatalog)
    text(node.get("mode")).foreach(builder.withSchemaMode)
    builder.build()
  }

  def described(catalog: String, ident: Identifier, view: View): String = {
    val context = Option(view.currentCatalog).toSeq ++ Option(view.currentNamespace).toSeq.flatten
    Seq(
      "Catalog" -> catalog,
      "Namespace" -> LockstepCatalog.quoted(ident.namespace.toSeq),
      "View" -> ident.name,
      "Type" -> "VIEW",
      "View Text" -> view.queryText,
      "View Catalog and Namespace" -> LockstepCatalog.quoted(context),
      "View Query Output Columns" -> view.queryColumnNames.mkString("[", ", ", "]"),
      "Schema" -> view.schema.treeString
    ).map { case (key, value) => s"$key: $value" }.mkString("\n")
  }

  private[catalog] def texts(node: JsonNode): Array[String] = node.elements().asScala.map(_.asText).toArray

  private def text(node: JsonNode): Option[String] = Option(node).filterNot(_.isNull).map(_.asText)
}
