"""What Lockstep says where a Spark before the newest lacks something: sql/ has nothing of it, for 4.2 lacks nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from lockstep.catalog import TransactionalCatalog
from lockstep.timeline.entry import ViewDefinition
from tests.support.lakes import named
from tests.support.sparks import is_before


@pytest.mark.skipif(not is_before("4.2"), reason="this Spark reads the views of catalogs")
@pytest.mark.parametrize("query", ["SELECT * FROM lake.default.v", "SELECT 1 FROM lake.default.t JOIN lake.default.v"])
def test_a_view_that_a_newer_spark_made_is_refused_by_name(query: str, spark: Any, root: Path) -> None:
    spark.sql("CREATE TABLE lake.default.t AS SELECT 1 AS n")
    view = ViewDefinition(text="SELECT n FROM lake.default.t", schema='{"type":"struct","fields":[]}')
    TransactionalCatalog.open(str(root)).run(lambda tx: tx.changing().create_view(named("v"), view, replace=False))
    with pytest.raises(PySparkException, match=r"lake\.default\.v is a view, and Spark reads the views") as refused:
        spark.sql(query)
    assert refused.value.getSqlState() == "0A000"
    with pytest.raises(PySparkException) as missing:
        spark.sql("SELECT * FROM lake.default.w")
    assert missing.value.getSqlState() == "42P01"


@pytest.mark.skipif(not is_before("4.2"), reason="this Spark calls the functions of catalogs")
def test_a_function_of_a_catalog_is_refused(spark: Any) -> None:
    with pytest.raises(PySparkException, match="does not support CREATE FUNCTION"):
        spark.sql("CREATE FUNCTION lake.default.f(x INT) RETURNS INT RETURN x")
    with pytest.raises(PySparkException) as missing:
        spark.sql("SELECT lake.default.f(1)")
    assert missing.value.getSqlState() == "42883"


def test_the_log_store_for_s3_writes_nothing_where_there_is_no_conditional_create(spark: Any, tmp_path: Path) -> None:
    """As in every S3A before Hadoop 3.4.2: no file system of Spark's own jars has it."""
    java = spark._jvm
    conf = spark._jsc.hadoopConfiguration()
    store = java.lockstep.spark.ConditionalS3LogStore(conf)
    actions = java.java.util.List.of("{}").iterator()
    path = java.org.apache.hadoop.fs.Path((tmp_path / "_delta_log" / f"{1:020d}.json").as_uri())
    with pytest.raises(PySparkException, match=r"hadoop-aws 3\.4\.2 or newer") as refused:
        store.write(path, actions, False, conf)
    assert refused.value.getSqlState() == "0A000"
    assert not list(tmp_path.rglob("*.json"))
