package lockstep.spark.analysis

import lockstep.spark.LockstepCatalog
import lockstep.spark.statements.StatementScope
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.TimeTravel
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.plans.logical.{CloneTableStatement, LogicalPlan, RestoreTableStatement}
import org.apache.spark.sql.connector.catalog.Identifier
import org.apache.spark.sql.lockstep.LockstepException

/**
 * `RESTORE … TO SYSTEM_VERSION AS OF n` and `SHALLOW CLONE … SYSTEM_TIME AS OF t`: Delta's own grammar has these words, and
 * takes them for its `VERSION` and `TIMESTAMP`. So the parser marks what said them, and the analysis puts the table version
 * of that database version in its place.
 */
private[spark] object DeltaTravel {
  private val Mark = Some("lockstep: the database's")

  /** Marks what Delta's parser made of a text that says so. */
  def mark(plan: LogicalPlan): LogicalPlan = plan match {
    case restore @ RestoreTableStatement(travel: TimeTravel) =>
      restore.copy(table = travel.copy(creationSource = Mark))
    case clone @ CloneTableStatement(travel: TimeTravel, _, _, _, _, _, _) =>
      clone.copy(source = travel.copy(creationSource = Mark))
    case _ => throw new LockstepException(
        "LOCKSTEP_SYNTAX",
        "SYSTEM_VERSION AS OF and SYSTEM_TIME AS OF stand behind the table of a RESTORE or of a SHALLOW CLONE; this statement " +
          "is neither.",
        "42601"
      )
  }

  def place(session: SparkSession, plan: LogicalPlan): LogicalPlan = plan match {
    case restore @ RestoreTableStatement(travel: TimeTravel) if travel.creationSource == Mark =>
      restore.copy(table = placed(session, travel))
    case clone @ CloneTableStatement(travel: TimeTravel, _, _, _, _, _, _) if travel.creationSource == Mark =>
      clone.copy(source = placed(session, travel))
    case other => other
  }

  /** A table of another catalog has no database version: Delta's meaning stays. */
  private def placed(session: SparkSession, travel: TimeTravel): TimeTravel = {
    val version = travel.relation match {
      case relation: UnresolvedRelation =>
        val parts = StatementScope.qualified(session, relation.multipartIdentifier)
        session.sessionState.catalogManager.catalog(parts.head) match {
          case catalog: LockstepCatalog =>
            val when =
              travel.version.fold[(String, Any)]("system_time_micros" -> micros(travel.timestamp.get))(
                "version" -> _)
            catalog.versionThen(Identifier.of(parts.tail.init.toArray, parts.last), when)
          case _ => None
        }
      case _ => None
    }
    val inSql = travel.copy(creationSource = Some("sql"))
    version.fold(inSql)(number => inSql.copy(timestamp = None, version = Some(number)))
  }

  private def micros(time: Expression): Long = Times.micros(time).getOrElse(throw new LockstepException(
    "LOCKSTEP_INVALID",
    s"SYSTEM_TIME AS OF ${time.sql}: that is no time. Write one as TIMESTAMP '2026-01-31 12:00:00'.",
    "22023"))
}
