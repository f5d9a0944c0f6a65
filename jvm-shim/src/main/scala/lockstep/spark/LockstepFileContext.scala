package lockstep.spark

import java.net.URI

import lockstep.spark.overlay.Overlay
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{DelegateToFileSystem, FileSystem}

/**
 * The overlay for who asks Hadoop for a `FileContext`, as Delta does where it writes a checksum: without it Spark warns at
 * each table that its files may not be safe. It is [[LockstepFileSystem]], and allows what that allows.
 *
 * Hadoop keeps statistics of each authority that an `AbstractFileSystem` is constructed with, for ever, and each
 * transaction has one of its own. So all are constructed with one URI, and then are at their own.
 */
class LockstepFileContext private (overlay: FileSystem, configuration: Configuration)
    extends DelegateToFileSystem(LockstepFileContext.Shared, overlay, configuration, Overlay.Scheme, false) {

  /** As Hadoop constructs it, by reflection. */
  def this(name: URI, configuration: Configuration) = this(new LockstepFileContext.At(name), configuration)

  override def getUri: URI = overlay.getUri
}

private object LockstepFileContext {
  val Shared: URI = URI.create(s"${Overlay.Scheme}:///")

  /** An overlay that is at its own URI, whichever it is initialized with. */
  class At(name: URI) extends LockstepFileSystem {
    override def initialize(ignored: URI, configuration: Configuration): Unit = super.initialize(name, configuration)
  }
}
