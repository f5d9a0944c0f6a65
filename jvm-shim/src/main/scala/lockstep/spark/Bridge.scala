package lockstep.spark

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import lockstep.spark.host.{Callers, CatalogOptions, HadoopFiles, Host, HostEnded, RootLook, SpawnedHost, StoreSettings}
import lockstep.spark.transactions.{OpenTransaction, Transactions}
import org.apache.hadoop.conf.Configuration
import org.apache.spark.SparkContext
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.lockstep.LockstepException

import scala.annotation.tailrec
import scala.jdk.CollectionConverters._
import scala.ref.WeakReference

/**
 * A host in the driver's own Python, as Py4J calls it. Py4J's callback server takes calls from whoever reaches its port, so
 * each call shows the secret that was handed over with the host.
 */
trait AttachedHost {
  def call(secret: String, request: String): String
}

/**
 * The one way from Spark to Python. Strings go over, a JSON object comes back, and every request names its session:
 * callbacks arrive on threads of Py4J's choosing, so nothing may hang on the thread.
 *
 * What can be asked, and what is answered, is in Python's `lockstep.spark.host.protocol`: one class for each operation,
 * with every field that its request must or may have. Python refuses any other field.
 *
 * An answer is `{"ok": …}` or `{"error": {"condition", "message", "sqlstate"}}`: the type of a Python exception does
 * not survive Py4J, so it travels as data and is raised here as a Spark error. Or it is `{"look": …}`: nothing was done yet,
 * for Python wants to know first what this side sees of the lake's root ([[RootLook]]). Or it is `{"unsaid": …}`, for it
 * wants to know what catalogs are set to ([[CatalogOptions]]). It is told, and asked once more.
 */
object Bridge {
  private val json = new ObjectMapper()
  @volatile private var host: Option[Host] = None

  /** Makes a host the driver's, unless it has one; says whether it did. */
  def attach(decider: AttachedHost, secret: String): Boolean = synchronized {
    val isFirst = host.isEmpty
    if (isFirst) host = Some((request: String) => decider.call(secret, request))
    isFirst
  }

  /** For the driver's own Python: the id of a session's open transaction; null if it has none. */
  def current(session: SparkSession): String = Transactions.current(session).orNull

  /** For the driver's own Python: what it wants of a file of HDFS, see [[HadoopFiles]]. */
  def files(conf: Configuration, request: Array[Byte]): Array[Byte] = HadoopFiles.call(conf, request)

  /** For the driver's own Python: a request's arguments and its answer as JSON. */
  def ask(session: SparkSession, op: String, arguments: String): String =
    call(
      op,
      session,
      json.readTree(arguments).properties.asScala.map(each => each.getKey -> each.getValue).toSeq: _*).toString

  /** Asks Python; throws [[LockstepException]] with what it refused. */
  def call(op: String, session: SparkSession, args: (String, Any)*): JsonNode = {
    val decider = decide(session)
    val user = Callers.current(session.sparkContext).map("user" -> _.user)
    val tx = Transactions.of(session)
    val changing = tx.filterNot(_ => Looks(op))
    changing.foreach(_.changes.incrementAndGet())
    try asked(decider, op, session, args ++ user ++ tx.map("within" -> _.id))
    catch {
      case e: HostEnded =>
        throw new LockstepException(
          "LOCKSTEP_COMMIT_UNKNOWN",
          s"Lockstep's host ended while it was asked to $op (${e.getMessage}), and whether it did so is not known: " +
            "`lockstep log` shows what was committed. The next statement starts the host again; a transaction that was open " +
            "is rolled back, and of a COMMIT another COMMIT finds out.",
          "40003"
        )
    } finally changing.foreach(_.changes.incrementAndGet())
  }

  /** What asks, and changes nothing of what names mean to a transaction. Whatever is not listed may. */
  private val Looks = Set(
    "by_path",
    "drop_session_schema",
    "exists",
    "function",
    "functions",
    "namespace",
    "namespaces",
    "outside",
    "resolve",
    "row_changes",
    "session_names",
    "snapshot",
    "system_rows",
    "system_table",
    "tables",
    "version_then",
    "view",
    "views"
  )

  /**
   * So often one request may have to be sent again: for a look at each lake that it is about, and one more if its newest entry
   * has just expired; and for what catalogs are set to, which a host may forget meanwhile.
   */
  private val MostLooks = 100

  @tailrec
  private def asked(
      decider: Host,
      op: String,
      session: SparkSession,
      args: Seq[(String, Any)],
      looks: Int = 0): JsonNode = {
    val answer = ask(decider, op, Transactions.owner(session), args)
    if (answer.has("ok")) answer.get("ok")
    else {
      if (looks == MostLooks)
        throw new LockstepException(
          "LOCKSTEP_UNAVAILABLE",
          s"After $looks answers Lockstep's host still asks whether Spark sees the lake's root, or what its catalog is set to: " +
            "nothing was done, run the statement again.",
          "58030"
        )
      def tell(op: String, said: Seq[(String, Any)]): Unit = {
        val _ = ask(decider, op, Transactions.owner(session), said ++ args.filter(_._1 == "user"))
      }
      Option(answer.get("look")).foreach { look =>
        val about = options(args).find(_.name == look.get("catalog").asText)
        tell("saw_root", RootLook.at(look, session, about.exists(StoreSettings.isOfDriver(session.sparkContext, _))))
      }
      Option(answer.get("unsaid")).toSeq.flatMap(_.elements().asScala).map(_.asText).foreach { id =>
        options(args).find(_.id == id).foreach(said => tell("options", Seq("id" -> id, "settings" -> said.settings)))
      }
      asked(decider, op, session, args, looks + 1)
    }
  }

  /** What catalogs are set to, as far as a request says it: of one, or of several by their names. */
  private def options(args: Seq[(String, Any)]): Seq[CatalogOptions] = args.flatMap {
    case (_, one: CatalogOptions) => Seq(one)
    case (_, some: scala.collection.Map[_, _]) => some.values.collect { case one: CatalogOptions => one }
    case _ => Nil
  }

  /** The answer to a request, unless it is a refusal. */
  private def ask(decider: Host, op: String, session: String, args: Seq[(String, Any)]): JsonNode = {
    val request = json.createObjectNode().put("op", op).put("session", session)
    args.foreach { case (key, value) => request.set[JsonNode](key, json.valueToTree[JsonNode](plain(value))) }
    val answer = json.readTree(decider.call(json.writeValueAsString(request)))
    Option(answer.get("error")).foreach(e =>
      throw new LockstepException(e.get("condition").asText, e.get("message").asText, e.get("sqlstate").asText))
    answer
  }

  /**
   * The host that there is, or a new one. What was open with one that died is lost, and its successor is told so; so is one that
   * has another Spark of this JVM to answer, whose Hadoop was told nothing yet.
   */
  private def decide(session: SparkSession): Host = {
    val decider = alive.getOrElse(spawn(session))
    val context = session.sparkContext
    if (latest.get.forall(_ ne context)) synchronized {
      if (latest.get.exists(_ ne context)) {
        val _ = ask(decider, "spark_started", Transactions.owner(session), Nil)
      }
      latest = new WeakReference(context)
    }
    decider
  }

  @volatile private var latest = new WeakReference[SparkContext](null)

  private def alive: Option[Host] = host.filter {
    case spawned: SpawnedHost => spawned.isAlive
    case _ => true
  }

  private def spawn(session: SparkSession): Host = synchronized {
    alive.getOrElse {
      val started = SpawnedHost.start(
        session.sparkContext,
        host => Transactions.all.foreach(tx => ask(host, "lost", tx.owner, lost(tx))))
      host = Some(started)
      started
    }
  }

  /** What another host must know of a transaction: whether it may be committed, and where that would be seen. */
  private def lost(tx: OpenTransaction): Seq[(String, Any)] =
    Seq("transaction" -> tx.id, "sent" -> Option.when(tx.isSent)(tx.begun))

  /** Tells Python something that has no answer but a refusal. */
  def tell(op: String, session: SparkSession, args: (String, Any)*): Unit = {
    val _ = call(op, session, args: _*)
  }

  /** Scala's collections and options as the Java ones that Jackson knows. */
  private def plain(value: Any): Any = value match {
    case None => null
    case Some(inner) => plain(inner)
    case options: CatalogOptions => options.id
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
