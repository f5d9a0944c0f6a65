package org.apache.spark.sql.lockstep

import org.apache.spark.sql.connector.catalog.{Identifier, Table, TableCatalog, V1Table, View}

/** A view where Spark asks a catalog for a table: it takes for a view what its own catalog would say of one. */
object ViewAsTable {
  def of(catalog: TableCatalog, ident: Identifier, view: View): Table =
    V1Table(V1Table.toCatalogTable(catalog, ident, view))
}
