package lockstep.spark

import java.util.concurrent.ThreadFactory

/** Makes threads that keep no JVM from ending. */
private[spark] object Daemons {
  def named(name: String): ThreadFactory = work => {
    val thread = new Thread(work, name)
    thread.setDaemon(true)
    thread
  }
}
