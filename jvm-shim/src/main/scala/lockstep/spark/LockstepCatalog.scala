package lockstep.spark

import java.io.FileNotFoundException
import java.util

import com.fasterxml.jackson.databind.JsonNode
import lockstep.spark.catalog.{
  Bound,
  CatalogSessions,
  ChangeRange,
  Commits,
  CreateTableLike,
  DriverState,
  Functions,
  NewTables,
  Procedures,
  StandIn,
  SystemTable,
  Views,
  WriterFormat
}
import lockstep.spark.host.{CatalogOptions, SessionSettings}
import lockstep.spark.overlay.Overlay
import lockstep.spark.reads.Reads
import lockstep.spark.scans.Scans
import lockstep.spark.statements.{
  Append,
  CatalogSettings,
  Live,
  Loading,
  Pinned,
  StatementScope,
  SystemTime,
  Target,
  Use,
  Wanted
}
import lockstep.spark.transactions.Transactions
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.TableIdentifier
import org.apache.spark.sql.catalyst.analysis.{
  NamespaceAlreadyExistsException,
  NoSuchNamespaceException,
  NoSuchTableException,
  NonEmptyNamespaceException
}
import org.apache.spark.sql.catalyst.catalog.{CatalogStorageFormat, CatalogTable, CatalogTableType}
import org.apache.spark.sql.catalyst.expressions.Literal
import org.apache.spark.sql.catalyst.util.quoteIfNeeded
import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.delta.{DeltaConfigs, DeltaLog, DeltaTimeTravelSpec, Snapshot}
import org.apache.spark.sql.delta.catalog.DeltaTableV2
import org.apache.spark.sql.delta.lockstep.{DeltaInternals, Snapshots, Uncheckpointed}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lockstep.{Internals, LockstepException}
import org.apache.spark.sql.types.{StructType, TimestampType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

import scala.annotation.nowarn
import scala.jdk.CollectionConverters._

/**
 * `spark.sql.catalog.<name>=lockstep.spark.LockstepCatalog` with `.root=<path or URL>`: asks Python what a name means
 * in this session at this moment, and gives Spark Delta's own table at the URI that Python answers.
 *
 * Creating, replacing and altering are Delta's too, through its path identifier (``delta.`lockstep://…` ``).
 */
@nowarn("cat=deprecation") // the forms of create and stage that every supported Spark minor has
class LockstepCatalog extends StagingTableCatalog with SupportsNamespaces with Views with CreateTableLike
    with Functions with Procedures with StandIn {
  private var catalogName: String = _
  private var options: CaseInsensitiveStringMap = _
  protected lazy val session: SparkSession = CatalogSessions.owner(this)

  override def initialize(name: String, settings: CaseInsensitiveStringMap): Unit = {
    catalogName = name
    options = settings
  }

  override def name: String = catalogName

  override def defaultNamespace: Array[String] = Array("default")

  private[spark] def settings: Map[String, String] = told.settings

  /**
   * The same, as requests say it: those of the session that the catalog belongs to. Spark gives it those of the session that
   * is active where it is first used, which may be another one, with another root.
   */
  private lazy val told = new CatalogOptions(
    catalogName,
    CatalogSettings.of(session, catalogName).getOrElse(options.asCaseSensitiveMap.asScala.toMap))

  protected def ask(op: String, args: (String, Any)*): JsonNode =
    Bridge.call(
      op,
      session,
      (Seq("catalog" -> catalogName, "options" -> told, SessionSettings.caseSensitive(session)) ++ args): _*)

  private def tell(op: String, args: (String, Any)*): Unit = {
    val _ = ask(op, args: _*)
  }

  /** Spark looks for a view of the name where one will do; elsewhere it would only say that there is no table. */
  private def missing(ident: Identifier, wanted: Wanted): Exception = {
    val wantsTable = wanted.writes || wanted.when.nonEmpty
    def view = s"${fullName(ident).mkString(".")} is a view"
    if ((Views.AreRead && !wantsTable) || !viewExists(ident)) new NoSuchTableException(fullName(ident))
    else if (wantsTable)
      new LockstepException(
        "LOCKSTEP_NOT_A_TABLE",
        s"$view: it has no rows to write, no changes and no versions of its own. Use the tables that it reads; " +
          "FOR SYSTEM_VERSION AS OF reads it as it was in a version of the database.",
        "42809"
      )
    else
      new LockstepException(
        "LOCKSTEP_UNSUPPORTED",
        s"$view, and Spark reads the views of catalogs since 4.2: use that, or the tables that it reads.",
        "0A000")
  }

  protected def names(ident: Identifier): Seq[(String, Any)] =
    Seq("namespace" -> ident.namespace.toSeq, "table" -> ident.name)

  // Tables: which URI, which version.

  override def loadTable(ident: Identifier): Table =
    load(ident, Wanted(StatementScope.current.fold[Use](Live)(_.use(catalogName, ident))))

  override def loadTable(ident: Identifier, privileges: util.Set[TableWritePrivilege]): Table = {
    val appends = privileges.asScala.forall(_ == TableWritePrivilege.INSERT)
    val use = StatementScope.current.map(_.use(catalogName, ident)).filter(_.isTarget)
    try load(ident, Wanted(use.getOrElse(if (appends) Append else Target), writes = true))
    finally WriterFormat.lookedUp(fullName(ident))
  }

  override def loadTable(ident: Identifier, version: String): Table =
    load(ident, Wanted(Pinned, when = Some("version" -> version)))

  override def loadTable(ident: Identifier, micros: Long): Table = micros match {
    case SystemTime(time) => load(ident, Wanted(Pinned, when = Some("system_time_micros" -> time)))
    case _ => load(ident, Wanted(Pinned, when = Some("timestamp_micros" -> micros)))
  }

  /** The table version that a table has in a database version, or at a time; None if there is no such table now. */
  private[spark] def versionThen(ident: Identifier, when: (String, Any)): Option[Long] =
    Option(ask("version_then", names(ident) :+ when: _*).get("version")).filterNot(_.isNull).map(_.asLong)

  /** What was committed to a table in a range of versions, of the database or of the table itself. */
  private[spark] def rowChanges(
      ident: Identifier,
      isOfDatabase: Boolean,
      start: Bound,
      end: Option[Bound]): ChangeRange = {
    val fields = names(ident) ++ Seq(
      "of" -> (if (isOfDatabase) "database" else "table"),
      "start" -> start.fields,
      "end" -> end.map(_.fields))
    val answer =
      StatementScope.ask(catalogName, ident, isLookedAt = true)(read => ask("row_changes", fields ++ read: _*))
    if (answer.get("missing").asBoolean) throw missing(ident, Wanted(Pinned, when = Some("version" -> start.version)))
    val commits = answer.get("commits").elements().asScala.map { commit =>
      Commits(commit.get(0).asLong, commit.get(1).asLong, commit.get(2).asLong, commit.get(3).asLong)
    }
    ChangeRange(
      pathOf(answer.get("uri").asText),
      texts(answer.get("name")),
      answer.get("version").asLong,
      commits.toSeq)
  }

  private def load(ident: Identifier, wanted: Wanted): Table =
    Option.when(Procedures.isTheirs(ident.namespace))(ofSystem(ident, wanted)).flatten.getOrElse(ofLake(ident, wanted))

  /** A system table; none, if there is none of this name, or the lake has a table of its own that is called so. */
  private def ofSystem(ident: Identifier, wanted: Wanted): Option[Table] = {
    val about = Seq("catalog" -> catalogName, "options" -> told, SessionSettings.caseSensitive(session))
    val answer = StatementScope.ask(catalogName, ident, isLookedAt = false)(read =>
      ask("system_table", names(ident) ++ wanted.fields ++ read: _*))
    Option.unless(answer.get("missing").asBoolean)(SystemTable(catalogName, session, about, answer))
  }

  private def ofLake(ident: Identifier, wanted: Wanted): Table = {
    val tx = Transactions.of(session)
    val loading = StatementScope.load(session, catalogName, ident, wanted)(fields =>
      ask("resolve", names(ident) ++ fields: _*))
    if (!loading.answer.get("missing").asBoolean) {
      tx.foreach(Reads.told(_, loading.answer))
      table(ident, loading)
    } else
      wanted.when.filter(when => Views.AreRead && isPast(when)).fold(throw missing(ident, wanted))(when =>
        pastView(ident, when).getOrElse(throw new NoSuchTableException(fullName(ident))))
  }

  /** Whether this says a version, or a time, of the database: a view was something then, too. */
  private def isPast(argument: (String, Any)): Boolean = argument match {
    case ("version", text: String) => text.startsWith("@")
    case (name, _) => name == "system_time_micros"
  }

  private def fullName(ident: Identifier): Seq[String] = catalogName +: ident.namespace.toSeq :+ ident.name

  /** Delta's table, made to look like a catalog's: without a `CatalogTable` streams cannot name it. */
  private def table(ident: Identifier, loading: Loading): Table = {
    val answer = loading.answer
    val path = pathOf(answer.get("uri").asText)
    val travel =
      if (answer.has("version"))
        Some(DeltaTimeTravelSpec(None, Some(answer.get("version").asLong), Some(catalogName), false))
      else if (answer.has("timestamp_micros"))
        Some(DeltaTimeTravelSpec(
          Some(Literal(answer.get("timestamp_micros").asLong, TimestampType)),
          None,
          Some(catalogName)))
      else None
    val (bare, deltas) = read(path, travel).orElse {
      // Another table may have been made there since Delta looked, which goes on listing from the version that it knows.
      DeltaLog.invalidateCache(session, path)
      read(path, travel)
    }.getOrElse(throw new LockstepException(
      "LOCKSTEP_TABLE_FILES_MISSING",
      s"Table ${fullName(ident).mkString(".")} is in the catalog, but no table can be read in ${answer.get("location").asText}: " +
        "its folder, or files of its _delta_log, were deleted or moved. Bring them back from a copy; its data files may " +
        "still be there. DROP TABLE takes it out of the catalog, if nothing of it is needed.",
      "58030"
    ))
    val snapshot = DriverState.keep(session, bare.deltaLog, deltas)
    if (Overlay.isOfTransaction(path) && DeltaConfigs.SYMLINK_FORMAT_MANIFEST_ENABLED.fromMetaData(snapshot.metadata))
      Transactions.manifested(session, Overlay.head(path))
    val stored = texts(answer.get("name"))
    val described = CatalogTable(
      TableIdentifier(stored.last, Some(stored.init.mkString(".")), Some(catalogName)),
      if (answer.get("external").asBoolean) CatalogTableType.EXTERNAL else CatalogTableType.MANAGED,
      CatalogStorageFormat.empty.copy(locationUri = Some(path.toUri)),
      snapshot.schema,
      provider = Some("delta"),
      partitionColumnNames = snapshot.metadata.partitionColumns,
      properties = snapshot.metadata.configuration,
      ignoredProperties =
        Option(answer.get("table")).map(Scans.Key -> _.asText).toMap + (Scans.Touch -> loading.touch.toString) ++
          Reads.whileAnalyzing
    )
    // Without a `tableIdentifier`, of which Delta's Scala and Python API takes no more than two parts.
    DeltaInternals.described(bare, described, snapshot)
  }

  /** Delta's table and its snapshot; none if its log is not there, as far as Delta knows. */
  private def read(path: Path, travel: Option[DeltaTimeTravelSpec]): Option[(DeltaTableV2, Snapshot)] = {
    val now = System.currentTimeMillis()
    val table = DeltaTableV2(session, path, timeTravelOpt = travel)
    try Option.when(table.tableExists)((table, Snapshots.of(table, since = now)))
    catch { case _: FileNotFoundException => None } // what Delta says of a log that it knew before
  }

  override def tableExists(ident: Identifier): Boolean = ask("exists", names(ident): _*).get("exists").asBoolean

  override def listTables(namespace: Array[String]): Array[Identifier] =
    missingNamespace(namespace) {
      LockstepCatalog.listed(ask("tables", "namespace" -> namespace.toSeq))
    }

  // Changes of tables: Delta writes, Python says where and notices.

  /** Delta's own catalog, which creates, replaces and alters tables by path. */
  protected def delta: StagingTableCatalog = Internals.sessionCatalog(session) match {
    case catalog: StagingTableCatalog => catalog
    case other =>
      throw new LockstepException(
        "LOCKSTEP_CONFIGURATION",
        s"${CatalogSettings.OfSpark} must be ${CatalogSettings.Deltas}; it is ${other.getClass.getName}. " +
          "lockstep.configure() and lockstep.conf() set it. For its names to mean a lake's tables, set " +
          s"spark.sql.catalog.$catalogName.session-names to true.",
        "F0000"
      )
  }

  private def pathIdentifier(uri: String) = Identifier.of(Array("delta"), pathOf(uri).toString)

  /** Where Delta is about to work. A transaction's checkpoints would be thrown away, and written anew after COMMIT. */
  private def pathOf(uri: String): Path = {
    Uncheckpointed.here(Overlay.isOurs, Overlay.isOfTransaction)
    new Path(uri)
  }

  /** Where Delta has to create the table; refused here are tables that are not Delta's, or cannot lie where they are to. */
  protected def creating(ident: Identifier, mode: String, properties: util.Map[String, String]): Identifier =
    pathIdentifier(place(ident, mode, properties).get("uri").asText)

  private def place(ident: Identifier, mode: String, properties: util.Map[String, String]): JsonNode = {
    val values = properties.asScala
    place(ident, mode, values.get(TableCatalog.PROP_PROVIDER), values.get(TableCatalog.PROP_LOCATION))
  }

  private[spark] def place(
      ident: Identifier,
      mode: String,
      provider: Option[String],
      location: Option[String]): JsonNode =
    NewTables.announced(
      ask("create", names(ident) ++ Seq("mode" -> mode, "provider" -> provider, "location" -> location): _*))

  /** What Delta is told of a table that it is to make at a path, which is all that it has to know of where that is. */
  protected def asDelta(properties: util.Map[String, String]): util.Map[String, String] = {
    val out = new util.HashMap[String, String](properties)
    LockstepCatalog.OfPlace.foreach(out.remove)
    out.put(TableCatalog.PROP_PROVIDER, "delta")
    out
  }

  override def capabilities: util.Set[TableCatalogCapability] = delta.capabilities

  override def createTable(
      ident: Identifier,
      columns: Array[Column],
      parts: Array[Transform],
      properties: util.Map[String, String]): Table = {
    val isPlaced = properties.containsKey(TableCatalog.PROP_LOCATION)
    val target =
      if (isPlaced) takeIn(ident, columns, parts, properties.asScala.toMap)
      else Some(creating(ident, "create", properties))
    target.foreach(delta.createTable(_, columns, parts, asDelta(properties)))
    loadTable(ident)
  }

  /**
   * Has Python take in the table that is where the statement says, if it is as the statement says; where Delta has to
   * create one if none is there.
   */
  private def takeIn(
      ident: Identifier,
      columns: Array[Column],
      parts: Array[Transform],
      properties: Map[String, String]): Option[Identifier] = {
    val answer = ask(
      "create_at",
      names(ident) ++ Seq(
        "provider" -> properties.get(TableCatalog.PROP_PROVIDER),
        "location" -> properties(TableCatalog.PROP_LOCATION),
        "schema" -> Internals.schema(columns).json,
        "partitions" -> parts.toSeq.map(Internals.partitionColumn),
        "properties" -> (properties -- LockstepCatalog.NotStored)
      ): _*
    )
    Option(NewTables.announced(answer).get("uri")).map(uri => pathIdentifier(uri.asText))
  }

  override def createTable(
      ident: Identifier,
      schema: StructType,
      parts: Array[Transform],
      properties: util.Map[String, String]): Table =
    createTable(ident, Internals.columns(schema), parts, properties)

  override def stageCreate(
      ident: Identifier,
      columns: Array[Column],
      parts: Array[Transform],
      properties: util.Map[String, String]): StagedTable =
    delta.stageCreate(creating(ident, "create", properties), columns, parts, asDelta(properties))

  override def stageReplace(
      ident: Identifier,
      columns: Array[Column],
      parts: Array[Transform],
      properties: util.Map[String, String]): StagedTable =
    delta.stageReplace(creating(ident, "replace", properties), columns, parts, asDelta(properties))

  override def stageCreateOrReplace(
      ident: Identifier,
      columns: Array[Column],
      parts: Array[Transform],
      properties: util.Map[String, String]): StagedTable = {
    val answer = place(ident, "create_or_replace", properties)
    val target = pathIdentifier(answer.get("uri").asText)
    // Delta takes a path for no table of a catalog, and so would create where it has to replace.
    if (answer.has("missing")) delta.stageReplace(target, columns, parts, asDelta(properties))
    else delta.stageCreateOrReplace(target, columns, parts, asDelta(properties))
  }

  override def alterTable(ident: Identifier, changes: TableChange*): Table = {
    val answer = ask("resolve", names(ident) ++ Wanted(Append, writes = true).fields: _*)
    if (answer.get("missing").asBoolean) throw new NoSuchTableException(fullName(ident))
    delta.alterTable(pathIdentifier(answer.get("uri").asText), changes: _*)
    load(ident, Wanted(Append))
  }

  override def dropTable(ident: Identifier): Boolean = ask("drop", names(ident): _*).get("dropped").asBoolean

  override def renameTable(from: Identifier, to: Identifier): Unit =
    tell("rename", names(from) ++ Seq("to" -> (to.namespace.toSeq :+ to.name)): _*)

  // Namespaces.

  protected def missingNamespace[T](namespace: Array[String])(body: => T): T =
    try body
    catch {
      case e: LockstepException if e.getSqlState == "3F000" =>
        throw new NoSuchNamespaceException(catalogName +: namespace.toSeq)
    }

  private def texts(node: JsonNode): Seq[String] = node.elements().asScala.map(_.asText).toSeq

  override def listNamespaces(): Array[Array[String]] = listNamespaces(Array.empty)

  override def listNamespaces(parent: Array[String]): Array[Array[String]] =
    missingNamespace(parent) {
      ask("namespaces", "parent" -> parent.toSeq).get("namespaces").elements().asScala.map(texts(_).toArray).toArray
    }

  override def namespaceExists(namespace: Array[String]): Boolean =
    ask("namespace", "namespace" -> namespace.toSeq).get("exists").asBoolean

  override def loadNamespaceMetadata(namespace: Array[String]): util.Map[String, String] = {
    val answer = ask("namespace", "namespace" -> namespace.toSeq)
    if (!answer.get("exists").asBoolean) throw new NoSuchNamespaceException(catalogName +: namespace.toSeq)
    LockstepCatalog.textMap(answer.get("properties"))
  }

  /** A namespace that exists is told of in Spark's own way: to IF NOT EXISTS any other is a failure, and worth a stack trace. */
  override def createNamespace(namespace: Array[String], properties: util.Map[String, String]): Unit =
    try tell("create_namespace", "namespace" -> namespace.toSeq, "properties" -> properties.asScala)
    catch {
      case e: LockstepException if e.getSqlState == "42P06" =>
        throw new NamespaceAlreadyExistsException((catalogName +: namespace).toArray)
    }

  override def alterNamespace(namespace: Array[String], changes: NamespaceChange*): Unit = missingNamespace(namespace) {
    val set = changes.collect { case c: NamespaceChange.SetProperty => c.property -> c.value }.toMap
    val unset = changes.collect { case c: NamespaceChange.RemoveProperty => c.property }
    tell("alter_namespace", "namespace" -> namespace.toSeq, "set" -> set, "unset" -> unset)
  }

  override def dropNamespace(namespace: Array[String], cascade: Boolean): Boolean =
    try missingNamespace(namespace)(ask(
        "drop_namespace",
        "namespace" -> namespace.toSeq,
        "cascade" -> cascade).get("dropped").asBoolean)
    catch {
      case e: LockstepException if e.getSqlState == "2BP01" =>
        throw NonEmptyNamespaceException((catalogName +: namespace).toArray, "", None)
    }
}

private[spark] object LockstepCatalog {

  /** What Spark says among a new table's properties of where it is to lie. */
  private val OfPlace =
    Set(TableCatalog.PROP_LOCATION, TableCatalog.PROP_EXTERNAL, TableCatalog.PROP_IS_MANAGED_LOCATION)

  /** What Spark passes on among a new table's properties, and a Delta table does not have there. */
  private val NotStored = OfPlace + TableCatalog.PROP_PROVIDER + TableCatalog.PROP_OWNER

  /** The Lockstep catalogs of a session, with their settings. */
  def in(session: SparkSession): Map[String, CatalogOptions] =
    CatalogSettings.namesIn(session).map(session.sessionState.catalogManager.catalog).collect {
      case c: LockstepCatalog =>
        c.name -> c.told
    }.toMap

  /** Whether a session has a Lockstep catalog of this name. */
  private[spark] def isOneOf(session: SparkSession, name: String): Boolean =
    session.conf.get(CatalogSettings.Prefix + name, "") == CatalogSettings.ClassName

  /** Whether this session has a Lockstep catalog of this name. */
  def isOne(name: String): Boolean =
    SQLConf.get.getConfString(CatalogSettings.Prefix + name, "") == CatalogSettings.ClassName

  /** The names that an answer lists, in their namespace as it is stored. */
  private[spark] def listed(answer: JsonNode): Array[Identifier] = {
    val namespace = answer.get("namespace").elements().asScala.map(_.asText).toArray
    answer.get("names").elements().asScala.map(name => Identifier.of(namespace, name.asText)).toArray
  }

  /** The parts of a name, as SQL writes it. */
  private[spark] def quoted(parts: Seq[String]): String = parts.map(quoteIfNeeded).mkString(".")

  private[spark] def textMap(node: JsonNode): util.Map[String, String] = {
    val entries = node.properties().asScala.map(entry => entry.getKey -> entry.getValue.asText)
    new util.HashMap[String, String](entries.toMap.asJava)
  }
}
