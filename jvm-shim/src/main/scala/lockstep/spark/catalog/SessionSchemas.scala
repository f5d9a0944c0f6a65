package lockstep.spark.catalog

import java.net.URI

import org.apache.hadoop.fs.{FileSystem, Path}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.TableIdentifier
import org.apache.spark.sql.catalyst.analysis.{NoSuchDatabaseException, NoSuchNamespaceException, NoSuchTableException}
import org.apache.spark.sql.catalyst.catalog.CatalogTable

/** What Spark's own session catalog has in a schema, in memory or in a Hive metastore. Python decides what of it counts. */
private[spark] object SessionSchemas {
  private val Temporary = "TEMPORARY VIEW"

  /** The class of what a session calls so, which may have other tables than Spark's metastore. */
  def implementation(session: SparkSession): String =
    session.sessionState.catalogManager.catalog("spark_catalog").getClass.getName

  /** The fields of Python's `ListedSchema`. What is dropped between the list and the look at each is left out. */
  def listed(session: SparkSession, schema: String): Map[String, Any] = {
    val catalog = session.sessionState.catalog
    val name = Option.when(catalog.databaseExists(schema))(catalog.getDatabaseMetadata(schema).name)
    val (tables, temporary) = name.fold((Seq.empty[CatalogTable], Seq.empty[String]))(tablesOf(session, _))
    Map(
      "implementation" -> implementation(session),
      "name" -> name,
      "tables" -> fields(session, tables, temporary),
      "definitions" ->
        (tables.flatMap(SessionDefinitions.ofView(session, _)) ++
          name.toSeq.flatMap(SessionDefinitions.functions(session, _)))
    )
  }

  /** What is listed in a schema, and the names of the temporary views that are listed with it. */
  private def tablesOf(session: SparkSession, schema: String): (Seq[CatalogTable], Seq[String]) = {
    val catalog = session.sessionState.catalog
    val (temporary, own) = catalog.listTables(schema).partition(_.database.isEmpty)
    (catalog.getTablesByName(own), temporary.map(_.table))
  }

  private def fields(
      session: SparkSession,
      tables: Seq[CatalogTable],
      temporary: Seq[String]): Seq[Map[String, Any]] = {
    val default = defaultOf(session)
    tables.map(table(_, default)) ++ temporary.map(fields(_, Temporary))
  }

  /** What is there under each of these names, of a schema and a name: one look at the metastore each. */
  def tables(session: SparkSession, names: Seq[Seq[String]]): Seq[Option[Map[String, Any]]] = {
    lazy val default = defaultOf(session)
    names.map { name =>
      try
        Some(table(session.sessionState.catalog.getTableMetadata(TableIdentifier(name.last, Some(name.head))), default))
      catch { case _: NoSuchTableException | _: NoSuchNamespaceException | _: NoSuchDatabaseException => None }
    }
  }

  /** What goes if a schema is dropped, its own folder and what is in it; none, if there is no such schema. */
  def dropped(session: SparkSession, schema: String): Option[Map[String, Any]] = {
    val catalog = session.sessionState.catalog
    Option.when(catalog.databaseExists(schema)) {
      val folder = Option(catalog.getDatabaseMetadata(schema).locationUri).map(uri =>
        whole(new Path(uri), defaultOf(session)).toString)
      val (tables, temporary) = tablesOf(session, schema)
      Map("schema" -> schema, "folder" -> folder, "tables" -> fields(session, tables, temporary))
    }
  }

  private def defaultOf(session: SparkSession): URI = FileSystem.getDefaultUri(session.sessionState.newHadoopConf())

  private def table(found: CatalogTable, default: URI): Map[String, Any] = {
    val where = found.storage.locationUri.map(new Path(_)).map(whole(_, default))
    fields(found.identifier.table, found.tableType.name, found.provider, where.map(_.toString))
  }

  /** A metastore may have paths without a scheme, which are Hadoop's default file system's. */
  private def whole(path: Path, default: URI): Path =
    if (path.toUri.getScheme == null) path.makeQualified(default, new Path("/")) else path

  private def fields(
      name: String,
      kind: String,
      provider: Option[String] = None,
      location: Option[String] = None): Map[String, Any] =
    Map("name" -> name, "kind" -> kind, "provider" -> provider, "location" -> location)
}
