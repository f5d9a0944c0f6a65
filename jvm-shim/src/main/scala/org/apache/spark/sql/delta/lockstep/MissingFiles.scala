package org.apache.spark.sql.delta.lockstep

import org.apache.hadoop.fs.Path
import org.apache.spark.paths.SparkPath
import org.apache.spark.sql.Dataset
import org.apache.spark.sql.delta.Snapshot
import org.apache.spark.sql.delta.actions.AddFile
import org.apache.spark.sql.delta.implicits._
import org.apache.spark.sql.functions.col
import org.apache.spark.util.SerializableConfiguration

/** Which data files of a table, and which deletion vectors, are not where its log says that they are. */
object MissingFiles {

  /**
   * Some of them, if any; each is looked for once, by the executors, as Delta's RESTORE does.
   *
   * @param beside
   *   what has files of which nobody asks: a version of the same table that is not to change where it has the same
   */
  def of(snapshot: Snapshot, most: Int, beside: Option[Snapshot] = None): Seq[String] = {
    val folder = snapshot.deltaLog.dataPath.toString
    val conf = new SerializableConfiguration(snapshot.deltaLog.newDeltaHadoopConf())
    val asked = beside.fold(snapshot.allFiles)(another => others(snapshot, another))
    asked.mapPartitions { files =>
      val root = new Path(folder)
      files.flatMap { file =>
        val data = new Path(root, SparkPath.fromUrlString(file.path).toPath)
        data +: Option(file.deletionVector).filter(_.isOnDisk).map(_.absolutePath(root)).toSeq
      }.filterNot(path => path.getFileSystem(conf.value).exists(path)).map(_.toString)
    }.take(most).toSeq
  }

  private def others(snapshot: Snapshot, another: Snapshot): Dataset[AddFile] = {
    val (these, those) = (snapshot.allFiles.toDF().as("these"), another.allFiles.toDF().as("those"))
    def same(column: String) = col(s"these.$column") <=> col(s"those.$column")
    these.join(those, same("path") && same("deletionVector"), "left_anti").as[AddFile]
  }
}
