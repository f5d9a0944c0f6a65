package lockstep.spark.catalog

/** `CREATE TABLE … LIKE …` is not a catalog's affair before Spark 4.2. */
private[spark] trait CreateTableLike
