package lockstep.spark.catalog

import lockstep.spark.statements.StatementScope
import org.apache.spark.sql.{AnalysisException, SparkSession}
import org.apache.spark.sql.catalyst.FunctionIdentifier
import org.apache.spark.sql.catalyst.analysis.{AnalysisContext, NoSuchFunctionException, UnresolvedRelation}
import org.apache.spark.sql.catalyst.catalog.{CatalogFunction, CatalogTable, CatalogTableType, SQLFunction}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, View => ViewOfPlan}
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
      def definition = {
        val settings = ViewOfPlan.effectiveSQLConf(found.viewSQLConfigs, isTempView = false, found.createVersion)
        val parsed = SQLConf.withExistingConf(settings)(session.sessionState.sqlParser.parsePlan(found.viewText.get))
        val problem =
          if (found.viewCatalogAndNamespace.isEmpty) Some("does not say where the names in it are looked for")
          else if (found.collation.nonEmpty) Some("has a default collation")
          else if (FunctionBodies.isOpen(FunctionBodies.said(parsed)))
            Some("has IDENTIFIER(), or the marker of a parameter, in it")
          else None
        val view = Map[String, Any](
          "text" -> found.viewText,
          "schema" -> CharVarcharUtils.getRawSchema(found.schema).json,
          // What Spark takes from its version where a view does not say it, which a lake's has not.
          "configs" -> (found.viewSQLConfigs + (SQLConf.ANSI_ENABLED.key -> settings.ansiEnabled.toString)),
          "mode" -> found.viewSchemaMode.toString,
          "query_columns" -> found.viewQueryColumnNames,
          "properties" -> (found.properties.filterNot(_._1.startsWith(CatalogTable.VIEW_PREFIX)) ++
            found.comment.map("comment" -> _))
        )
        Map[String, Any]("view" -> view, "problem" -> problem) ++ named(session, found, parsed)
      }
      Map("name" -> found.identifier.table) ++ told(definition)
    }

  /** The same of the functions of a schema. */
  def functions(session: SparkSession, schema: String): Seq[Map[String, Any]] = {
    val catalog = session.sessionState.catalog
    catalog.externalCatalog.listFunctions(schema, "*").flatMap { name =>
      try Some(catalog.getFunctionMetadata(FunctionIdentifier(name, Some(schema))))
      catch { case _: NoSuchFunctionException => None } // dropped meanwhile
    }.map(found => Map("name" -> s"${found.identifier.funcName}()") ++ told(ofFunction(session, found)))
  }

  private def ofFunction(session: SparkSession, found: CatalogFunction): Map[String, Any] =
    if (!SQLFunction.isSQLFunction(found.className)) Map("problem" -> s"is made of the class ${found.className}")
    else {
      val function = SQLFunction.fromCatalogFunction(found, session.sessionState.sqlParser)
      Map[String, Any]("function" -> Functions.written(session, function), "problem" -> FunctionBodies.problem(session, function)) ++
        named(session, TableFunctions.asView(function), FunctionBodies.call(session, function))
    }

  /** What a text names: each as it is written, and as it is understood where the text was made. */
  private def named(session: SparkSession, made: CatalogTable, parsed: LogicalPlan): Map[String, Any] =
    AnalysisContext.withAnalysisContext(made) {
      def both(parts: Seq[String]) = Map("written" -> parts, "meaning" -> StatementScope.qualified(session, parts))
      val reads = FunctionBodies.said(parsed).collect { case table: UnresolvedRelation => table.multipartIdentifier }
      Map("reads" -> reads.distinct.map(both), "calls" -> FunctionBodies.foreign(parsed).distinct.map(both))
    }

  /** What Spark, or the shim, refuses to look at is a problem of the one definition alone. */
  private def told(definition: => Map[String, Any]): Map[String, Any] =
    try definition
    catch {
      case refused @ (_: LockstepException | _: AnalysisException) =>
        Map("problem" -> s"cannot be looked at: ${refused.getMessage}")
    }
}
