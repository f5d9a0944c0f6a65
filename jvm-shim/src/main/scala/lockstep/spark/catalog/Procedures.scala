package lockstep.spark.catalog

import java.util

import com.fasterxml.jackson.databind.JsonNode
import lockstep.spark.host.CatalogOptions
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.catalog.{Identifier, ProcedureCatalog}
import org.apache.spark.sql.connector.catalog.procedures.{BoundProcedure, ProcedureParameter, UnboundProcedure}
import org.apache.spark.sql.connector.read.Scan
import org.apache.spark.sql.lockstep.LockstepException
import org.apache.spark.sql.types.{DataType, StructType}

import scala.jdk.CollectionConverters._

/**
 * What can be called as `CALL <catalog>.system.<procedure>(…)`. Python has the procedures; Spark is told of them for SHOW and
 * DESCRIBE PROCEDURE. It would carry a CALL out while it analyzes the statement, which Spark Connect does twice, so a
 * command of its own takes its place (`analysis.ProcedureCalls`).
 */
private[spark] trait Procedures extends ProcedureCatalog {
  protected def ask(op: String, args: (String, Any)*): JsonNode
  protected def session: SparkSession

  /** What the arguments of a call are for, and what it gives. */
  private[spark] def bound(procedure: String, positional: Int, named: Seq[String]): JsonNode =
    ask("bind_procedure", "procedure" -> procedure, "positional" -> positional, "named" -> named)

  private[spark] def called(
      procedure: String,
      arguments: Map[String, Any],
      text: String,
      catalogs: Map[String, CatalogOptions]): JsonNode = {
    def call(listed: (String, Any)*): JsonNode = {
      val said = Seq("procedure" -> procedure, "arguments" -> arguments, "text" -> text, "catalogs" -> catalogs)
      ask("call", said ++ listed: _*)
    }
    val answer = call()
    val schema = answer.get("lists")
    if (schema.isNull) answer else call("listed" -> SessionSchemas.listed(session, schema.asText))
  }

  // Spark 4.0 has no `listProcedures`, so this overrides nothing there.
  def listProcedures(namespace: Array[String]): Array[Identifier] =
    if (Procedures.isTheirs(namespace))
      ask("procedures").get("names").elements().asScala.map(name => Identifier.of(namespace, name.asText)).toArray
    else Array.empty

  override def loadProcedure(ident: Identifier): UnboundProcedure = {
    if (!Procedures.isTheirs(ident.namespace))
      throw new LockstepException(
        "LOCKSTEP_UNDEFINED",
        s"No procedure $ident: this catalog's are in the namespace ${Procedures.Namespace}.",
        "42883")
    val answer = ask("procedure", "procedure" -> ident.name)
    val parameters = Procedures.typed(answer.get("parameters"))
    new Described(answer.get("name").asText, answer.get("says").asText, parameters, answer.get("required").asInt)
  }
}

private[spark] object Procedures {
  val Namespace = "system"

  def isTheirs(namespace: Array[String]): Boolean = namespace.toSeq.map(_.toLowerCase(util.Locale.ROOT)) ==
    Seq(Namespace)

  /** Names with their types. */
  def typed(node: JsonNode): Seq[(String, DataType)] =
    node.elements().asScala.map(each => each.get("name").asText -> DataType.fromDDL(each.get("type").asText)).toSeq
}

/** A procedure as Spark is told of it. */
private class Described(
    override val name: String,
    override val description: String,
    typed: Seq[(String, DataType)],
    required: Int)
    extends UnboundProcedure with BoundProcedure {

  override def bind(input: StructType): BoundProcedure = this

  override val parameters: Array[ProcedureParameter] = typed.zipWithIndex.map { case ((parameter, kind), at) =>
    val made = ProcedureParameter.in(parameter, kind)
    (if (at < required) made else made.defaultValue("NULL")).build()
  }.toArray

  override def isDeterministic: Boolean = false

  override def call(input: InternalRow): util.Iterator[Scan] =
    throw new LockstepException(
      "LOCKSTEP_UNSUPPORTED",
      s"CALL of $name is a statement of its own, and can be no part of another.",
      "0A000")
}
