package lockstep.spark.catalog

import java.util

import lockstep.spark.grammar.Tokens
import lockstep.spark.statements.StatementScope
import org.apache.spark.sql.connector.catalog._

/** `CREATE TABLE … LIKE …`, which Delta carries out. */
private[spark] trait CreateTableLike extends TableCatalog {

  protected def delta: StagingTableCatalog
  protected def creating(ident: Identifier, mode: String, properties: util.Map[String, String]): Identifier
  protected def asDelta(properties: util.Map[String, String]): util.Map[String, String]

  override def createTableLike(ident: Identifier, info: TableInfo, source: Table): Table = {
    val like = new TableInfo.Builder()
      .withPartitions(info.partitions)
      .withConstraints(info.constraints)
      .withColumns(info.columns)
      .withProperties(asDelta(info.properties))
      .build()
    // Without USING, Spark says the format of the source.
    val properties = if (StatementScope.latestText.exists(Tokens.saysUsing)) info.properties else like.properties
    delta.createTableLike(creating(ident, "create", properties), like, source)
    loadTable(ident)
  }
}
