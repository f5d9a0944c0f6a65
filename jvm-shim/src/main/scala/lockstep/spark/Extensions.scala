package lockstep.spark

import io.delta.sql.DeltaSparkSessionExtension
import lockstep.spark.analysis.{
  AnalyzedRule,
  FilePathRule,
  PastViews,
  SessionTables,
  SettingsGuard,
  ShownRule,
  StatementRule,
  TableFunctionCalls,
  TransactionGuard
}
import lockstep.spark.catalog.CatalogSessions
import lockstep.spark.execution.{Clients, Executions}
import lockstep.spark.parser.TransactionParser
import lockstep.spark.reads.{CachedTables, PlaceRecorder, ReadRecorder}
import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.lockstep.Internals

/**
 * `spark.sql.extensions=lockstep.spark.Extensions`. Delta's own extension may stand before it or be left out; Lockstep's
 * parser must be asked first.
 */
class Extensions extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit = {
    Versions.check()
    Internals.activeContext.foreach { context =>
      if (!ImpliedSettings.complete(context).contains(ImpliedSettings.DeltaExtension))
        new DeltaSparkSessionExtension()(extensions)
      context.removeSparkListener(Clients) // each first session of a context applies the extensions
      context.addSparkListener(Clients)
      Executions.watch(context)
    }
    extensions.injectParser { (session, delegate) =>
      CatalogSessions.add(session)
      new TransactionParser(session, delegate)
    }
    extensions.injectHintResolutionRule(StatementRule(_))
    extensions.injectResolutionRule(_ => PastViews)
    extensions.injectResolutionRule(TableFunctionCalls(_))
    extensions.injectPostHocResolutionRule(_ => ShownRule)
    extensions.injectPostHocResolutionRule(_ => FilePathRule)
    extensions.injectPostHocResolutionRule(SessionTables(_))
    extensions.injectPostHocResolutionRule(_ => AnalyzedRule)
    extensions.injectCheckRule(TransactionGuard(_))
    extensions.injectCheckRule(SettingsGuard(_))
    extensions.injectPlanNormalizationRule(CachedTables(_))
    extensions.injectOptimizerRule(ReadRecorder(_, LockstepCatalog.in))
    extensions.injectPlannerStrategy(PlaceRecorder(_))
  }
}
