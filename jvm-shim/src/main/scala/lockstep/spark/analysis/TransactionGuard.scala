package lockstep.spark.analysis

import lockstep.spark.{Bridge, LockstepCatalog}
import lockstep.spark.execution.Vacuum
import lockstep.spark.overlay.RealPaths
import lockstep.spark.reads.Reads
import lockstep.spark.scans.{NoTables, Scans}
import lockstep.spark.transactions.{
  ByTarget,
  Commands,
  EndedTransactions,
  Harmless,
  JudgedByPython,
  Outside,
  Transactions,
  Unknown
}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis.{ResolvedProcedure, UnresolvedProcedure}
import org.apache.spark.sql.catalyst.plans.logical.{Call, Command, LogicalPlan, Union, WithCTE}
import org.apache.spark.sql.delta.commands.{CreateDeltaTableCommand, DeltaGenerateCommand}
import org.apache.spark.sql.lockstep.LockstepException

import io.delta.tables.execution.VacuumTableCommand

/**
 * Refuses, while a transaction is open, what a ROLLBACK could not take back: commands whose target is not in a Lockstep
 * catalog, those that delete files, and whatever is not known. Whether it is refused or allowed by a setting, Python says.
 * And while none is, what would be one to its user, and several to Spark.
 */
private[spark] case class TransactionGuard(session: SparkSession) extends (LogicalPlan => Unit) {

  override def apply(plan: LogicalPlan): Unit = if (!NoTables.in(plan)) {
    EndedTransactions.check(plan)
    SessionDrops.check(session, plan)
    Transactions.checkOwn(session, plan)
    if (Transactions.isOpen(session)) {
      if (plan.isStreaming) refuse("STREAM")
      plan.foreach {
        case command: Command => judge(command)
        case _ =>
      }
      Reads.checkSnapshot(session, plan, Scans.views(plan), LockstepCatalog.in(session))
    } else {
      val changed = inserts(plan).map(changedBy)
      // A table by its path may be one of ours, too.
      if (changed.exists(_.exists(_.isOurs)) && changed.count(_.exists(thing => thing.isOurs || thing.isByPath)) > 1)
        throw new LockstepException(
          "LOCKSTEP_UNSUPPORTED",
          "Spark runs each INSERT of this statement by itself, so others would see the first without the rest, and it " +
            "would stay if the next one failed: run the statement between BEGIN and COMMIT, and say each table by its name.",
          "0A000"
        )
    }
  }

  /** The commands of `FROM … INSERT … INSERT …`. */
  private def inserts(plan: LogicalPlan): Seq[Command] = plan match {
    case WithCTE(inner, _) => inserts(inner)
    case union: Union => union.children.collect { case command: Command => command }
    case _ => Nil
  }

  private def changedBy(command: Command): Seq[ChangedThing] = Commands.verdict(command) match {
    case ByTarget(fields @ _*) => targets(command, fields)
    case _ => Nil
  }

  private def judge(command: Command): Unit = command match {
    case RealPaths(shown) => judge(shown)
    case _: JudgedByPython =>
    case _: VacuumTableCommand | _: Vacuum => refuse("VACUUM")
    case _: DeltaGenerateCommand => refuse("GENERATE")
    case _ if Commands.changesNothing(session, command) =>
    case _ => Commands.verdict(command) match {
        case Harmless =>
        case ByTarget(fields @ _*) =>
          targets(command, fields).find(!_.isOurs).foreach(target => outside(command, target.name))
        case Outside => outside(command, CommandTargets.named(command))
        case Unknown => refuse(s"${command.nodeName} (${command.getClass.getName})", isKnown = false)
      }
  }

  private def targets(command: Command, fields: Seq[String]): Seq[ChangedThing] = command match {
    case clone: CreateDeltaTableCommand => CommandTargets.of(clone.existingTableOpt.getOrElse(clone.table))
    case _ => CommandTargets.of(command, fields)
  }

  private def outside(command: Command, target: String): Unit = refuse(s"${command.nodeName} on $target")

  private def refuse(what: String, isKnown: Boolean = true): Unit =
    Bridge.tell("outside", session, "what" -> what, "known" -> isKnown)
}

private[spark] object TransactionGuard {

  /** Refuses a procedure of another catalog before it is looked up: Spark runs it while it analyzes the statement. */
  def checkCalls(session: SparkSession, plan: LogicalPlan): Unit =
    if (Transactions.isOpen(session)) plan.foreach {
      case call: Call if call.execute =>
        val name = call.procedure match {
          case UnresolvedProcedure(parts) => ProcedureCalls.named(session, call, parts)
          case ResolvedProcedure(catalog, ident, _) => catalog.name +: ident.namespace.toSeq :+ ident.name
          case other => Seq(other.nodeName)
        }
        if (!LockstepCatalog.isOne(name.head))
          Bridge.tell("outside", session, "what" -> s"CALL ${name.mkString(".")}", "known" -> true)
      case _ =>
    }
}
