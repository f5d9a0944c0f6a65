package lockstep.spark.transactions

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.locks.ReentrantLock

/** A lock for each name, as long as somebody holds or wants it. */
private[spark] class Locks {
  private class Lock extends ReentrantLock {
    var users = 0 // changed only while the map holds its entry
  }

  private val locks = new ConcurrentHashMap[String, Lock]()

  /** Runs something while no other thread runs anything under the same name. */
  def holding[T](name: String)(body: => T): T = {
    val lock = locks.compute(
      name,
      (_, there) => {
        val lock = Option(there).getOrElse(new Lock)
        lock.users += 1
        lock
      })
    lock.lock()
    try body
    finally {
      lock.unlock()
      val _ = locks.computeIfPresent(
        name,
        (_, lock) => {
          lock.users -= 1
          if (lock.users == 0) null else lock
        })
    }
  }
}
