package org.apache.spark.sql.delta.lockstep

import org.apache.hadoop.fs.Path
import org.apache.spark.sql.delta.{
  NoOpTransactionExecutionObserver,
  OptimisticTransaction,
  TransactionExecutionObserver
}
import org.apache.spark.sql.delta.hooks.CheckpointHook

/**
 * Has Delta write no checkpoint after the commits of some logs. Delta knows no setting for that: whether a checkpoint is due
 * follows from the table's metadata alone. But it lets an observer of the thread see each transaction as it starts, and a
 * transaction's hooks can be taken from it.
 */
private class Uncheckpointed(applies: Path => Boolean) extends TransactionExecutionObserver {
  override def startingTransaction(start: => OptimisticTransaction): OptimisticTransaction = {
    val started = start
    if (applies(started.deltaLog.logPath)) started.unregisterPostCommitHooksWhere(_ == CheckpointHook)
    started
  }

  override def preparingCommit[T](prepare: => T): T = prepare
  override def beginDoCommit(): Unit = ()
  override def beginBackfill(): Unit = ()
  override def beginPostCommit(): Unit = ()
  override def transactionCommitted(): Unit = ()
  override def transactionAborted(): Unit = ()
  override def createChild(): TransactionExecutionObserver = this
}

object Uncheckpointed {

  /** From now on, for what this thread starts; an observer that somebody else has set stays. */
  def here(applies: Path => Boolean): Unit =
    if (TransactionExecutionObserver.getObserver eq NoOpTransactionExecutionObserver)
      TransactionExecutionObserver.setObserver(new Uncheckpointed(applies))
}
