package lockstep.spark.analysis

import lockstep.spark.LockstepCatalog
import lockstep.spark.catalog.{Procedures, StandIn}
import lockstep.spark.execution.ProcedureCall
import lockstep.spark.statements.StatementScope
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis.UnresolvedProcedure
import org.apache.spark.sql.catalyst.expressions.{Expression, Literal, NamedArgumentExpression}
import org.apache.spark.sql.catalyst.plans.logical.{Call, LogicalPlan}
import org.apache.spark.sql.catalyst.trees.TreeNodeTag
import org.apache.spark.sql.lockstep.LockstepException
import org.apache.spark.sql.types.StringType

/** A CALL of a Lockstep catalog's procedure becomes a command, which is carried out once, and where it stands. */
private[spark] object ProcedureCalls {

  /** Of a statement that says a call in other words, and names a table: that name, which is not looked up yet. */
  val Table: TreeNodeTag[Seq[String]] = TreeNodeTag[Seq[String]]("lockstep.procedure_table")

  /** Of such a statement that names no catalog: the current one is meant, or the only one of Lockstep's. */
  val NoCatalog: TreeNodeTag[Boolean] = TreeNodeTag[Boolean]("lockstep.procedure_catalog")

  /** Of such a statement: the parameters that it says by the word TIMESTAMP. */
  val Times: TreeNodeTag[Set[String]] = TreeNodeTag[Set[String]]("lockstep.procedure_times")

  def place(session: SparkSession, plan: LogicalPlan): LogicalPlan = plan match {
    case call @ Call(UnresolvedProcedure(parts), arguments, true) =>
      val table = call.getTagValue(Table).map(StatementScope.qualified(session, _))
      val name = named(session, call, parts)
      if (LockstepCatalog.isOne(name.head) && Procedures.isTheirs(name.tail.init.toArray))
        called(
          session,
          name,
          arguments ++ table.map(parts => argument("table", LockstepCatalog.quoted(parts))),
          call.getTagValue(Times).getOrElse(Set.empty))
      else call
    case other => other
  }

  /** Catalog, namespace and name of what a call means, or a statement that says it in other words. */
  def named(session: SparkSession, call: Call, parts: Seq[String]): Seq[String] =
    call
      .getTagValue(Table)
      .map(StatementScope.qualified(session, _).head)
      .orElse(onlyOne(session, call))
      .fold(StatementScope.qualified(session, parts))(_ +: parts)

  private def called(
      session: SparkSession,
      name: Seq[String],
      arguments: Seq[Expression],
      times: Set[String]): LogicalPlan = {
    val (named, positional) = arguments.partition(_.isInstanceOf[NamedArgumentExpression])
    session.sessionState.catalogManager.catalog(name.head) match {
      case catalog: LockstepCatalog =>
        ProcedureCall(
          catalog,
          name.last,
          positional,
          named.collect { case NamedArgumentExpression(key, value) => key -> value },
          times)
      case other => throw new IllegalStateException(s"${other.name} is set to be Lockstep's, and is $other")
    }
  }

  private def argument(name: String, text: String): Expression =
    NamedArgumentExpression(name, Literal.create(text, StringType))

  /** The catalog of a statement that names none: the current one, if it is Lockstep's, else the one that stands for Spark's own, or is the only one. */
  private def onlyOne(session: SparkSession, call: Call): Option[String] =
    if (!call.getTagValue(NoCatalog).contains(true)) None
    else {
      val current = session.sessionState.catalogManager.currentCatalog.name
      val all = LockstepCatalog.in(session).keys.toSeq.sorted
      val one = if (all.contains(current)) Some(current) else StandIn.only(session)
      if (one.isEmpty && all.size > 1)
        throw new LockstepException(
          "LOCKSTEP_INVALID",
          s"which catalog? This session has ${all.mkString(", ")}; say USE <catalog> first, or CALL <catalog>.system.….",
          "22023")
      one.orElse(all.headOption).orElse(Some(current))
    }
}
