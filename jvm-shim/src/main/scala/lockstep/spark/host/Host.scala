package lockstep.spark.host

/** What decides: Python's `TransactionalCatalog` behind one method. A request and its answer are JSON objects. */
private[spark] trait Host {
  def call(request: String): String
}
