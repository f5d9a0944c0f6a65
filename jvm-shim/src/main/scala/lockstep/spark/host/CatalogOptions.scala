package lockstep.spark.host

import java.nio.ByteBuffer
import java.security.{MessageDigest, SecureRandom}

/**
 * What a catalog of this name is set to, the keys of its store too. Requests say it by an id, and Python, which may know that
 * already, asks for the rest: see Python's `lockstep.spark.host.protocol.options`.
 */
final private[spark] class CatalogOptions(val name: String, val settings: Map[String, String]) {

  /** Never that of other settings. It says nothing of them to who has it: a part of it is drawn anew in each driver. */
  lazy val id: String = {
    val digest = MessageDigest.getInstance("SHA-256")
    digest.update(CatalogOptions.drawn)
    settings.toSeq.sorted.foreach { case (key, value) =>
      for (text <- Seq(key, value)) {
        val bytes = ByteBuffer.allocate(Integer.BYTES + Character.BYTES * text.length).putInt(text.length)
        text.foreach(bytes.putChar(_))
        digest.update(bytes.array)
      }
    }
    digest.digest().map(byte => f"$byte%02x").mkString
  }

  /** Without the settings, which nothing may show. */
  override def toString: String = s"options $id"
}

private object CatalogOptions {
  private val drawn = {
    val bytes = new Array[Byte](32)
    new SecureRandom().nextBytes(bytes)
    bytes
  }
}
