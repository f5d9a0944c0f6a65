package lockstep.spark.host

import java.io.{ByteArrayOutputStream, FileNotFoundException}
import java.net.URI
import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.ConcurrentHashMap

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileSystem, ParentNotDirectoryException, PathIsNotEmptyDirectoryException}
import org.apache.hadoop.fs.permission.FsAction
import org.apache.hadoop.hdfs.DistributedFileSystem
import org.apache.hadoop.hdfs.client.HdfsClientConfigKeys
import org.apache.hadoop.hdfs.client.HdfsClientConfigKeys.BlockWrite
import org.apache.hadoop.hdfs.protocol.{DirectoryListing, HdfsFileStatus}
import org.apache.hadoop.hdfs.server.namenode.ha.{
  ConfiguredFailoverProxyProvider,
  ObserverReadProxyProvider,
  RouterObserverReadProxyProvider
}
import org.apache.hadoop.ipc.RemoteException
import org.apache.hadoop.security.AccessControlException

import scala.annotation.tailrec
import scala.jdk.CollectionConverters._
import scala.util.Try
import scala.util.control.NonFatal

/**
 * Lockstep's own requests to HDFS, which Python makes through Hadoop's client here: it has none itself. What can be asked, and
 * what is answered, is in `lockstep.storage.hadoop`; both are a line of JSON, and behind it the bytes of a file or of a part.
 *
 * It is asked from threads that run no statement, so no lock of a session's is held, nor needed, and no cancelled job
 * interrupts what is being written.
 */
private[spark] object HadoopFiles {

  /** A file as Hadoop is asked for it. */
  private[host] case class Place(files: DistributedFileSystem, path: String)

  private val json = new ObjectMapper()
  private val NewLine = '\n'.toByte

  /** The answer to a request, whatever comes of it. */
  def call(conf: Configuration, request: Array[Byte]): Array[Byte] = {
    val (head, content) = request.splitAt(request.indexOf(NewLine))
    val answer = json.createObjectNode()
    val found =
      try answered(conf, json.readTree(head), content.drop(1), answer)
      catch { case e: Throwable => failed(answer, e) } // whoever asked waits for an answer
    val out = new ByteArrayOutputStream(found.length + 256)
    out.write(json.writeValueAsBytes(answer))
    out.write(NewLine.toInt)
    out.write(found)
    out.toByteArray
  }

  private def answered(conf: Configuration, asked: JsonNode, content: Array[Byte], answer: ObjectNode): Array[Byte] = {
    val place = Place(fileSystem(conf, asked.get("store").asText), asked.get("path").asText)
    asked.get("op").asText match {
      case "read" => read(place, asked.get("offset").asLong, asked.get("length").asInt, answer)
      case "list" => list(place, asked.get("after").asText, answer)
      case "look" =>
        val _ = answer.put("kind", kind(place))
        NoBytes
      case "put" =>
        answer.put("written", HadoopWrites.put(place, content, flag(asked, "replace"), flag(asked, "sync")))
        NoBytes
      case "begin" => done(HadoopWrites.begin(place, asked.get("stream").asText))
      case "piece" => done(HadoopWrites.piece(asked.get("stream").asText, content))
      case "finish" =>
        answer.put("written", HadoopWrites.finish(asked.get("stream").asText, flag(asked, "replace")))
        NoBytes
      case "abort" => done(HadoopWrites.abort(asked.get("stream").asText))
      case "delete" =>
        done(asked.get("paths").elements().asScala.foreach(each => delete(place.copy(path = each.asText))))
      case "delete_folder" => done(deleteFolder(place, flag(asked, "only_if_empty")))
      case "is_writable" =>
        answer.put("allowed", isWritable(place))
        NoBytes
    }
  }

  private val NoBytes = Array.emptyByteArray

  private def done(what: Unit): Array[Byte] = { val _ = what; NoBytes }

  private def flag(asked: JsonNode, name: String): Boolean = asked.get(name).asBoolean

  /** A client of Lockstep's own: one that is shared may be closed by whoever shares it. */
  private case class Client(conf: Configuration, files: DistributedFileSystem)

  private val clients = new ConcurrentHashMap[String, Client]()

  private def fileSystem(conf: Configuration, store: String): DistributedFileSystem = {
    var replaced = Option.empty[Client]
    val client = clients.compute(
      store,
      (_, known) =>
        if (known != null && known.conf.eq(conf) && known.files.getClient.isClientRunning) known
        else {
          val made = Client(conf, newFileSystem(new Configuration(conf), store))
          replaced = Option(known)
          made
        }
    )
    replaced.foreach(old => Try(old.files.close())) // its context has ended
    client.files
  }

  /** Only HDFS's own client says that its rename is atomic. One that somebody has put in its place may be anything. */
  private def newFileSystem(conf: Configuration, store: String): DistributedFileSystem = {
    // Who closes a file asks the name node whether it knows of the last block, mostly a moment before it does, and waits for
    // 400 ms then. Asked again sooner, and for as long in all, half of all writes take a tenth of the time.
    val (delay, retries) =
      (BlockWrite.LOCATEFOLLOWINGBLOCK_INITIAL_DELAY_MS_KEY, BlockWrite.LOCATEFOLLOWINGBLOCK_RETRIES_KEY)
    if (Seq(delay, retries).forall(isDefault(conf, _))) {
      conf.setInt(delay, 5)
      conf.setInt(retries, 12)
    }
    val uri = URI.create(store)
    refuseObservers(conf, uri)
    FileSystem.newInstance(uri, conf) match {
      case files: DistributedFileSystem if files.getClass == classOf[DistributedFileSystem] => files
      case other =>
        other.close()
        throw new UnsupportedOperationException(
          s"${other.getClass.getName} is set for $store (fs.hdfs.impl): have Hadoop use its own client of HDFS")
    }
  }

  /** Whether nobody has set what Hadoop's own defaults say. */
  private def isDefault(conf: Configuration, key: String): Boolean =
    Option(conf.getPropertySources(key)).forall(_.forall(_.endsWith("-default.xml")))

  /** What asks name nodes that only observe, itself or through a router. Others may be derived of these. */
  private val Observing = Seq(classOf[ObserverReadProxyProvider[_]], classOf[RouterObserverReadProxyProvider[_]])

  /** Name nodes that only observe answer what was true a moment ago, and what one client wrote another would not find. */
  private def refuseObservers(conf: Configuration, uri: URI): Unit = {
    val name = s"${HdfsClientConfigKeys.Failover.PROXY_PROVIDER_KEY_PREFIX}.${uri.getHost}"
    Option(conf.getClass(name, null)).filter(found => Observing.exists(_.isAssignableFrom(found))).foreach { provider =>
      throw new UnsupportedOperationException(
        s"$name is ${provider.getName}, and what observers answer may be old: set it to " +
          s"${classOf[ConfiguredFailoverProxyProvider[_]].getName} for Spark")
    }
    val byRouters = HdfsClientConfigKeys.DFS_RBF_OBSERVER_READ_ENABLE
    if (conf.getBoolean(byRouters, HdfsClientConfigKeys.DFS_RBF_OBSERVER_READ_ENABLE_DEFAULT))
      throw new UnsupportedOperationException(
        s"$byRouters is true, and what observers answer may be old: set it to false for Spark")
  }

  /** As it was thrown by the name node. */
  private[host] def unwrapped(thrown: Throwable): Throwable = thrown match {
    case remote: RemoteException => remote.unwrapRemoteException()
    case other => other
  }

  /** What comes of a call of Hadoop's client; its errors are those that the name node threw. */
  private[host] def plainly[T](call: => T): T =
    try call
    catch { case e: RemoteException => throw e.unwrapRemoteException() }

  private def failed(answer: ObjectNode, thrown: Throwable): Array[Byte] = {
    val cause = unwrapped(thrown)
    val (mayBeDone, error) = cause match {
      case doubt: HadoopWrites.Doubt => (true, unwrapped(doubt.getCause))
      case other => (!NonFatal(other), other) // no memory, for one: it may have ended anything in the middle
    }
    answer.removeAll()
    val said = Option(error.getMessage).getOrElse("").linesIterator.nextOption().getOrElse("")
    answer.putObject("error")
      .put("kind", error.getClass.getName)
      .put("message", s"${error.getClass.getSimpleName}: $said")
      .put("may_be_done", mayBeDone)
    NoBytes
  }

  private[host] def status(place: Place): Option[HdfsFileStatus] =
    try Option(plainly(place.files.getClient.getFileInfo(place.path)))
    catch { case _: FileNotFoundException | _: ParentNotDirectoryException => None }

  private def kind(place: Place): String = status(place) match {
    case Some(found) if found.isDirectory => "folder"
    case Some(_) => "file"
    case None => "none"
  }

  /** A part of a file. A block's number is given once, so that of the first tells a file from one that took its place. */
  private def read(place: Place, offset: Long, length: Int, answer: ObjectNode): Array[Byte] = {
    val opened = unlessAbsent(place)(place.files.getClient.open(place.path))
    answer.put("found", opened.isDefined)
    opened.fold(NoBytes) { raw =>
      val stream = place.files.getClient.createWrappedInputStream(raw)
      try {
        val size = stream.getVisibleLength
        val first = if (size > 0) stream.getAllBlocks.get(0).getBlock.getBlockId else -1L
        answer.put("size", size).put("file", first)
        val bytes = new Array[Byte](math.max(0L, math.min(length.toLong, size - offset)).toInt)
        stream.readFully(offset, bytes)
        bytes
      } finally stream.close()
    }
  }

  /** So many names go into one answer; who wants more asks again, for those after the last. */
  private val MostListed = 10000

  private def list(place: Place, after: String, answer: ObjectNode): Array[Byte] = {
    val files = answer.putArray("files")
    val folders = answer.putArray("folders")
    @tailrec def page(start: Array[Byte]): Unit =
      listing(place, start) match {
        case Some(part) =>
          val found = part.getPartialListing
          found.filter(_.getLocalNameInBytes.nonEmpty).foreach { each => // a file lists itself, without a name
            val name = each.getLocalName
            if (each.isDirectory) { val _ = folders.add(name) }
            else if (HadoopWrites.isTemporary(name)) HadoopWrites.removeDead(place, each)
            else { val _ = files.addArray().add(name).add(each.getLen).add(each.getModificationTime) }
          }
          if (part.hasMore) {
            if (files.size + folders.size < MostListed) page(part.getLastName)
            else { val _ = answer.put("more", new String(part.getLastName, UTF_8)) }
          }
        case None => ()
      }
    page(after.getBytes(UTF_8))
    NoBytes
  }

  private def listing(place: Place, start: Array[Byte]): Option[DirectoryListing] =
    unlessAbsent(place)(place.files.getClient.listPaths(place.path, start))

  /** What Hadoop gives for a path, unless there is nothing. Below a file there is nothing, and it says that nobody may look. */
  private def unlessAbsent[T](place: Place)(call: => T): Option[T] =
    try Option(plainly(call))
    catch {
      case _: FileNotFoundException | _: ParentNotDirectoryException => None
      case _: AccessControlException if status(place).isEmpty => None
    }

  private def delete(place: Place): Unit =
    if (status(place).exists(!_.isDirectory)) {
      val _ = plainly(place.files.getClient.delete(place.path, false))
    }

  private def deleteFolder(place: Place, onlyIfEmpty: Boolean): Unit =
    if (status(place).exists(_.isDirectory))
      try {
        val _ = plainly(place.files.getClient.delete(place.path, !onlyIfEmpty))
      } catch { case _: PathIsNotEmptyDirectoryException if onlyIfEmpty => () }

  /** Whether files can be made in a folder; of an absent one, the nearest above it is looked at. Below a file, none can. */
  @tailrec
  private def isWritable(place: Place): Boolean = {
    val allowed =
      try {
        plainly(place.files.getClient.checkAccess(place.path, FsAction.WRITE_EXECUTE))
        Some(true)
      } catch {
        case _: AccessControlException | _: ParentNotDirectoryException => Some(false)
        case _: FileNotFoundException if place.path != "/" => None
      }
    allowed match {
      case Some(known) => known
      case None => isWritable(place.copy(path = parent(place.path)))
    }
  }

  private[host] def parent(path: String): String = path.lastIndexOf('/') match {
    case 0 => "/"
    case slash => path.take(slash)
  }
}
