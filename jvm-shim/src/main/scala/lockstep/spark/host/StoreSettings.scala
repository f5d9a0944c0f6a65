package lockstep.spark.host

import com.fasterxml.jackson.databind.JsonNode
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileSystem, Path}
import org.apache.spark.SparkContext
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.lockstep.Internals

import scala.jdk.CollectionConverters._

/**
 * What a catalog's `store.*` means to Hadoop. Python translates it; here it is put into the driver's Hadoop configuration, from
 * which every session has it, and every task that reads or writes files. What somebody has set there is kept.
 *
 * Hadoop opens one file system for each store and user, which goes on by the configuration that it was opened with, in the
 * driver and in each executor. So a store that was opened before by another configuration is told nothing.
 */
private[spark] object StoreSettings {

  /**
   * What came of it.
   *
   * @param kept settings that somebody has made, for which something was not put
   * @param others settings that another catalog has had put, and otherwise, with its name: the file system was not opened
   * @param untold why nothing was put that there was to put
   * @param files the file system of the root
   */
  final case class Told(
      kept: Seq[String],
      others: Map[String, String],
      untold: Option[String],
      files: Option[FileSystem])

  /** Opens the file system of a lake's root, told what there is to tell; refuses nothing. */
  def open(look: JsonNode, root: Path, session: SparkSession, isOfDriver: Boolean): Told = {
    val context = session.sparkContext.hadoopConfiguration
    def asItIs = Some(root.getFileSystem(Internals.hadoopConf(session, context)))
    val plan = Plan(look, context)
    if (plan.missing.isEmpty && plan.others.isEmpty) Told(plan.kept, Map.empty, None, asItIs)
    else if (!isOfDriver) Told(plan.kept, Map.empty, Some("session"), asItIs)
    else
      synchronized { // of two catalogs that say different things of one store, one is first
        val plan = Plan(look, context)
        if (plan.others.nonEmpty) Told(plan.kept, plan.others, None, None)
        else {
          val told = new Configuration(context)
          plan.put(told)
          val ofSession = Internals.hadoopConf(session, told) // which may say otherwise, for itself alone
          val files = root.getFileSystem(ofSession)
          val knows = Option(files.getConf).exists(conf =>
            plan.missing.keys.forall(name => conf.getRaw(name) == ofSession.getRaw(name)))
          if (knows) plan.put(context)
          Told(plan.kept, Map.empty, Option.unless(knows)("opened"), Some(files))
        }
      }
  }

  /** Whether what a catalog is set to of its stores is so for the whole driver, and not by a session alone. */
  def isOfDriver(context: SparkContext, catalog: CatalogOptions): Boolean = {
    val said = context.getConf.getAllWithPrefix(s"spark.sql.catalog.${catalog.name}.").toMap
    def ofStores(settings: Map[String, String]) = settings.filter { case (key, _) => Prefixes.exists(key.startsWith) }
    ofStores(said) == ofStores(catalog.settings)
  }

  private val Prefixes = Seq("store.", "locations.")

  /** How settings that were put here say where they are from; what follows is the catalog's name. */
  private val OfCatalog = "Lockstep's catalog "

  /** What is to be put into a configuration, what is kept there, and what another catalog has had put. */
  final private case class Plan(
      catalog: String,
      missing: Map[String, String],
      kept: Seq[String],
      others: Map[String, String]) {
    def put(conf: Configuration): Unit =
      missing.foreach { case (name, value) => conf.set(name, value, OfCatalog + catalog) }
  }

  private object Plan {
    def apply(look: JsonNode, conf: Configuration): Plan = {
      val groups = look.get("tells").elements().asScala.toSeq.map { group =>
        val settings = group.get("settings").properties().asScala.map(each => each.getKey -> each.getValue.asText).toMap
        settings -> texts(group.get("unless"))
      }
      val wanted = groups.flatMap(_._1).toMap
      def isAsWanted(name: String) = wanted.get(name).contains(conf.getRaw(name))
      // One of a user's own that says the same is in nobody's way.
      val kept = groups.map { case (settings, unless) =>
        settings -> unless.filter(isOfSomebody(conf)).filterNot(isAsWanted)
      }
      val free = kept.collect { case (settings, names) if names.isEmpty => settings }.flatten.toMap
      val others = texts(look.get("names")).filterNot(isAsWanted).flatMap(name => catalogOf(conf, name).map(name -> _))
      Plan(
        look.get("catalog").asText,
        free.filterNot { case (name, _) => isAsWanted(name) },
        kept.flatMap(_._2).distinct,
        others.toMap)
    }

    private def texts(node: JsonNode): Seq[String] = node.elements().asScala.map(_.asText).toSeq

    private def sources(conf: Configuration, name: String): Seq[String] =
      if (conf.getRaw(name) == null) Nil else Option(conf.getPropertySources(name)).fold(Seq(""))(_.toSeq)

    private def catalogOf(conf: Configuration, name: String): Option[String] =
      sources(conf, name).lastOption.filter(_.startsWith(OfCatalog)).map(_.stripPrefix(OfCatalog))

    /** Whether it was set by a person: not by Hadoop's defaults, not by Spark from the environment, and not here. */
    private def isOfSomebody(conf: Configuration)(name: String): Boolean =
      sources(conf, name).lastOption.exists(source =>
        !source.endsWith("-default.xml") && !source.startsWith(OfCatalog) &&
          !(source.startsWith("Set by Spark on ") && source.contains(" from AWS_")))
  }
}
