package lockstep.spark.statements

import java.util.concurrent.atomic.AtomicLong

import com.fasterxml.jackson.databind.JsonNode
import lockstep.spark.transactions.Transactions
import lockstep.spark.transactions.Transactions.Standing
import org.apache.spark.sql.SparkSession

/**
 * What one statement was told of relations before Spark asked for them. Each answer serves one loading, of the very use
 * that it was asked for, and only as long as the session's transaction stands where it stood: nobody can tell then that
 * the answer is older. Whatever else is loaded, Python is asked for.
 *
 * In a transaction Python counts each of these loadings as one that was, until COMMIT says which were not. So an answer
 * is used only if COMMIT has not said so.
 */
final private[statements] class AskedAhead {
  import AskedAhead._

  private var told = Map.empty[(Seq[String], Wanted), Told]
  private var asked = Set.empty[Seq[String]] // names as they were spelled

  /** What is still to be asked about these relations: all in one request. */
  def questions(session: SparkSession, relations: Seq[Question]): Seq[Question] = {
    val open = relations.distinctBy(_.spelled).filterNot(question => asked(question.spelled))
    asked ++= open.map(_.spelled)
    open.filter(question => Transactions.of(session).forall(_.expect(question.touch)))
  }

  /** Keeps what was answered to them, where something was. */
  def add(standing: Option[Standing], answers: Seq[(Question, JsonNode)]): Unit =
    told ++= answers.filterNot(_._2.isNull).map { case (question, answer) =>
      (question.spelled, question.wanted) -> Told(Loading(answer, question.touch), standing)
    }

  /** What was told of a relation, for the one loading that it serves. */
  def take(session: SparkSession, spelled: Seq[String], wanted: Wanted): Option[Loading] = {
    val found = told.get(spelled -> wanted)
    told -= spelled -> wanted
    found.filter(_.standing == Transactions.standing(session)).map(_.loading).filter(loading =>
      Transactions.of(session).forall(_.use(loading.touch)))
  }
}

private[statements] object AskedAhead {
  private val touches = new AtomicLong()

  /** Names one loading of a table. */
  def newTouch(): Long = touches.incrementAndGet()

  /**
   * A relation to be told of.
   *
   * @param spelled catalog, namespace and name as the statement has them: what differs in case alone can be two tables,
   *                whatever the session says, so an answer serves the spelling that it was asked for
   */
  final case class Question(spelled: Seq[String], wanted: Wanted) {

    /** Namespace and name. */
    def name: Seq[String] = spelled.tail

    /** The number of its loading. */
    val touch: Long = newTouch()

    def fields: Map[String, Any] =
      Map("name" -> name, "use" -> wanted.use.name, "writes" -> wanted.writes, "touch" -> touch)
  }

  /**
   * What was told.
   *
   * @param standing where the session's transaction stood before that; none if it had none
   */
  final private case class Told(loading: Loading, standing: Option[Standing])
}
