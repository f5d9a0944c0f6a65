package lockstep.spark.catalog

import java.net.URI

import org.apache.hadoop.fs.{FileSystem, Path}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.TableIdentifier
import org.apache.spark.sql.catalyst.catalog.CatalogTable

/** What Spark's own session catalog has in a schema, in memory or in a Hive metastore. Python decides what of it counts. */
private[spark] object SessionSchemas {
  private val Temporary = "TEMPORARY VIEW"

  /** The fields of Python's `ListedSchema`. What is dropped between the list and the look at each is left out. */
  def listed(session: SparkSession, schema: String): Map[String, Any] = {
    val catalog = session.sessionState.catalog
    val name = Option.when(catalog.databaseExists(schema))(catalog.getDatabaseMetadata(schema).name)
    val (temporary, own) = name.toSeq.flatMap(catalog.listTables).partition(_.database.isEmpty)
    val default = defaultOf(session)
    Map(
      "implementation" -> session.sessionState.catalogManager.catalog("spark_catalog").getClass.getName,
      "name" -> name,
      "tables" ->
        (catalog.getTablesByName(own).map(table(_, default)) ++ temporary.map(view =>
          fields(view.table, Temporary)))
    )
  }

  /** What is there under one name. */
  def table(session: SparkSession, schema: String, name: String): Option[Map[String, Any]] = {
    val catalog = session.sessionState.catalog
    val ident = TableIdentifier(name, Some(schema))
    val isThere = catalog.databaseExists(schema) && catalog.tableExists(ident)
    Option.when(isThere)(table(catalog.getTableMetadata(ident), defaultOf(session)))
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
