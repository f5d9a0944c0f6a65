package lockstep.spark

import org.apache.spark.sql.SparkSessionExtensions

/** `spark.sql.extensions=…,lockstep.spark.Extensions`: after Delta's, so that Lockstep's parser is asked first. */
class Extensions extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit = {
    extensions.injectParser { (session, delegate) =>
      Sessions.add(session)
      new TransactionParser(delegate)
    }
    extensions.injectHintResolutionRule(StatementRule(_))
    extensions.injectCheckRule(TransactionGuard(_))
  }
}
