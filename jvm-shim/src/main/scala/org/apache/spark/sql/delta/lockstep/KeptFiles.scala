package org.apache.spark.sql.delta.lockstep

import java.io.File

import org.apache.hadoop.fs.Path
import org.apache.spark.paths.SparkPath
import org.apache.spark.sql.delta.actions.{AddCDCFile, AddFile}
import org.apache.spark.sql.delta.catalog.DeltaTableV2
import org.apache.spark.sql.delta.commands.VacuumCommand
import org.apache.spark.sql.delta.implicits._
import org.apache.spark.sql.delta.util.DeltaFileOperations
import org.apache.spark.sql.delta.{DeltaErrors, DeltaTableUtils, Snapshot}
import org.apache.spark.sql.functions.{col, udf}
import org.apache.spark.sql.{DataFrame, Dataset, Encoders, Row, SparkSession}
import org.apache.spark.util.SerializableConfiguration

import io.delta.tables.execution.VacuumTableCommand

/**
 * VACUUM of a table some of whose older versions or files are kept. Delta knows no way to keep one, but takes an inventory of what
 * is in the table's folder in place of its own listing: this one has everything but the files of those versions.
 */
object KeptFiles {

  /**
   * Does what the command says, and lets the files of some versions stay. Its answer is Delta's.
   *
   * @param first this version and all later ones stay
   * @param alone and these
   * @param files paths within the table's folder that others need
   * @param written what was written at this time or later stays, in ms since 1970
   * @param real where the table's folder really is: an inventory names files as the store has them
   */
  def vacuum(
      session: SparkSession,
      table: DeltaTableV2,
      command: VacuumTableCommand,
      first: Option[Long],
      alone: Seq[Long],
      files: Seq[String],
      written: Long,
      real: Path): Seq[Row] = {
    val inventory = command.inventoryTable
      .map(session.sessionState.analyzer.execute)
      .map(VacuumCommand.getDeltaTable(_, "VACUUM").toDf(session))
      .orElse(command.inventoryQuery.map(session.sql))
      .map(whole => seenFromHere(table, real, checked(whole)))
    val everything = inventory.getOrElse(listed(session, table)).where(col("modificationTime") < written)
    val single = (alone ++ first).map(version => needed(table.deltaLog.getSnapshotAt(version)))
    val kept = (single ++ first.map(since(session, table, _)) :+ others(session, table, files)).reduce(_ union _)
    val rest = without(session, everything, kept)
    // LITE looks at the log alone, and would remember that it has looked at all up to some version.
    VacuumCommand.gc(session, table, command.dryRun, command.horizonHours, Some(rest), Some("FULL")).collect().toSeq
  }

  /** An inventory, without rows that name nothing; refused as Delta refuses one that has not its columns. */
  private def checked(inventory: DataFrame): DataFrame = {
    val wanted = VacuumCommand.INVENTORY_SCHEMA
    val isWhole = wanted.forall(column =>
      inventory.schema.exists(each => each.name == column.name && each.dataType == column.dataType))
    if (isWhole) inventory.where(col("path").isNotNull) else throw DeltaErrors.invalidInventorySchema(wanted.treeString)
  }

  /** An inventory with the files of the table's folder named as this side names them; Delta takes no others for the table's. */
  private def seenFromHere(table: DeltaTableV2, real: Path, inventory: DataFrame): DataFrame = {
    val conf = table.deltaLog.newDeltaHadoopConf()
    def whole(folder: Path) = s"${folder.getFileSystem(conf).makeQualified(folder)}/"
    val (there, here) = (whole(real), whole(table.deltaLog.dataPath))
    val named =
      udf((path: String) => if (path.startsWith(there)) here + path.drop(there.length) else path)
    inventory.withColumn("path", named(col("path")))
  }

  /** All that Delta itself would list in the folder; names that it hides stay hidden at every depth. */
  private def listed(session: SparkSession, table: DeltaTableV2): DataFrame = {
    val log = table.deltaLog
    val conf = session.sparkContext.broadcast(new SerializableConfiguration(log.newDeltaHadoopConf()))
    val folder = log.dataPath.getFileSystem(conf.value.value).makeQualified(log.dataPath).toString
    val partitions = table.update().metadata.partitionSchema.fieldNames.toSeq
    def isHidden(name: String): Boolean = DeltaTableUtils.isHiddenDirectory(partitions, name)
    val parallelism = session.sessionState.conf.parallelPartitionDiscoveryParallelism
    DeltaFileOperations.recursiveListDirs(session, Seq(folder), conf, isHidden, isHidden, Some(parallelism)).toDF()
  }

  /** The files of a snapshot, and the folders that hold them, each as the path that an inventory has, without the scheme. */
  private def needed(snapshot: Snapshot): Dataset[String] = {
    val folder = snapshot.deltaLog.dataPath.toString
    snapshot.allFiles.flatMap(file => KeptFiles.paths(new Path(folder), file))
  }

  /** Files that others need, and the folders that hold them, as `needed` has its own. */
  private def others(session: SparkSession, table: DeltaTableV2, files: Seq[String]): Dataset[String] = {
    val folder = table.deltaLog.dataPath.toUri.getPath
    session.createDataset(files.flatMap(path => withFolders(folder, s"$folder/$path")).distinct)(Encoders.STRING)
  }

  /** The files that commits behind a version brought, of rows and of changes: with those that it has, all of later ones. */
  private def since(session: SparkSession, table: DeltaTableV2, version: Long): Dataset[String] = {
    val folder = table.deltaLog.dataPath
    val found = table.deltaLog.getChanges(version, table.catalogTable).flatMap { case (_, actions) =>
      actions.iterator.flatMap {
        case file: AddFile => paths(folder, file)
        case file: AddCDCFile => pathsOf(folder, file.path)
        case _ => Nil
      }
    }
    session.createDataset(found.toSet.toSeq)(Encoders.STRING)
  }

  private def pathsOf(folder: Path, path: String): Seq[String] =
    Seq(SparkPath.fromUrlString(path).toPath, new Path(path))
      .map(new Path(folder, _).toUri.getPath)
      .distinct
      .flatMap(withFolders(folder.toUri.getPath, _))

  private def paths(folder: Path, file: AddFile): Seq[String] = {
    // Some tables have paths that are not encoded as they should be: both readings are kept.
    val data = Seq(SparkPath.fromUrlString(file.path).toPath, new Path(file.path)).map(new Path(folder, _))
    val vector = Option(file.deletionVector).filter(_.isOnDisk).map(_.absolutePath(folder))
    (data ++ vector).map(_.toUri.getPath).distinct.flatMap(withFolders(folder.toUri.getPath, _)).distinct
  }

  private def withFolders(folder: String, file: String): Seq[String] = {
    val listed = if (file.startsWith(s"$folder/")) Some(file) else throughLinks(folder, file)
    listed.toSeq.flatMap(
      Iterator.iterate(_)(path => path.take(path.lastIndexOf('/'))).takeWhile(_.length > folder.length))
  }

  /** What a file in a folder is called there, if a log names it by another way; None: another table's, which a clone shares. */
  private def throughLinks(folder: String, file: String): Option[String] = {
    val (really, itsFolder) = (new File(file).getCanonicalPath, new File(folder).getCanonicalPath)
    Option.when(really.startsWith(s"$itsFolder/"))(folder + really.drop(itsFolder.length))
  }

  private def without(session: SparkSession, inventory: DataFrame, kept: Dataset[String]): DataFrame = {
    val schema = VacuumCommand.INVENTORY_SCHEMA
    val path = udf((path: String) => new Path(path).toUri.getPath)
    val rest = inventory
      .select(schema.fieldNames.toSeq.map(col): _*)
      .join(kept.distinct().toDF("kept"), path(col("path")) === col("kept"), "left_anti")
    session.createDataFrame(rest.rdd, schema)
  }
}
