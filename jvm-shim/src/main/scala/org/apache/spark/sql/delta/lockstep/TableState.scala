package org.apache.spark.sql.delta.lockstep

import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.delta.SnapshotState
import org.apache.spark.sql.delta.actions.{
  Action,
  AddFile,
  DomainMetadata,
  Metadata,
  Protocol,
  RemoveFile,
  SetTransaction,
  SingleAction
}
import org.apache.spark.sql.delta.stats.{DeletedRecordCountsHistogramUtils, FileSizeHistogramUtils}

/** What the log of a table comes to at a version: the actions of a checkpoint there, in the driver's memory. */
final private[lockstep] class TableState(val actions: IndexedSeq[Action]) {

  /** The actions as Delta's `Snapshot.stateDF` has them: Spark's optimizer evaluates a query of them, and runs no job. */
  lazy val relation: LocalRelation = {
    val serialize = TableState.encoder.createSerializer()
    LocalRelation(TableState.attributes, actions.map(action => serialize(action.wrap).copy()))
  }

  /** What it takes of the heap, estimated: texts are held as they are, in `relation`, and once more as parsed. */
  lazy val bytes: Long = actions.map { action =>
    val texts = action match {
      case add: AddFile => add.path.length + Option(add.stats).fold(0)(_.length)
      case remove: RemoveFile => remove.path.length
      case metadata: Metadata => Option(metadata.schemaString).fold(0)(_.length)
      case _ => 0
    }
    TableState.ActionBytes + 3L * texts
  }.sum

  /** As Delta's own aggregation of `Snapshot.stateDF`: see `SnapshotStateManager.aggregationsToComputeState`. */
  def summary(hasSizes: Boolean, hasVectors: Boolean, hasVectorSizes: Boolean): SnapshotState = {
    val adds = of[AddFile]
    val deleted = adds.map(add => Option(add.deletionVector).fold(0L)(_.cardinality))
    val sizes = Option.when(hasSizes)(FileSizeHistogramUtils.emptyHistogram)
    sizes.foreach(histogram => adds.foreach(add => histogram.insert(add.size)))
    val vectorSizes = Option.when(hasVectors && hasVectorSizes)(DeletedRecordCountsHistogramUtils.emptyHistogram)
    vectorSizes.foreach(histogram => deleted.foreach(histogram.insert))
    val transactions = of[SetTransaction]
    SnapshotState(
      sizeInBytes = adds.map(_.size).sum,
      numOfSetTransactions = transactions.size.toLong,
      numOfFiles = adds.size.toLong,
      numOfRemoves = of[RemoveFile].size.toLong,
      numDeletedRecordsOpt = Option.when(hasVectors)(deleted.sum),
      numDeletionVectorsOpt = Option.when(hasVectors)(adds.count(_.deletionVector != null).toLong),
      numOfMetadata = of[Metadata].size.toLong,
      numOfProtocol = of[Protocol].size.toLong,
      setTransactions = transactions,
      domainMetadata = of[DomainMetadata],
      metadata = of[Metadata].lastOption.orNull,
      protocol = of[Protocol].lastOption.orNull,
      fileSizeHistogram = sizes,
      deletedRecordCountsHistogramOpt = vectorSizes
    )
  }

  private def of[A <: Action: reflect.ClassTag]: IndexedSeq[A] = actions.collect { case action: A => action }
}

private[lockstep] object TableState {

  /** What an action takes beside its texts, in bytes. */
  val ActionBytes = 1000L

  private lazy val encoder = ExpressionEncoder[SingleAction]()
  private lazy val attributes = DataTypeUtils.toAttributes(encoder.schema)
}
