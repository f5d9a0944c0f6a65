package lockstep.spark

import org.apache.spark.sql.SparkSessionExtensions

private[spark] object Extensions {

  /** The isolation level of a session's transactions that do not say one, instead of the catalog's. */
  val Isolation = "lockstep.isolation"
}

/** `spark.sql.extensions=…,lockstep.spark.Extensions`: after Delta's, so that Lockstep's parser is asked first. */
class Extensions extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit = {
    extensions.injectParser { (session, delegate) =>
      Sessions.add(session)
      new TransactionParser(delegate)
    }
    extensions.injectHintResolutionRule(StatementRule(_))
    extensions.injectCheckRule(TransactionGuard(_))
    extensions.injectOptimizerRule(ReadRecorder(_))
  }
}
