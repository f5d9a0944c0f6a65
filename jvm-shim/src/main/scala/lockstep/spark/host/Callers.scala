package lockstep.spark.host

import java.util.{Collections, LinkedHashMap, Map => JavaMap}

import org.apache.spark.SparkContext

/**
 * Whose statement a thread runs.
 *
 * @param client
 *   the server's id of the client's session.
 * @param user
 *   as whom the server knows the client, as far as names go; nobody has checked it where the server checks nothing.
 */
private[spark] case class Caller(client: String, user: String)

private[spark] object Caller {
  private val LongestName = 256

  def apply(client: String, user: String): Caller = new Caller(client, user.take(LongestName))
}

/**
 * The clients of a Thrift server or of a Spark Connect server, and the users that these know them as. Any other driver has
 * none: its only user is who runs it.
 */
private[spark] object Callers {
  private val Remembered = 10000

  /** The Thrift server's latest statements, with the caller of each. */
  private val statements = latest[Caller]

  /** A map of the latest entries, which threads may share. */
  def latest[T]: JavaMap[String, T] = Collections.synchronizedMap(new LinkedHashMap[String, T] {
    override def removeEldestEntry(eldest: JavaMap.Entry[String, T]): Boolean = size > Remembered
  })

  /** How Spark Connect tags the jobs of a statement: any user, and sessions and operations by number. */
  private val ConnectTag = "(?s)SparkConnect_OperationTag_User_(.*)_Session_([^_]*)_Operation_[^_]*".r

  /** The Thrift server has the jobs of a statement be a group with the statement's id. */
  private val ThriftGroup = "([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})".r

  /** The Thrift server says whose a statement is before it runs. */
  def started(statement: String, caller: Caller): Unit = {
    val _ = statements.put(statement, caller)
  }

  /** Whose statement this thread runs, if it is a client's. */
  def current(context: SparkContext): Option[Caller] = {
    def group = Option(context.getLocalProperty("spark.jobGroup.id")).collect { case ThriftGroup(id) => id }
    context.getJobTags()
      .collectFirst { case ConnectTag(user, client) => Caller(client, user) }
      .orElse(group.flatMap(id => Option(statements.get(id))))
  }
}
