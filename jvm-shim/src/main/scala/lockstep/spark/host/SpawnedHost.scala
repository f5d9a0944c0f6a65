package lockstep.spark.host

import java.io.{BufferedReader, IOException, InputStream, InputStreamReader, OutputStream}
import java.nio.charset.StandardCharsets.UTF_8
import java.security.PrivilegedAction
import java.util.Base64
import java.util.concurrent.{
  CompletableFuture,
  CompletionException,
  ConcurrentHashMap,
  ConcurrentLinkedDeque,
  LinkedBlockingQueue,
  ThreadPoolExecutor,
  TimeUnit
}
import java.util.concurrent.atomic.{AtomicBoolean, AtomicLong}

import com.fasterxml.jackson.core.JsonProcessingException
import com.fasterxml.jackson.databind.ObjectMapper
import lockstep.spark.Daemons
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.security.UserGroupInformation
import org.apache.spark.SparkContext
import org.apache.spark.internal.Logging
import org.apache.spark.sql.lockstep.LockstepException

import scala.jdk.CollectionConverters._

/** The host ended while it had a request. */
private[spark] class HostEnded(message: String) extends Exception(message)

/**
 * The host as a child process: a request is a line to its standard input, an answer a line of its standard output, and
 * each has the request's number. See `lockstep.spark.spawned`. What the host wants of HDFS, it asks by the same pipes.
 *
 * The child ends when its input does, so it outlives no driver, however that ended.
 */
private[spark] class SpawnedHost private (process: Process, conf: Configuration, user: UserGroupInformation)
    extends Host
    with Logging {
  import SpawnedHost.{Files, filesThreads, inBackground}

  private val waiting = new ConcurrentHashMap[Long, CompletableFuture[String]]()
  private val numbers = new AtomicLong()
  private val input: OutputStream = process.getOutputStream
  private val files = filesThreads()
  private val ended = new AtomicBoolean()

  def isAlive: Boolean = !ended.get

  override def call(request: String): String = {
    val number = numbers.incrementAndGet()
    val answer = new CompletableFuture[String]
    val _ = waiting.put(number, answer)
    try send(s"$number $request")
    catch { case _: IOException => end() }
    if (ended.get) end() // it may have ended before this request stood among those that wait
    // Not to be interrupted: a cancelled job's COMMIT is decided all the same, and its answer must not be lost.
    try answer.join()
    catch { case e: CompletionException => throw e.getCause }
    finally { val _ = waiting.remove(number) }
  }

  private def send(line: String): Unit = input.synchronized {
    input.write((line + "\n").getBytes(UTF_8))
    input.flush()
  }

  private def listen(answers: BufferedReader): Unit =
    try
      Iterator.continually(answers.readLine()).takeWhile(_ != null).foreach { line =>
        val blank = line.indexOf(' ')
        line.take(blank) match {
          case Files => files.execute(() => answerFile(line.drop(blank + 1)))
          case number => Option(waiting.get(number.toLong)).foreach(_.complete(line.drop(blank + 1)))
        }
      }
    catch { case e: IOException => logWarning("Lockstep's host cannot be read", e) }
    finally end()

  /** The other way round: Python asks for a file of HDFS, for it has no client itself. The thread that listens does no work. */
  private def answerFile(line: String): Unit = if (!ended.get) {
    val blank = line.indexOf(' ')
    try {
      val request = Base64.getDecoder.decode(line.drop(blank + 1))
      // Else the thread would ask as whose statement happened to start it, and with a client that closes when that one leaves.
      val answer = user.doAs[Array[Byte]]((() => HadoopFiles.call(conf, request)): PrivilegedAction[Array[Byte]])
      send(s"$Files ${line.take(blank)} ${Base64.getEncoder.encodeToString(answer)}")
    } catch {
      case e: Throwable => // the host would wait for an answer that never comes
        if (!ended.get) logWarning("Lockstep's host cannot be answered", e)
        end()
    }
  }

  private def end(): Unit = {
    if (ended.compareAndSet(false, true)) {
      files.shutdown()
      files.getQueue.clear()
      val _ = process.destroyForcibly() // one that cannot be heard must not go on
      val left = HadoopWrites.open // before another host is started; nobody else in this JVM has any
      if (left.nonEmpty) inBackground("lockstep-hadoop-end")(left.foreach(HadoopWrites.abort))
    }
    waiting.values.asScala.foreach(_.completeExceptionally(new HostEnded(s"process ${process.pid} ended")))
  }
}

private[spark] object SpawnedHost {

  /** What such a line begins with that is about a file of HDFS, in place of a request's number. */
  private val Files = "files"
  private val MostFilesAtOnce = 64
  private val IdleSeconds = 60L

  private val Module = "lockstep.spark.spawned"
  private val StartSeconds = 120L
  private val KeptLines = 20
  private val KeptCharacters = 200
  private val json = new ObjectMapper()

  /** Starts a host, waits until it said hello, and has it told what it must know. If any of that fails, it is ended. */
  def start(context: SparkContext, tell: Host => Unit): SpawnedHost = {
    val python = this.python(context)
    // -P: a module in the folder that the driver was started in must not stand in for one that the host needs.
    val process =
      try new ProcessBuilder(python, "-P", "-m", Module).start()
      catch { case e: IOException => throw notStarted(python, e.getMessage) }
    try {
      val host = greeted(context, python, process)
      tell(host)
      host
    } catch {
      case e: Throwable =>
        val _ = process.destroyForcibly()
        throw e match {
          case ended: HostEnded => notStarted(python, ended.getMessage)
          case other => other
        }
    }
  }

  private def greeted(context: SparkContext, python: String, process: Process): SpawnedHost = {
    val complaints = new ConcurrentLinkedDeque[String]()
    inBackground("lockstep-host-log")(forward(process.getErrorStream, complaints))
    val answers = new BufferedReader(new InputStreamReader(process.getInputStream, UTF_8))
    val hello = new CompletableFuture[String]
    inBackground("lockstep-host-hello") { val _ = hello.complete(answers.readLine()) }
    val answer =
      try hello.get(StartSeconds, TimeUnit.SECONDS)
      catch {
        case _: java.util.concurrent.TimeoutException =>
          throw notStarted(python, s"it did not answer within $StartSeconds seconds")
      }
    if (answer == null) {
      val _ = process.waitFor(1, TimeUnit.SECONDS) // for the rest of what it has to say
      throw notStarted(python, complaints.asScala.lastOption.getOrElse("it ended without a word"))
    }
    requireSameVersion(python, versionIn(python, answer))
    val host = new SpawnedHost(process, context.hadoopConfiguration, userOf(context))
    host.send(json.writeValueAsString(java.util.Map.of("application", context.appName)))
    inBackground("lockstep-host-answers")(host.listen(answers))
    host
  }

  /** Who runs the driver. Where a server acts as its clients (`doAs`), the current user is the client whose statement this is. */
  private def userOf(context: SparkContext): UserGroupInformation = {
    val current = UserGroupInformation.getCurrentUser
    if (current.getShortUserName == context.sparkUser) current else UserGroupInformation.getLoginUser
  }

  private def versionIn(python: String, hello: String): String = {
    val theirs =
      try Option(json.readTree(hello).get("version"))
      catch { case _: JsonProcessingException => None }
    theirs.map(_.asText).getOrElse(throw notStarted(python, s"it said ${hello.take(KeptCharacters)}"))
  }

  /** What runs the host: the setting, else the Python that Spark runs its users' functions with. */
  private def python(context: SparkContext): String = {
    val conf = context.getConf
    Seq("spark.lockstep.python", "spark.pyspark.driver.python", "spark.pyspark.python").flatMap(conf.getOption)
      .headOption
      .orElse(sys.env.get("PYSPARK_DRIVER_PYTHON"))
      .orElse(sys.env.get("PYSPARK_PYTHON"))
      .getOrElse("python3")
  }

  private def notStarted(python: String, why: String) = new LockstepException(
    "LOCKSTEP_NO_HOST",
    s"Lockstep's host did not start: `$python -P -m $Module`: $why. That Python needs Lockstep ($python -m pip install " +
      s"'lockstep-delta[spark]==$version'); another one that has it is named by --conf spark.lockstep.python=/path/to/python.",
    "55000"
  )

  /** The two are made for each other; what one does not know of the other it would get wrong silently. */
  private def requireSameVersion(python: String, theirs: String): Unit =
    if (theirs != version)
      throw new LockstepException(
        "LOCKSTEP_NO_HOST",
        s"Lockstep's jar is of version $version, and the Lockstep of $python is $theirs. `$python -m lockstep jars` prints " +
          "the jars that go with it; or name another Python by --conf spark.lockstep.python=/path/to/python.",
        "55000"
      )

  private def version: String = getClass.getPackage.getImplementationVersion

  private def forward(errors: InputStream, kept: ConcurrentLinkedDeque[String]): Unit = {
    val lines = new BufferedReader(new InputStreamReader(errors, UTF_8))
    Iterator.continually(lines.readLine()).takeWhile(_ != null).foreach { line =>
      System.err.println(line)
      kept.addLast(line)
      if (kept.size > KeptLines) { val _ = kept.pollFirst() }
    }
  }

  /** Threads that wait for HDFS, and none of them for another. */
  private def filesThreads(): ThreadPoolExecutor = {
    val threads = new ThreadPoolExecutor(
      MostFilesAtOnce,
      MostFilesAtOnce,
      IdleSeconds,
      TimeUnit.SECONDS,
      new LinkedBlockingQueue[Runnable],
      Daemons.named("lockstep-hadoop"))
    threads.allowCoreThreadTimeOut(true)
    threads
  }

  private def inBackground(name: String)(body: => Unit): Unit = Daemons.named(name).newThread(() => body).start()
}
