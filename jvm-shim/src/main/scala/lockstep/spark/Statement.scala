package lockstep.spark

import java.lang.ref.WeakReference
import java.util.concurrent.atomic.AtomicLong

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis.{
  AnalysisContext,
  RelationTimeTravel,
  UnresolvedRelation,
  UnresolvedTable,
  UnresolvedTableOrView,
  UnresolvedTableValuedFunction
}
import org.apache.spark.sql.catalyst.expressions.StringLiteral
import org.apache.spark.sql.catalyst.plans.logical.{
  AlterTableCommand,
  InsertIntoStatement,
  LogicalPlan,
  MergeIntoTable,
  RestoreTableStatement,
  V2WriteCommand
}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.connector.catalog.Identifier
import org.apache.spark.sql.lockstep.Internals

/** How a statement uses a table, as far as its unresolved plan tells. */
sealed private[spark] trait Use {
  def isTarget: Boolean = this match {
    case Append | Changed | Target => true
    case Live | Pinned => false
  }
}

/** The statement adds rows to the table, or alters its schema or properties, and reads none of it. */
private[spark] case object Append extends Use

/** The statement changes rows that it finds by a condition. */
private[spark] case object Changed extends Use

/** The statement changes the table in another way, or is a command about it: it must see the newest state of it. */
private[spark] case object Target extends Use

/** A relation alone, as in `spark.table(…)`: like Delta, it is read afresh each time it is used. */
private[spark] case object Live extends Use

/** One table of a query: all of a query's tables are read at one database version. */
private[spark] case object Pinned extends Use

/**
 * One analysis of one statement. Spark resolves relation by relation and shares the result within an analysis, so the
 * catalog has to know, before the first relation is loaded, which of them the statement will change.
 */
final private[spark] class Statement(val id: String) {
  private var uses = Map.empty[Seq[String], Use]
  private var names = Set.empty[Seq[String]]

  def use(catalog: String, ident: Identifier): Use =
    uses.getOrElse(catalog +: ident.namespace.toSeq :+ ident.name, Pinned)

  private[spark] var text: Option[String] = None

  /** The tables of a catalog that the plan names, whether or not they exist: namespace and name. */
  def mentioned(catalog: String): Seq[Seq[String]] =
    names.toSeq.collect { case parts if parts.head == catalog => parts.tail }

  private def add(session: SparkSession, plan: LogicalPlan): Unit = {
    if (text.isEmpty) text = plan.collectFirst { case node if node.origin.sqlText.isDefined => node.origin.sqlText.get }
    names ++=
      plan.collectWithSubqueries { case u: UnresolvedRelation => Statement.qualified(session, u.multipartIdentifier) }
    Statement.targets(session, plan).foreach { case (name, use) => uses += Statement.qualified(session, name) -> use }
  }
}

private[spark] object Statement {
  private val ids = new AtomicLong()

  /** What a request says of the statement whose analysis makes it. */
  def said(catalog: String): Seq[(String, Any)] = Seq(
    "statement" -> current.map(_.id),
    "text" -> current.flatMap(_.text),
    "mentioned" -> current.fold(Seq.empty[Seq[String]])(_.mentioned(catalog)))

  /** The text of this thread's newest statement: what is executed, when nothing is analyzed. None for a DataFrame's. */
  def latestText: Option[String] = recent.get.headOption.flatMap(_._2.text)

  /** Analyses nest (a command's analysis runs queries), and an abandoned one is never told that it ended. */
  private val Depth = 16

  private val recent = ThreadLocal.withInitial[List[(WeakReference[AnyRef], Statement)]](() => Nil)

  /** Spark gives each analysis a relation cache of its own, which the analyses of its views share: its identity. */
  private def key: AnyRef = AnalysisContext.get.relationCache

  /** The statement whose analysis is under way on this thread, or none when a catalog is called on its own. */
  def current: Option[Statement] = {
    val now = key
    recent.get.collectFirst { case (ref, statement) if ref.get eq now => statement }
  }

  def open(session: SparkSession, plan: LogicalPlan): Unit = {
    val statement = current.getOrElse {
      val fresh = new Statement(s"${Internals.id(session)}:${ids.incrementAndGet()}")
      recent.set((new WeakReference(key), fresh) :: recent.get.take(Depth - 1))
      fresh
    }
    statement.add(session, plan)
  }

  private def targets(session: SparkSession, plan: LogicalPlan): Seq[(Seq[String], Use)] = {
    val inserts = plan.collect {
      case insert: InsertIntoStatement => named(insert.table, if (insert.overwrite) Target else Append)
      case write: V2WriteCommand => named(write.table, if (isAppend(write)) Append else Target)
      case merge: MergeIntoTable => merge.targetTable.collect { case u: UnresolvedRelation =>
          u.multipartIdentifier -> Changed
        }
    }.flatten
    val others = plan.collect {
      case RelationTimeTravel(u: UnresolvedTable, _, _) => u.multipartIdentifier -> Target
      case u: UnresolvedTable => u.multipartIdentifier -> Target
      case u: UnresolvedTableOrView => u.multipartIdentifier -> Target
      case u: UnresolvedRelation if u.options.containsKey(UnresolvedRelation.REQUIRED_WRITE_PRIVILEGES) =>
        u.multipartIdentifier -> Changed
      case u: UnresolvedRelation if u.isStreaming || (u eq plan) => u.multipartIdentifier -> Live
    }
    // Of what it alters it reads no row, but for a constraint, which conflicts with any.
    val altered = plan.collect { case alter: AlterTableCommand => named(alter.table, Append) }.flatten
    // Delta's own time travel is a leaf: what it holds is not among the plan's nodes.
    val restored = plan.collect { case restore: RestoreTableStatement => named(restore.table.relation, Target) }.flatten
    inserts ++ others ++ altered ++ restored ++ plan.collect(changesOf(session))
  }

  /** Delta's `table_changes('table', …)` resolves its table by itself, and cannot read a pinned one. */
  private def changesOf(session: SparkSession): PartialFunction[LogicalPlan, (Seq[String], Use)] = {
    case UnresolvedTableValuedFunction(Seq("table_changes"), StringLiteral(name) +: _, _) =>
      session.sessionState.sqlParser.parseMultipartIdentifier(name) -> Live
  }

  private def isAppend(write: V2WriteCommand) =
    write.isInstanceOf[org.apache.spark.sql.catalyst.plans.logical.AppendData]

  private def named(table: LogicalPlan, use: Use): Seq[(Seq[String], Use)] = table match {
    case u: UnresolvedRelation => Seq(u.multipartIdentifier -> use)
    case u: UnresolvedTable => Seq(u.multipartIdentifier -> use)
    case _ => Nil
  }

  /** Catalog, namespace and table, as Spark will resolve these parts. */
  def qualified(session: SparkSession, parts: Seq[String]): Seq[String] = {
    val catalogs = session.sessionState.catalogManager
    if (parts.size > 1 && catalogs.isCatalogRegistered(parts.head)) parts
    else if (parts.size > 1) catalogs.currentCatalog.name +: parts
    else (catalogs.currentCatalog.name +: catalogs.currentNamespace.toSeq) ++ parts
  }
}

/** Runs first in every analysis, before any relation is loaded; changes nothing but marked times and a clone's target. */
private[spark] case class StatementRule(session: SparkSession) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = {
    Transactions.enter(session)
    Statement.open(session, plan)
    CloneTarget.place(session, SystemTime.mark(plan))
  }
}
