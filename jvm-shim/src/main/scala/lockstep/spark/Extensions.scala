package lockstep.spark

import org.apache.spark.sql.{SparkSession, SparkSessionExtensions}

private[spark] object Extensions {

  /** What a session sets for its transactions (`SET lockstep.isolation = …`), by Python's names: before the catalog's. */
  def settings(session: SparkSession): Map[String, Any] =
    Seq("isolation", "record_reads", "on_statement_error").flatMap(name =>
      session.conf.getOption(s"lockstep.$name").map(name -> _)).toMap
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
