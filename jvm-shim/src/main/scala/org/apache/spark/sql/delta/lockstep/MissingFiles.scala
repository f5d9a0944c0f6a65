package org.apache.spark.sql.delta.lockstep

import org.apache.hadoop.fs.Path
import org.apache.spark.paths.SparkPath
import org.apache.spark.sql.delta.Snapshot
import org.apache.spark.sql.delta.implicits._
import org.apache.spark.util.SerializableConfiguration

/** Which data files of a table, and which deletion vectors, are not where its log says that they are. */
object MissingFiles {

  /** Some of them, if any; each is looked for once, by the executors, as Delta's RESTORE does. */
  def of(snapshot: Snapshot, most: Int): Seq[String] = {
    val folder = snapshot.deltaLog.dataPath.toString
    val conf = new SerializableConfiguration(snapshot.deltaLog.newDeltaHadoopConf())
    snapshot.allFiles.mapPartitions { files =>
      val root = new Path(folder)
      files.flatMap { file =>
        val data = new Path(root, SparkPath.fromUrlString(file.path).toPath)
        data +: Option(file.deletionVector).filter(_.isOnDisk).map(_.absolutePath(root)).toSeq
      }.filterNot(path => path.getFileSystem(conf.value).exists(path)).map(_.toString)
    }.take(most).toSeq
  }
}
