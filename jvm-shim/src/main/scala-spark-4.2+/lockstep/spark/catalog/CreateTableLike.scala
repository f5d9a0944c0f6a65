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
    // Without USING, Spark says the format of the source; where the table is to lie, it says here alone.
    val said = new util.HashMap[String, String](info.properties)
    if (!StatementScope.latestText.exists(Tokens.saysUsing)) said.put(TableCatalog.PROP_PROVIDER, "delta")
    delta.createTableLike(creating(ident, "create", said), like, source)
    loadTable(ident)
  }
}
