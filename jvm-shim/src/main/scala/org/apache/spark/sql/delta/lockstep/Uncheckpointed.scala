package org.apache.spark.sql.delta.lockstep

import org.apache.hadoop.fs.Path
import org.apache.spark.internal.Logging
import org.apache.spark.sql.delta.{
  NoOpTransactionExecutionObserver,
  OptimisticTransaction,
  Snapshot,
  TransactionExecutionObserver
}
import org.apache.spark.sql.delta.hooks.CheckpointHook

import scala.util.control.NonFatal

/**
 * Has Delta write no checkpoint after the commits of some logs. Delta knows no setting for that: whether a checkpoint is due
 * follows from the table's metadata alone. But it lets an observer of the thread see each transaction as it starts, and a
 * transaction's hooks can be taken from it.
 *
 * In all logs of ours, that Delta cannot tell whether one is due makes no commit look as if it had failed.
 */
private class Uncheckpointed(isOurs: Path => Boolean, applies: Path => Boolean) extends TransactionExecutionObserver {
  override def startingTransaction(start: => OptimisticTransaction): OptimisticTransaction = {
    val started = start
    if (!isOurs(started.deltaLog.logPath)) started
    else {
      val ours = new CommittedAllTheSame(started)
      if (applies(started.deltaLog.logPath)) ours.unregisterPostCommitHooksWhere(_ == CheckpointHook)
      ours
    }
  }

  override def preparingCommit[T](prepare: => T): T = prepare
  override def beginDoCommit(): Unit = ()
  override def beginBackfill(): Unit = ()
  override def beginPostCommit(): Unit = ()
  override def transactionCommitted(): Unit = ()
  override def transactionAborted(): Unit = ()
  override def createChild(): TransactionExecutionObserver = this
}

/**
 * A transaction as Delta has just started it. Delta asks whether a checkpoint is due once the commit is written, and fails
 * where another writer has set an interval that is none: whoever tries again what seemed to fail has his rows twice.
 */
private class CommittedAllTheSame(started: OptimisticTransaction)
    extends OptimisticTransaction(started.deltaLog, started.catalogTable, started.snapshot)
    with Logging {

  override def isCheckpointNeeded(committedVersion: Long, postCommitSnapshot: Snapshot): Boolean =
    try super.isCheckpointNeeded(committedVersion, postCommitSnapshot)
    catch {
      case NonFatal(e) =>
        val table = started.deltaLog.dataPath
        logWarning(
          s"Version $committedVersion of $table is committed, and no checkpoint is written, for its property " +
            "delta.checkpointInterval is no number of versions. ALTER TABLE … SET or UNSET TBLPROPERTIES mends it",
          e
        )
        false
    }
}

object Uncheckpointed {

  /** From now on, for what this thread starts; an observer that somebody else has set stays. */
  def here(isOurs: Path => Boolean, applies: Path => Boolean): Unit =
    if (TransactionExecutionObserver.getObserver eq NoOpTransactionExecutionObserver)
      TransactionExecutionObserver.setObserver(new Uncheckpointed(isOurs, applies))
}
