package lockstep.spark.catalog

import com.fasterxml.jackson.databind.JsonNode
import lockstep.spark.LockstepCatalog
import lockstep.spark.statements.CatalogSettings.Prefix
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.lockstep.{Internals, LockstepException}

import scala.jdk.CollectionConverters._

/** A catalog that stands for Spark's session catalog, where its `session-names` says so: see `analysis/SessionNames.scala`. */
private[spark] trait StandIn {
  def name: String
  private[spark] def settings: Map[String, String]
  protected def session: SparkSession
  protected def ask(op: String, args: (String, Any)*): JsonNode

  /** Whether `session-names` says what it may say; Python tells of one that does not. */
  private[spark] def isSaidInWords: Boolean =
    settings.get(StandIn.Key).forall(value => Seq("true", "false").exists(_.equalsIgnoreCase(value)))

  /** Which of these names of Spark's session catalog mean what this one has. */
  private[spark] def meansOurs(names: Seq[Map[String, Any]]): Seq[Boolean] = {
    checkStandsIn()
    val answer = ask("session_names", "implementation" -> SessionSchemas.implementation(session), "names" -> names)
    answer.get("ours").elements().asScala.map(_.asBoolean).toSeq
  }

  /** Refuses to drop a schema of Spark's session catalog with which files of this one's tables would go. */
  private[spark] def checkDropOfSchema(schema: String): Unit = {
    checkStandsIn()
    SessionSchemas.dropped(session, schema).foreach(fields => ask("drop_session_schema", fields.toSeq: _*))
  }

  /** A catalog keeps to the settings that it began with, so one that was set later would count for nothing. */
  private def checkStandsIn(): Unit = {
    val (now, before) = (StandIn.said(session, name), settings.get(StandIn.Key))
    if (now != before)
      throw new LockstepException(
        "LOCKSTEP_INVALID",
        s"spark.sql.catalog.$name.${StandIn.Key} is ${now.getOrElse("not set")}, and was ${before.getOrElse("not set")} when " +
          s"this session first used the catalog $name, which keeps to that. Nothing was done. Set it before a session uses " +
          "the catalog, in a new session or where it is configured",
        "22023"
      )
  }
}

private[spark] object StandIn {
  private val Key = "session-names"

  /** The catalogs of a session that stand for Spark's own, by what is set now or was when they were first used. */
  def in(session: SparkSession): Seq[LockstepCatalog] = {
    val names = Internals.settings(session, s".$Key").filter(_.startsWith(Prefix))
      .map(_.stripPrefix(Prefix).stripSuffix(s".$Key")).filterNot(_.contains('.'))
    names.filter(LockstepCatalog.isOneOf(session, _))
      .map(session.sessionState.catalogManager.catalog)
      .collect {
        case catalog: LockstepCatalog if isYes(catalog.settings.get(Key)) || isYes(said(session, catalog.name)) =>
          catalog
      }
  }

  /** The one that does, which a statement means that says no catalog; none, if none does, or several say that they do. */
  def only(session: SparkSession): Option[String] = Option(in(session)).filter(_.size == 1).map(_.head.name)

  private def said(session: SparkSession, catalog: String) = session.conf.getOption(s"$Prefix$catalog.$Key")

  /** Python refuses what is neither true nor false. */
  private def isYes(value: Option[String]) = value.exists(!_.equalsIgnoreCase("false"))
}
