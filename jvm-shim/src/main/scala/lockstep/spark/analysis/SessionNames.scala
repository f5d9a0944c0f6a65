package lockstep.spark.analysis

import java.util.Locale

import lockstep.spark.LockstepCatalog
import lockstep.spark.analysis.SessionNames.{Dropped, Found, Made, SaidName, SessionCatalog, Used}
import lockstep.spark.catalog.{SessionSchemas, StandIn, Views}
import lockstep.spark.statements.{ChangesFunction, SinglePass, StatementScope}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.TimeTravel
import org.apache.spark.sql.catalyst.analysis.{
  RelationTimeTravel,
  UnresolvedIdentifier,
  UnresolvedRelation,
  UnresolvedTable,
  UnresolvedTableOrView,
  UnresolvedView
}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lockstep.LockstepException

import scala.jdk.CollectionConverters._

/**
 * Names of Spark's session catalog that mean tables of a lake, where that catalog's `session-names` says so. The class
 * that the session catalog is set to be is no place for it: Spark and Delta ask the metastore past it, to drop a table or
 * save a DataFrame for example. So the names are changed, before anything is looked up. What they become is a name of a
 * Lockstep catalog as any other. A statement in which a name is found in no way that is known here is one on another
 * catalog, and a transaction treats it as that.
 *
 * @param standIns the catalogs that say so, of which there must be one
 */
private[spark] case class SessionNames(session: SparkSession, standIns: Seq[LockstepCatalog]) {

  /** Refuses a plan with names of the session catalog for which no rule of ours would run. */
  def checkAnalyzer(plan: LogicalPlan): Unit = {
    val _ = changed(plan) { found =>
      SinglePass.refuse(s"${LockstepCatalog.quoted(found.parts)} cannot be looked up")
      found.parts
    }
  }

  /** What stands for the session catalog. A session that says it wrong is not locked: it is told when it says a name. */
  private lazy val lake: LockstepCatalog =
    if (standIns.size == 1) standIns.head
    else standIns.find(!_.isSaidInWords).getOrElse(
      throw new LockstepException(
        "LOCKSTEP_INVALID",
        s"the catalogs ${standIns.map(_.name).sorted.mkString(", ")} say session-names, and only one of a session can",
        "22023"))

  /** Changes the names of a statement, all of which are asked about at once. */
  def place(plan: LogicalPlan): LogicalPlan = {
    var said = Set.empty[SaidName]
    changed(plan) { found =>
      said ++= saidName(found)
      found.parts
    }
    val ours = among(said)
    if (ours.isEmpty) plan
    else {
      val placed = changed(plan) { found =>
        saidName(found).filter(ours).fold(found.parts)(lake.name +: _.name)
      }
      checkView(placed, plan)
      renamed(placed)
    }
  }

  private def saidName(found: Found): Option[SaidName] =
    named(found.parts, found.mayBeTemporary).map(SaidName(_, found.use, found.isDelta))

  /** Refuses a view of a lake whose text would mean something else to a session without `session-names`. */
  private def checkView(placed: LogicalPlan, written: LogicalPlan): Unit = {
    def isOfLake(name: LogicalPlan) = name match {
      case one: UnresolvedIdentifier => isOurs(one.nameParts)
      case one: UnresolvedView => isOurs(one.multipartIdentifier)
      case _ => true // of what is still to be worked out nobody knows
    }
    def isOurs(parts: Seq[String]) = LockstepCatalog.isOne(StatementScope.qualified(session, parts).head)
    def check(name: LogicalPlan, after: LogicalPlan, before: LogicalPlan): Unit =
      if (isOfLake(name) && after != before)
        throw unsupported(
          s"a view of the lake ${lake.name} that says a table by its old name, which is another's, or nobody's, to sessions " +
            s"without session-names. Write the lake's names in the view: ${lake.name}.<namespace>.<table>")
    (placed, written) match {
      case (after: CreateView, before: CreateView) => check(after.child, after.query, before.query)
      case (after: AlterViewAs, before: AlterViewAs) => check(after.child, after.query, before.query)
      case _ =>
    }
  }

  /** With the new name of what is the lake's, which must be one that the session catalog does not have. */
  private def renamed(plan: LogicalPlan): LogicalPlan = plan match {
    case rename @ RenameTable(either: UnresolvedTableOrView, to, _) if either.multipartIdentifier.head == lake.name =>
      val name =
        if (to.size == 1) Some(Seq(either.multipartIdentifier(1), to.head)) else named(to, mayBeTemporary = false)
      val free = name.filter(said => among(Set(SaidName(said, Made, isDelta = true))).nonEmpty)
      rename.copy(newName = free.getOrElse(throw unsupported(
        s"RENAME TO ${LockstepCatalog.quoted(to)}: that is no new name of a schema that the lake ${lake.name} has, too")))
    case other => other
  }

  /** What a name means that a program of Spark's or Delta's has parsed, to look it up past all plans. */
  def parsed(parts: Seq[String], isSaved: Boolean): Seq[String] = {
    // What saves a table looks for no temporary view, and would not write to one.
    val name = named(parts, mayBeTemporary = !isSaved)
    name.filter(each => among(Set(SaidName(each, Used))).nonEmpty).map(lake.name +: _).getOrElse {
      if (isSaved && SessionNames.WritersDrop) { val _ = among(name.map(SaidName(_, Made)).toSet) }
      parts
    }
  }

  /** Refuses to drop a schema of the session catalog with which files of the lake's would go. */
  def checkDropOfSchema(schema: String): Unit = lake.checkDropOfSchema(schema)

  def unsupported(what: String) = new LockstepException("LOCKSTEP_UNSUPPORTED", s"$what. Nothing was done", "0A000")

  /** The names of a namespace that only the lake has, for a list of what the session catalog has in it. */
  def onlyOurs(namespace: String, listed: Set[String]): Seq[String] = {
    val parts = Array(namespace)
    if (!lake.namespaceExists(parts)) Nil
    else {
      val known = listed.map(key)
      (lake.listTables(parts).map(_.name).toSeq ++ lake.describedViews(parts, "*").map(_._1)).filterNot(name =>
        known(key(name))).sorted
    }
  }

  private def key(name: String) = if (SQLConf.get.caseSensitiveAnalysis) name else name.toLowerCase(Locale.ROOT)

  /**
   * Which of these names mean the lake's, as the statement was told of them first. What would take files of the lake from
   * it is refused.
   */
  def among(said: Set[SaidName]): Set[SaidName] =
    if (said.isEmpty) Set.empty
    else {
      val known = StatementScope.current.fold(Map.empty[Any, Boolean])(_.told)
      val asked = said.filterNot(known.contains).toSeq
      val answer =
        if (asked.isEmpty) Map.empty[Any, Boolean] else asked.zip(lake.meansOurs(fields(asked))).toMap[Any, Boolean]
      StatementScope.current.foreach(_.told ++= answer)
      said.filter(name => known.getOrElse(name, answer(name)))
    }

  private def fields(asked: Seq[SaidName]): Seq[Map[String, Any]] =
    asked.zip(SessionSchemas.tables(session, asked.map(_.name))).map { case (said, there) =>
      Map("name" -> said.name, "use" -> said.use, "is_delta" -> said.isDelta, "there" -> there)
    }

  /** Schema and name of what is one of the session catalog's, as far as its parts tell; no path, as of ``delta.`/t` ``. */
  def named(parts: Seq[String], mayBeTemporary: Boolean): Option[Seq[String]] =
    if (parts.last.contains('/') || (mayBeTemporary && StatementScope.isTemporary(session, parts))) None
    else
      StatementScope.qualified(session, parts) match {
        case Seq(catalog, schema, name) if catalog.equalsIgnoreCase(SessionCatalog) => Some(Seq(schema, name))
        case _ => None
      }

  /** A plan with each name changed in it, of which is told what is done with what has it. */
  private def changed(plan: LogicalPlan)(change: Found => Seq[String]): LogicalPlan = {
    def used(parts: Seq[String]) = change(Found(parts, Used))
    def of(name: LogicalPlan, use: String, isDelta: Boolean = false): LogicalPlan = name match {
      // Spark looks for a temporary view here only where it is told to: to drop one, and not to make a table.
      case one: UnresolvedIdentifier => one.copy(nameParts = change(Found(one.nameParts, use, isDelta, one.allowTemp)))
      case one: UnresolvedRelation =>
        one.copy(multipartIdentifier = change(Found(one.multipartIdentifier, use, isDelta)))
      case one: UnresolvedTable => one.copy(multipartIdentifier = change(Found(one.multipartIdentifier, use, isDelta)))
      case one: UnresolvedTableOrView =>
        one.copy(multipartIdentifier = change(Found(one.multipartIdentifier, use, isDelta)))
      case one: UnresolvedView => one.copy(multipartIdentifier = change(Found(one.multipartIdentifier, use, isDelta)))
      case other => other
    }
    AnalysisHelper.allowInvokingTransformsInAnalyzer {
      plan.transformDownWithSubqueries {
        case relation: UnresolvedRelation => of(relation, Used)
        case table: UnresolvedTable => of(table, Used)
        // By IDENTIFIER(<expression>) it comes here before the plan that renames it.
        case either: UnresolvedTableOrView =>
          of(either, if (either.commandName.endsWith("RENAME TO")) Dropped else Used)
        case view: UnresolvedView => of(view, Used)
        case travel: RelationTimeTravel => travel.copy(relation = of(travel.relation, Used))
        case travel: TimeTravel => travel.copy(relation = of(travel.relation, Used))
        case ChangesFunction(name, changes) => changes(used(name))
        case ChangesClause(table, changes) => changes(table.copy(multipartIdentifier = used(table.multipartIdentifier)))
        case insert: InsertIntoStatement => insert.copy(table = of(insert.table, Used))
        case write: V2WriteCommand => write.table match {
            case table: UnresolvedRelation =>
              write.withNewTable(table.copy(multipartIdentifier = used(table.multipartIdentifier)))
            case _ => write
          }
        case drop: DropTable => drop.copy(child = of(drop.child, Dropped))
        case drop: DropView => drop.copy(child = of(drop.child, if (Views.AreRead) Dropped else Used))
        case rename: RenameTable => rename.copy(child = of(rename.child, Dropped))
        case view: CreateView => view.copy(child = of(view.child, Used))
        case make: CreateTable => make.copy(name = of(make.name, Made, isDelta(make.tableSpec)))
        case make: CreateTableAsSelect => make.copy(name = of(make.name, Made, isDelta(make.tableSpec)))
        case make: ReplaceTable => make.copy(name = of(make.name, Made, isDelta(make.tableSpec)))
        case make: ReplaceTableAsSelect => make.copy(name = of(make.name, Made, isDelta(make.tableSpec)))
        case clone: CloneTableStatement => clone.copy(target = of(clone.target, Made, isDelta = true))
      }
    }
  }

  /** Whether a new table is Delta's, in Spark's session catalog too. */
  def isDelta(spec: TableSpecBase): Boolean = spec match {
    case built: TableSpec => isDelta(built.provider, built.serde.nonEmpty)
    case said: UnresolvedTableSpec => isDelta(said.provider, said.serde.nonEmpty)
    case _ => false
  }

  private def isDelta(provider: Option[String], hasSerde: Boolean): Boolean = {
    val conf = session.sessionState.conf
    val isHives = hasSerde || (provider.isEmpty && conf.getConf(SQLConf.LEGACY_CREATE_HIVE_TABLE_BY_DEFAULT))
    !isHives && provider.getOrElse(conf.defaultDataSourceName).equalsIgnoreCase("delta")
  }
}

private[spark] object SessionNames {
  val SessionCatalog = "spark_catalog"

  val Used = "used"
  val Dropped = "dropped"
  val Made = "made"

  /** A name of the session catalog, as schema and name, and what a statement does with what has it. */
  final case class SaidName(name: Seq[String], use: String, isDelta: Boolean = false)

  /** A name in a plan, which may be a temporary view's where that would be used first. */
  final private case class Found(
      parts: Seq[String],
      use: String,
      isDelta: Boolean = false,
      mayBeTemporary: Boolean = true)

  /** Those of a session in which a catalog of ours stands for Spark's; none, where none does. */
  def in(session: SparkSession): Option[SessionNames] =
    Option(StandIn.in(session)).filter(_.nonEmpty).map(SessionNames(session, _))

  def place(session: SparkSession, plan: LogicalPlan): LogicalPlan = in(session).fold(plan)(_.place(plan))

  /** A statement that was parsed: it may not be analyzed in a way in which nobody would look for names. */
  def parsed(session: SparkSession, plan: LogicalPlan): LogicalPlan = {
    if (SinglePass.isOn) in(session).foreach(_.checkAnalyzer(plan))
    plan
  }

  /**
   * What a name means that was parsed: to who then looks it up past all plans. Others put it into a plan, in which it is
   * changed, or parse the name of something else than a table.
   */
  def parsed(session: SparkSession, parts: Seq[String]): Seq[String] =
    in(session).fold(parts) { names =>
      SinglePass.refuse("names of the session catalog cannot be looked up")
      lookUp.fold(parts)(method => names.parsed(parts, isSaved = method.startsWith("saveAsTable")))
    }

  /** Before Spark 4.2 a DataFrame's writer drops what it overwrites by itself, without a command that could be refused. */
  private val WritersDrop = !Views.AreRead

  /** Who looks tables up so, whose classes' names begin like this. */
  private val LookUp = Seq(
    "org.apache.spark.sql.classic.DataFrameWriter",
    "org.apache.spark.sql.classic.DataStreamWriter",
    "io.delta.tables.DeltaTable$"
  )

  /** The method of one of these for which the name is parsed, behind all parsers that hand it on. */
  private def lookUp: Option[String] = {
    def isParser(name: String) = name.startsWith("lockstep.") || name.startsWith("scala.") || name.contains("Parser")
    StackWalker.getInstance().walk[Option[String]] { frames =>
      frames.iterator.asScala.find(frame => !isParser(frame.getClassName)).filter(frame =>
        LookUp.exists(frame.getClassName.startsWith)).map(_.getMethodName)
    }
  }
}
