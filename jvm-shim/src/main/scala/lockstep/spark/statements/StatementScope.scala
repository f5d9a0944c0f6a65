package lockstep.spark.statements

import com.fasterxml.jackson.databind.JsonNode
import lockstep.spark.scans.NoTables
import lockstep.spark.transactions.Transactions
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis.{
  AnalysisContext,
  RelationTimeTravel,
  UnresolvedRelation,
  UnresolvedTable,
  UnresolvedTableOrView
}
import org.apache.spark.sql.catalyst.plans.logical.{
  AlterTableCommand,
  InsertIntoStatement,
  LogicalPlan,
  MergeIntoTable,
  RestoreTableStatement,
  V2WriteCommand
}
import org.apache.spark.sql.connector.catalog.Identifier
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lockstep.Internals

import scala.jdk.CollectionConverters._

/**
 * One analysis of one statement. Spark resolves relation by relation and shares the result within an analysis, so the
 * catalog has to know, before the first relation is loaded, which of them the statement will change. And it keeps, for
 * each catalog, which database version the statement reads: all that is asked for it says so.
 */
final private[spark] class StatementScope {
  private var uses = Map.empty[Seq[String], Use]
  private var names = Set.empty[Seq[String]]
  private var written = Set.empty[Seq[String]]
  private var pins = Map.empty[String, Pin]
  private val ahead = new AskedAhead
  private var isOpened = false
  private var query: Option[AnalyzedQuery] = None

  /** The functions of catalogs that were looked for, as an older version has them or as now; none: there is none. */
  private var functions = Map.empty[(String, Seq[String], Option[String]), Option[Any]]

  private[spark] var text: Option[String] = None

  /** What names of Spark's session catalog mean, as was told first: they mean the same to the end of the analysis. */
  private[spark] var told = Map.empty[Any, Boolean]

  def use(catalog: String, ident: Identifier): Use =
    uses.getOrElse(StatementScope.key(catalog +: ident.namespace.toSeq :+ ident.name), Pinned)

  /** Asks about a relation that is loaded, and about what else the statement names, unless it was told before. */
  def load(session: SparkSession, catalog: String, ident: Identifier, wanted: Wanted)(
      request: Seq[(String, Any)] => JsonNode): Loading = {
    val name = catalog +: ident.namespace.toSeq :+ ident.name
    ahead.take(session, name, wanted).getOrElse {
      val standing = Transactions.standing(session)
      val others = if (wanted.when.isEmpty) ahead.questions(session, named(session, name)) else Nil
      val touch = AskedAhead.newTouch()
      val more = wanted.fields ++ Seq("touch" -> touch, "ahead" -> others.map(_.fields))
      val answer = ask(catalog, ident, wanted.isLookedAt, others.map(_.name))(read => request(more ++ read))
      ahead.add(standing, others.zip(StatementScope.ahead(answer)))
      Loading(answer, touch)
    }
  }

  /**
   * What else the statement names of a catalog, as Spark will load it. Not among it is what must not be asked about ahead:
   * what a statement outside a transaction changes, for that is newer than what it reads; what a command is about, for
   * to ask is to have read it; what is read afresh each time it is used.
   */
  private def named(session: SparkSession, loaded: Seq[String]): Seq[AskedAhead.Question] =
    for {
      name <- (names ++ written).toSeq if name.head == loaded.head && name != loaded
      wanted <- uses.getOrElse(StatementScope.key(name), Pinned) match {
        case Pinned => Some(Wanted(Pinned))
        case use @ (Append | Changed) if Transactions.isOpen(session) => Some(Wanted(use, writes = true))
        case _ => None
      }
    } yield AskedAhead.Question(name, wanted)

  /**
   * Asks about a relation, with what the statement has read so far, and notes what it was told.
   *
   * @param ahead what else is asked about in this request: namespaces and names
   */
  def ask(catalog: String, ident: Identifier, isLookedAt: Boolean, ahead: Seq[Seq[String]] = Nil)(
      request: Seq[(String, Any)] => JsonNode): JsonNode = {
    val pin = pins.getOrElse(catalog, Pin(None, Set.empty, Set.empty))
    val name = ident.namespace.toSeq :+ ident.name
    val mentioned = names.collect { case parts if parts.head == catalog => parts.tail } ++ ahead ++
      Set(name).filter(_ => isLookedAt)
    val unlooked = mentioned -- pin.looked
    val answer = request(Seq("pin" -> pin.version, "seen" -> pin.seen, "mentioned" -> unlooked))
    val told = ((name -> answer) +: ahead.zip(StatementScope.ahead(answer))).filter(_._2.has("pin"))
    for ((_, pinned) <- told.headOption)
      pins += catalog -> Pin(Some(pinned.get("pin").asLong), pin.seen ++ told.map(_._1), pin.looked ++ unlooked)
    answer
  }

  /** What a catalog keeps of a function, asked for once: Spark looks for each name several times. */
  private def function[T](catalog: String, ident: Identifier, when: Option[String])(asked: => Option[T]): Option[T] = {
    val key = (catalog, ident.namespace.toSeq :+ ident.name, when)
    if (!functions.contains(key)) functions += key -> asked
    functions(key).map(_.asInstanceOf[T])
  }

  /** Notes what its plan has become: the last one of an analysis is the whole statement's. */
  def became(plan: LogicalPlan): Unit = query.foreach(_.plan = Some(plan))

  /** Takes in a plan of the statement: its own, or that of a view, a subquery or a function in it. */
  private def add(session: SparkSession, plan: LogicalPlan): Unit = {
    // What is below the root may be of another statement: a DataFrame's query that is being written.
    if (!isOpened) {
      text = StatementText.of(plan)
      query = AnalyzedQuery.begun(plan)
    }
    if (!NoTables.in(plan)) addNames(session, plan)
    isOpened = true
  }

  private def addNames(session: SparkSession, plan: LogicalPlan): Unit = {
    names ++= plan.collectWithSubqueries {
      case u: UnresolvedRelation if !StatementScope.isTemporary(session, u.multipartIdentifier) =>
        StatementScope.qualified(session, u.multipartIdentifier)
    }
    StatementScope.targets(plan).foreach { case (parts, use) =>
      val name = StatementScope.qualified(session, parts)
      uses += StatementScope.key(name) -> use
      if (use == Append) written += name
    }
    plan match {
      case u: UnresolvedRelation if !isOpened && u.origin.sqlText.isEmpty =>
        uses += StatementScope.key(StatementScope.qualified(session, u.multipartIdentifier)) -> Live
      case _ => ()
    }
  }
}

/**
 * What a statement reads of a catalog.
 *
 * @param version the database version; none before its first relation
 * @param seen    what it was told at that version: namespace and name of tables and views, whether or not they exist
 * @param looked  of which tables plain Delta writers' commits are taken in
 */
private case class Pin(version: Option[Long], seen: Set[Seq[String]], looked: Set[Seq[String]])

private[spark] object StatementScope {
  private val analyses = new Analyses

  /** The statement that a thread began last, and where: what the statement itself analyzes while it runs is not one. */
  private val latest = new ThreadLocal[(StatementScope, Nesting)]

  /**
   * Asks about a relation for the statement whose analysis is under way on this thread. None is when a catalog is called
   * on its own, which reads the newest version of what it names.
   *
   * @param isLookedAt whether it matters what plain Delta writers did to the table up to now
   */
  def ask(catalog: String, ident: Identifier, isLookedAt: Boolean)(
      request: Seq[(String, Any)] => JsonNode): JsonNode = {
    SinglePass.refuse(s"$catalog.$ident cannot be read or written")
    current.getOrElse(new StatementScope).ask(catalog, ident, isLookedAt)(request)
  }

  /** Asks about a relation that is loaded, like `ask`, unless the statement was told of it before. */
  def load(session: SparkSession, catalog: String, ident: Identifier, wanted: Wanted)(
      request: Seq[(String, Any)] => JsonNode): Loading = {
    SinglePass.refuse(s"$catalog.$ident cannot be read or written")
    current.getOrElse(new StatementScope).load(session, catalog, ident, wanted)(request)
  }

  /** What a catalog keeps of a function, asked for once in the analysis of a statement. */
  def function[T](catalog: String, ident: Identifier, when: Option[String])(asked: => Option[T]): Option[T] =
    current.fold(asked)(_.function(catalog, ident, when)(asked))

  /** What an answer says of the relations that were asked about with another. */
  private def ahead(answer: JsonNode): Seq[JsonNode] = Option(answer.get("ahead")).toSeq.flatMap(_.elements().asScala)

  /** The text of this thread's newest statement: what is executed, when nothing is analyzed. None for a DataFrame's. */
  def latestText: Option[String] = Option(latest.get).flatMap(_._1.text)

  /** The same for the timeline, without what must not be shown. */
  def shownText: Option[String] = latestText.map(Internals.redacted)

  /** The statement whose analysis is under way on this thread, or none when a catalog is called on its own. */
  def current: Option[StatementScope] = analyses.current

  def open(session: SparkSession, plan: LogicalPlan): Unit = {
    val statement = analyses.open()
    statement.add(session, plan)
    val nesting = Nesting.of(session)
    if (statement.text.isDefined || !Option(latest.get).exists(newest => nesting.isInside(newest._2)))
      latest.set((statement, nesting))
  }

  /** A name as it is told from others: two that differ in case alone are one, unless the session says so. */
  private def key(name: Seq[String]): Seq[String] =
    if (SQLConf.get.caseSensitiveAnalysis) name else name.map(_.toLowerCase(java.util.Locale.ROOT))

  private def targets(plan: LogicalPlan): Seq[(Seq[String], Use)] = {
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
      case u: UnresolvedRelation if u.isStreaming => u.multipartIdentifier -> Live
    }
    // Of what it alters it reads no row, but for a constraint, which conflicts with any.
    val altered = plan.collect { case alter: AlterTableCommand => named(alter.table, Append) }.flatten
    // Delta's own time travel is a leaf: what it holds is not among the plan's nodes.
    val restored = plan.collect { case restore: RestoreTableStatement => named(restore.table.relation, Target) }.flatten
    inserts ++ others ++ altered ++ restored ++ plan.collect(changesOf)
  }

  /** Delta's `table_changes('table', …)` resolves its table by itself, and cannot read a pinned one. */
  private val changesOf: PartialFunction[LogicalPlan, (Seq[String], Use)] = {
    case ChangesFunction(name, _) => name -> Live
  }

  private def isAppend(write: V2WriteCommand) =
    write.isInstanceOf[org.apache.spark.sql.catalyst.plans.logical.AppendData]

  private def named(table: LogicalPlan, use: Use): Seq[(Seq[String], Use)] = table match {
    case u: UnresolvedRelation => Seq(u.multipartIdentifier -> use)
    case u: UnresolvedTable => Seq(u.multipartIdentifier -> use)
    case _ => Nil
  }

  /** Whether a name means a temporary view: in a view, only one that was there when the view was made. */
  def isTemporary(session: SparkSession, parts: Seq[String]): Boolean = {
    val here = AnalysisContext.get
    session.sessionState.catalog.isTempView(parts) &&
    (here.catalogAndNamespace.isEmpty ||
      here.referredTempViewNames.exists(_.corresponds(parts)(SQLConf.get.resolver)))
  }

  /** Catalog, namespace and table, as Spark will resolve these parts: in a view, as where the view was made. */
  def qualified(session: SparkSession, parts: Seq[String]): Seq[String] = {
    val catalogs = session.sessionState.catalogManager
    val place = AnalysisContext.get.catalogAndNamespace match {
      case Nil => catalogs.currentCatalog.name +: catalogs.currentNamespace.toSeq
      case ofView => ofView
    }
    if (parts.size == 1) {
      SqlPath.refuse(session, parts.head)
      place ++ parts
    } else if (catalogs.isCatalogRegistered(parts.head)) parts
    else place.head +: parts
  }
}
