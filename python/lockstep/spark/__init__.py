"""Lockstep in Spark: the session, the bridge to the shim, and the jars. The only package that imports pyspark."""
