package lockstep.spark.catalog

import lockstep.spark.statements.StatementScope
import org.apache.spark.SparkThrowable
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.FunctionIdentifier
import org.apache.spark.sql.catalyst.analysis.{
  AnalysisContext,
  NoSuchFunctionException,
  RelationTimeTravel,
  UnresolvedInlineTable,
  UnresolvedRelation,
  UnresolvedTableValuedFunction
}
import org.apache.spark.sql.catalyst.catalog.{CatalogFunction, CatalogTable, CatalogTableType, SQLFunction}
import org.apache.spark.sql.catalyst.plans.logical.{
  CTERelationRef,
  LeafNode,
  LocalRelation,
  LogicalPlan,
  OneRowRelation,
  View => ViewOfPlan
}
import org.apache.spark.sql.catalyst.util.CharVarcharUtils
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lockstep.LockstepException

/**
 * What the views and functions of Spark's session catalog say: texts, and what is named in them. Python decides which of
 * them mean the same as a lake's, where its tables are the schema's.
 */
private[spark] object SessionDefinitions {

  /** The fields of Python's `ListedDefinition`, of a view; none if it is a table. */
  def ofView(session: SparkSession, found: CatalogTable): Option[Map[String, Any]] =
    Option.when(found.tableType == CatalogTableType.VIEW) {
      Map[String, Any]("name" -> found.identifier.table, "is_function" -> false) ++ told(view(session, found))
    }

  /** The same of the functions of a schema. */
  def functions(session: SparkSession, schema: String): Seq[Map[String, Any]] = {
    val catalog = session.sessionState.catalog
    catalog.externalCatalog.listFunctions(schema, "*").flatMap { name =>
      try Some(catalog.getFunctionMetadata(FunctionIdentifier(name, Some(schema))))
      catch { case _: NoSuchFunctionException => None } // dropped meanwhile
    }.map { found =>
      Map[String, Any]("name" -> found.identifier.funcName, "is_function" -> true) ++ told(function(session, found))
    }
  }

  private def view(session: SparkSession, found: CatalogTable): Map[String, Any] = {
    val settings = ViewOfPlan.effectiveSQLConf(found.viewSQLConfigs, isTempView = false, found.createVersion)
    // A text is read as it was when the view was made: what is a name, and what WITH calls a query, settings may say.
    SQLConf.withExistingConf(settings) {
      val parsed = session.sessionState.sqlParser.parsePlan(found.viewText.getOrElse(""))
      Map[String, Any]("view" -> definition(found, settings), "problem" -> ofText(found).orElse(ofPlan(parsed))) ++
        named(session, found, parsed)
    }
  }

  private def definition(found: CatalogTable, settings: SQLConf): Map[String, Any] = Map[String, Any](
    "text" -> found.viewText.getOrElse(""),
    "schema" -> CharVarcharUtils.getRawSchema(found.schema).json,
    // What Spark takes from the version that made a view which does not say it: a lake's says no version.
    "configs" -> (found.viewSQLConfigs + (SQLConf.ANSI_ENABLED.key -> settings.ansiEnabled.toString)),
    "mode" -> found.viewSchemaMode.toString,
    "query_columns" -> found.viewQueryColumnNames,
    "properties" ->
      (found.properties.filterNot(_._1.startsWith(CatalogTable.VIEW_PREFIX)) ++
        found.comment.map("comment" -> _))
  )

  /** What Spark keeps of a view, and has no place in one of another catalog. */
  private def ofText(found: CatalogTable): Option[String] =
    if (CatalogTable.isMetricView(found)) Some("is a metric view")
    else if (found.viewCatalogAndNamespace.isEmpty) Some("does not say where the names in it are looked for")
    else if (found.viewStoredResolutionPath.exists(_.nonEmpty))
      Some("was made with a path (SET PATH) in which its names are looked for")
    else if (found.collation.nonEmpty) Some("has a default collation")
    else if (found.viewReferredTempViewNames.nonEmpty || found.viewReferredTempFunctionNames.nonEmpty ||
      found.viewReferredTempVariableNames.nonEmpty)
      Some("names what is temporary")
    else None

  private def function(session: SparkSession, found: CatalogFunction): Map[String, Any] =
    if (!SQLFunction.isSQLFunction(found.className))
      Map("problem" -> s"is made of the class ${found.className}: a lake has functions in SQL alone")
    else {
      val function = SQLFunction.fromCatalogFunction(found, session.sessionState.sqlParser)
      val (call, made) = (FunctionBodies.call(session, function), TableFunctions.asView(function))
      FunctionBodies.checkMoved(session, function, call)
      val problem =
        if (made.viewCatalogAndNamespace.isEmpty) Some("does not say where the names in it are looked for")
        else ofPlan(call)
      Map[String, Any]("function" -> Functions.written(session, function), "problem" -> problem) ++
        named(session, made, call)
    }

  /** What nobody can say of a text by the names in it. */
  private def ofPlan(parsed: LogicalPlan): Option[String] = {
    val nodes = FunctionBodies.said(parsed)
    if (FunctionBodies.isOpen(nodes)) Some("has IDENTIFIER(), or the marker of a parameter, in it")
    else nodes.collectFirst {
      case _: RelationTimeTravel => "reads a table as it was (VERSION AS OF, TIMESTAMP AS OF)"
      case table: UnresolvedRelation if table.isStreaming => s"reads ${table.name} as a stream"
      case table: UnresolvedRelation if !table.options.isEmpty => s"reads ${table.name} with options"
      case leaf: LeafNode if !isPlain(leaf) => s"has a part, ${leaf.nodeName}, that may read anything"
    }
  }

  /** Whether a part of a plan reads nothing but what it names. */
  private def isPlain(leaf: LeafNode): Boolean = leaf match {
    case _: UnresolvedRelation | _: UnresolvedTableValuedFunction | _: CTERelationRef => true
    case _: OneRowRelation | _: LocalRelation | _: UnresolvedInlineTable => true
    case _ => false
  }

  /** What a text names: each as it is written, and as it is understood where the text was made. */
  private def named(session: SparkSession, made: CatalogTable, parsed: LogicalPlan): Map[String, Any] =
    AnalysisContext.withAnalysisContext(made) {
      def both(parts: Seq[String]) = Map("written" -> parts, "meaning" -> StatementScope.qualified(session, parts))
      val reads = FunctionBodies.said(parsed).collect { case table: UnresolvedRelation => table.multipartIdentifier }
      Map("reads" -> reads.distinct.map(both), "calls" -> FunctionBodies.notSparks(parsed).distinct.map(both))
    }

  /** What Spark, or the shim, refuses to look at is a problem of the one definition alone. */
  private def told(definition: => Map[String, Any]): Map[String, Any] =
    try definition
    catch {
      case refused: LockstepException => Map("problem" -> s"cannot be the lake's: ${refused.said}")
      case refused: Exception with SparkThrowable => Map("problem" -> s"cannot be looked at: ${refused.getMessage}")
    }
}
