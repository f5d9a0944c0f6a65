"""What names mean, and how long they may be: what is too long is refused as a name, never as a file of the store."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException


@pytest.mark.parametrize("letter", ["n", "表"])
def test_names_of_255_characters_work_and_longer_ones_are_refused(letter: str, spark: Any) -> None:
    longest, longer = letter * 255, letter * 256
    spark.sql(f"CREATE NAMESPACE `{longest}`")
    name = f"`{longest}`.`{longest}`"
    spark.sql(f"CREATE TABLE {name} AS SELECT 1 AS id")
    spark.sql("BEGIN")
    spark.sql(f"INSERT INTO {name} VALUES (2)")
    spark.sql(f"CREATE TABLE `{longest[1:]}` (id INT)")
    spark.sql("COMMIT")
    assert spark.table(name).count() == 2
    refused = [
        f"CREATE TABLE `{longer}` (id INT)",
        f"CREATE TABLE `{longer}` AS SELECT 1 AS id",
        f"CREATE NAMESPACE `{longer}`",
        f"ALTER TABLE {name} RENAME TO `{longest}`.`{longer}`",
    ]
    for statement in refused:
        with pytest.raises(PySparkException, match="at most 255 fit") as caught:
            spark.sql(statement)
        assert caught.value.getSqlState() == "42622"


def test_a_namespace_that_exists_is_told_of_as_spark_does(spark: Any) -> None:
    """Of any other error IF NOT EXISTS leaves a stack trace in the log."""
    spark.sql("CREATE NAMESPACE ns")
    spark.sql("CREATE NAMESPACE IF NOT EXISTS ns")
    with pytest.raises(PySparkException, match="`ns`") as caught:
        spark.sql("CREATE NAMESPACE ns")
    assert (caught.value.getCondition(), caught.value.getSqlState()) == ("SCHEMA_ALREADY_EXISTS", "42P06")


@pytest.mark.filterwarnings("ignore:`dbName` has been deprecated:FutureWarning")
def test_names_without_a_catalog_are_looked_up_in_the_current_one(spark: Any) -> None:
    spark.sql("CREATE NAMESPACE ns")
    spark.sql("CREATE TABLE ns.t AS SELECT 1 AS id")
    spark.sql("CREATE TABLE only_here AS SELECT 1 AS id")
    catalog = spark.catalog
    for end in ("BEGIN", "COMMIT"):
        assert catalog.tableExists("t", "ns")
        assert not catalog.tableExists("t", "default")
        assert catalog.tableExists("only_here", "default")
        assert not catalog.tableExists("spark_catalog.default.only_here"), "said in full"
        assert catalog.tableExists("only_here")
        # Spark 4.2 cannot bring a list of tables to Python (42846), of no catalog.
        listed = spark._jsparkSession.catalog().listTables
        assert (listed("ns").count(), listed("default").count(), listed().count()) == (1, 1, 1)
        assert catalog.databaseExists("ns")
        assert catalog.getDatabase("default").catalog == "lake"
        spark.sql(end)
    spark.sql("USE spark_catalog")
    assert not catalog.tableExists("only_here", "default")
    assert catalog.tableExists("lake.ns.t")
