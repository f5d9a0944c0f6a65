package org.apache.spark.scheduler.lockstep

import java.util.concurrent.CopyOnWriteArrayList

import scala.jdk.CollectionConverters._

import org.apache.spark.{SparkConf, SparkContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.scheduler.{AsyncEventQueue, LiveListenerBus, SparkListener, SparkListenerEvent}

/**
 * Sees Spark's events in the very thread that posts them, before that goes on. The other queues of the bus hand events on
 * later: they may drop some, and fall behind when one of their listeners is slow.
 */
private[spark] object Witness {
  private val Name = "lockstep"

  /** Has every event of a context shown to `see`, once. It must be quick; what it throws, the poster of the event gets. */
  def install(context: SparkContext, see: SparkListenerEvent => Unit): Unit = synchronized {
    val field = classOf[LiveListenerBus].getDeclaredField("queues")
    field.setAccessible(true)
    val queues = field.get(context.listenerBus).asInstanceOf[CopyOnWriteArrayList[AsyncEventQueue]]
    if (!queues.asScala.exists(_.name == Name)) {
      val _ = queues.add(new Synchronous(context.conf, context.listenerBus, see))
    }
  }

  /** What a job that has just begun computes; asked by the thread that posts its begin. */
  def computed(context: SparkContext, job: Int): Option[RDD[_]] =
    context.dagScheduler.jobIdToActiveJob.get(job).map(_.finalStage.rdd)

  /**
   * Ends such a job; asked by the same thread, which submits the job's tasks next, and finds none. To cancel a job as others
   * do is a request to that thread, which it would come to when tasks have started.
   */
  def end(context: SparkContext, job: Int, reason: String): Unit =
    context.dagScheduler.handleJobCancellation(job, Some(reason))

  private class Synchronous(conf: SparkConf, bus: LiveListenerBus, see: SparkListenerEvent => Unit)
      extends AsyncEventQueue(Name, conf, bus.metrics, bus) {
    addListener(new SparkListener {}) // the bus drops a queue without any

    override def post(event: SparkListenerEvent): Unit = see(event)

    override private[scheduler] def start(context: SparkContext): Unit = ()

    override private[scheduler] def stop(): Unit = ()
  }
}
