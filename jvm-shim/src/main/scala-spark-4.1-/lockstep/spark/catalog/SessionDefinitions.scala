package lockstep.spark.catalog

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.catalog.CatalogTable

import scala.annotation.unused

/** The views and functions of Spark's session catalog stay there, since a lake has none in a Spark before 4.2. */
private[spark] object SessionDefinitions {
  def ofView(@unused session: SparkSession, @unused found: CatalogTable): Option[Map[String, Any]] = None

  def functions(@unused session: SparkSession, @unused schema: String): Seq[Map[String, Any]] = Nil
}
