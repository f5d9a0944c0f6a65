package lockstep.spark

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.lockstep.{Internals, LockstepException}

/** What decides: Python's `TransactionalCatalog` behind one method. A request and its answer are JSON objects. */
trait Host {
  def call(request: String): String
}

/**
 * The one way from Spark to Python. Strings go over, a JSON object comes back, and every request names its session:
 * callbacks arrive on threads of Py4J's choosing, so nothing may hang on the thread.
 *
 * An answer is `{"ok": …}` or `{"error": {"condition", "message", "sqlstate"}}`: the type of a Python exception does
 * not survive Py4J, so it travels as data and is raised here as a Spark error.
 */
object Bridge {
  private val json = new ObjectMapper()
  @volatile private var host: Option[Host] = None

  def attach(decider: Host): Unit = host = Some(decider)

  def detach(): Unit = host = None

  def isOpen(session: SparkSession): Boolean = Transactions.isOpen(session)

  /** Asks Python; throws [[LockstepException]] with what it refused. */
  def call(op: String, session: SparkSession, args: (String, Any)*): JsonNode = {
    val request = json.createObjectNode().put("op", op).put("session", Internals.id(session))
    args.foreach { case (key, value) => request.set[JsonNode](key, json.valueToTree[JsonNode](plain(value))) }
    val decider = host.getOrElse(
      throw new LockstepException(
        "LOCKSTEP_NO_HOST",
        "No Lockstep host is attached to this Spark driver. In Python, call `lockstep.attach(spark)` once, " +
          "right after getOrCreate().",
        "55000"
      ))
    val answer = json.readTree(decider.call(json.writeValueAsString(request)))
    Option(answer.get("error")).foreach(e =>
      throw new LockstepException(e.get("condition").asText, e.get("message").asText, e.get("sqlstate").asText))
    answer.get("ok")
  }

  /** Tells Python something that has no answer but a refusal. */
  def tell(op: String, session: SparkSession, args: (String, Any)*): Unit = {
    val _ = call(op, session, args: _*)
  }

  /** Scala's collections and options as the Java ones that Jackson knows. */
  private def plain(value: Any): Any = value match {
    case None => null
    case Some(inner) => plain(inner)
    case map: scala.collection.Map[_, _] =>
      val out = new java.util.LinkedHashMap[String, Any]()
      map.foreach { case (k, v) => out.put(k.toString, plain(v)) }
      out
    case items: Iterable[_] =>
      val out = new java.util.ArrayList[Any]()
      items.foreach(item => out.add(plain(item)))
      out
    case items: Array[_] => plain(items.toSeq)
    case other => other
  }
}
