"""What crosses the boundary of a transaction, or of what it can undo, is right or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import lockstep
from lockstep.errors import ActiveTransactionError
from lockstep.spark.session import from_spark


def refused(error: PySparkException) -> type | None:
    """Return the class of Lockstep's error behind Spark's."""
    ours = from_spark(error)
    return None if ours is None else type(ours)


def test_a_dataframe_of_an_ended_transaction_is_refused(spark: Any) -> None:
    """Made inside and used after COMMIT it would show the state at BEGIN: an error says to make it again."""
    spark.sql("CREATE TABLE lake.default.t AS SELECT 1 AS id")
    with lockstep.transaction(spark):
        spark.sql("INSERT INTO lake.default.t VALUES (2)")
        inside = spark.table("lake.default.t")
        assert inside.count() == 2
    with pytest.raises(Exception, match="has ended"):
        inside.count()
    assert spark.table("lake.default.t").count() == 2


def test_a_dataframe_from_before_begin_cannot_write(spark: Any) -> None:
    """A DeltaTable that was made outside would write outside: refused, and nothing of it is left."""
    from delta.tables import DeltaTable

    spark.sql("CREATE TABLE lake.default.t AS SELECT 1 AS id")
    before = DeltaTable.forName(spark, "lake.default.t")
    spark.sql("BEGIN")
    with pytest.raises(PySparkException) as error:
        before.update(set={"id": "id + 1"})
    spark.sql("ROLLBACK")
    assert refused(error.value) is ActiveTransactionError
    assert [row.id for row in spark.table("lake.default.t").collect()] == [1]


def test_a_stream_is_refused_inside(spark: Any, tmp_path: Path) -> None:
    """Its checkpoint would survive a ROLLBACK of its rows."""
    spark.sql("CREATE TABLE lake.default.t AS SELECT 1 AS id")
    spark.sql("BEGIN")
    with pytest.raises(PySparkException) as error:
        spark.readStream.table("lake.default.t")
    spark.sql("ROLLBACK")
    assert refused(error.value) is ActiveTransactionError


def test_a_stream_outside_reads_and_writes(spark: Any, tmp_path: Path) -> None:
    """Streams work on tables of the catalog, each micro-batch an autocommitted statement."""
    spark.sql("CREATE TABLE lake.default.source AS SELECT id FROM range(3)")
    source = spark.readStream.table("lake.default.source")
    sink = (
        source.writeStream.format("delta").option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    )
    sink.toTable("lake.default.sink").awaitTermination()
    assert spark.table("lake.default.sink").count() == 3


def test_save_as_table_needs_no_format(spark: Any) -> None:
    """`saveAsTable` without a format makes a Delta table, though Spark's default format is another."""
    spark.range(2).write.saveAsTable("lake.default.t")
    spark.range(3).write.mode("overwrite").saveAsTable("lake.default.t")
    assert spark.sql("DESCRIBE DETAIL lake.default.t").collect()[0].format == "delta"
    assert spark.table("lake.default.t").count() == 3


def test_the_change_feed_is_read_by_name(spark: Any) -> None:
    """`table_changes` finds a table of the catalog, and sees a transaction's commit."""
    spark.sql("CREATE TABLE lake.default.t (id INT) TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    with lockstep.transaction(spark):
        spark.sql("INSERT INTO lake.default.t VALUES (1), (2)")
        spark.sql("UPDATE lake.default.t SET id = 3 WHERE id = 2")
    changes = spark.sql("SELECT _change_type, id FROM table_changes('lake.default.t', 1)").collect()
    assert sorted(tuple(row) for row in changes) == [
        ("insert", 1),
        ("insert", 2),
        ("update_postimage", 3),
        ("update_preimage", 2),
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE FUNCTION spark_catalog.default.f AS 'x.Y'",
        "CREATE VIEW spark_catalog.default.v AS SELECT 1 AS one",
        "CREATE TABLE spark_catalog.default.outside (id INT) USING parquet",
        "ALTER TABLE spark_catalog.default.there SET TBLPROPERTIES (a = 'b')",
        "DROP TABLE spark_catalog.default.there",
    ],
)
def test_other_catalogs_are_refused_inside(spark: Any, statement: str) -> None:
    """What a ROLLBACK could not take back is refused at the statement."""
    spark.sql("CREATE TABLE IF NOT EXISTS spark_catalog.default.there (id INT) USING parquet")
    spark.sql("BEGIN")
    with pytest.raises(PySparkException) as error:
        spark.sql(statement)
    spark.sql("ROLLBACK")
    assert refused(error.value) is ActiveTransactionError


@pytest.mark.parametrize(
    "statement",
    [
        "SHOW TABLES IN lake.default",
        "SET spark.sql.shuffle.partitions=1",
        "CREATE TEMP VIEW v1 AS SELECT 1",
        "USE lake",
    ],
)
def test_what_changes_no_data_is_allowed_inside(spark: Any, statement: str) -> None:
    """Statements about the session alone go on as ever."""
    with lockstep.transaction(spark):
        spark.sql(statement)


def test_a_failed_show_leaves_the_transaction_sound(spark: Any) -> None:
    """Only a write that failed makes COMMIT refuse."""
    with lockstep.transaction(spark) as tx:
        spark.sql("CREATE TABLE lake.default.t AS SELECT 1 AS id")
        with pytest.raises(PySparkException):
            spark.sql("SHOW TABLES IN lake.nowhere")
    assert tx.version == 1
