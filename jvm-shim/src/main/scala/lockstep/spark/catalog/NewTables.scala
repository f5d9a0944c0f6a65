package lockstep.spark.catalog

import com.fasterxml.jackson.databind.JsonNode

/**
 * Which new table a statement of this thread is about to write, outside a transaction. Where it will lie need not tell:
 * two statements may have said the same LOCATION, and Python finds out which of them was first when one writes.
 */
private[spark] object NewTables {
  private val announcedHere = new ThreadLocal[Option[(String, String)]] {
    override def initialValue: Option[(String, String)] = None
  }

  /** Keeps what an answer says of a new table, and returns the answer. */
  def announced(answer: JsonNode): JsonNode = {
    announcedHere.set(for {
      uri <- Option(answer.get("uri"))
      creation <- Option(answer.get("creation"))
    } yield (uri.asText, creation.asText))
    answer
  }

  /** What Python calls the new table at a URI that this thread has asked for last. */
  def at(uri: String): Option[String] = announcedHere.get.collect { case (`uri`, creation) => creation }
}
