package lockstep.spark.catalog

import org.apache.spark.sql.catalyst.analysis.{NoSuchFunctionException, NoSuchNamespaceException}
import org.apache.spark.sql.connector.catalog.{FunctionCatalog, Identifier, SupportsNamespaces}
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction

/**
 * A catalog that has no functions, and says so: Spark lists its own for one that can list, and calls a misspelled name
 * an unknown function instead of complaining of the catalog.
 */
private[spark] trait Functions extends FunctionCatalog { this: SupportsNamespaces =>

  override def listFunctions(namespace: Array[String]): Array[Identifier] =
    if (namespaceExists(namespace)) Array.empty else throw new NoSuchNamespaceException(name +: namespace.toSeq)

  override def loadFunction(ident: Identifier): UnboundFunction = throw new NoSuchFunctionException(ident)
}
