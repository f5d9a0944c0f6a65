"""What the timeline says that a write was: its own statement, and never one before it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable

import lockstep
from tests.support.sampled import sampled

T = "lake.default.t"


@pytest.fixture
def table(spark: Any) -> str:
    spark.sql(f"CREATE TABLE {T} (a INT)")
    spark.sql(f"INSERT INTO {T} VALUES (1), (2)")
    spark.sql(f"INSERT INTO {T} VALUES (3)")
    return T


def last(root: Path) -> list[str]:
    timeline = lockstep.TransactionalCatalog.open(str(root)).timeline
    [entry] = timeline.entries(timeline.head.version - 1)
    return entry.transaction.statements


def rows(spark: Any) -> Any:
    return spark.range(5, 8).selectExpr("CAST(id AS INT) AS a")


WRITES: dict[str, tuple[Callable[[Any], object], str]] = {
    "saveAsTable": (lambda spark: rows(spark).write.mode("append").saveAsTable(T), "WRITE default.t"),
    "a query's rows, saved": (
        lambda spark: spark.sql(f"SELECT a + 10 AS a FROM {T}").write.mode("append").saveAsTable(T),
        "WRITE default.t",
    ),
    "writeTo": (lambda spark: rows(spark).writeTo(T).append(), "WRITE default.t"),
    "insertInto": (lambda spark: rows(spark).write.insertInto(T), "WRITE default.t"),
    "DeltaTable.delete": (lambda spark: DeltaTable.forName(spark, T).delete("a = 1"), "DELETE default.t"),
    "DeltaTable.optimize": (
        lambda spark: DeltaTable.forName(spark, T).optimize().executeCompaction(),
        "OPTIMIZE default.t",
    ),
    "INSERT": (lambda spark: spark.sql(f"INSERT INTO {T} SELECT 3"), f"INSERT INTO {T} SELECT 3"),
    "UPDATE": (lambda spark: spark.sql(f"UPDATE {T} SET a = 5 WHERE a = 1"), f"UPDATE {T} SET a = 5 WHERE a = 1"),
    "MERGE": (
        lambda spark: spark.sql(f"MERGE INTO {T} USING (SELECT 1 AS b) ON a = b WHEN MATCHED THEN DELETE"),
        f"MERGE INTO {T} USING (SELECT 1 AS b) ON a = b WHEN MATCHED THEN DELETE",
    ),
    "OPTIMIZE": (lambda spark: spark.sql(f"OPTIMIZE {T}"), f"OPTIMIZE {T}"),
    "ALTER": (lambda spark: spark.sql(f"ALTER TABLE {T} ADD COLUMN b INT"), f"ALTER TABLE {T} ADD COLUMN b INT"),
    "CTAS": (
        lambda spark: spark.sql("CREATE TABLE lake.default.n AS SELECT 1 AS a"),
        "CREATE TABLE lake.default.n AS SELECT 1 AS a",
    ),
    "a parameter": (
        lambda spark: spark.sql(f"DELETE FROM {T} WHERE a = :a", args={"a": 1}),
        f"DELETE FROM {T} WHERE a = :a",
    ),
}


@pytest.mark.parametrize("within", [False, True], ids=["alone", "in a transaction"])
@pytest.mark.parametrize(("write", "expected"), sampled(WRITES.items(), 2))
@pytest.mark.usefixtures("table")
def test_a_write_is_said_as_it_was(
    spark: Any, root: Path, write: Callable[[Any], object], expected: str, within: bool
) -> None:
    """Also just after another statement of the same session and thread, whose text is another's."""
    spark.sql(f"SELECT count(*) AS another FROM {T}").collect()
    if within:
        spark.sql("BEGIN")
        spark.sql(f"SELECT count(*) AS another FROM {T}").collect()
    spark.sql(f"DESCRIBE TABLE {T}").collect()
    write(spark)
    if within:
        spark.sql("COMMIT")
    assert last(root) == [expected]


@pytest.mark.usefixtures("table")
def test_several_writes_are_each_said(spark: Any, root: Path) -> None:
    spark.sql("BEGIN")
    spark.sql(f"INSERT INTO {T} VALUES (3)")
    rows(spark).writeTo(T).append()
    DeltaTable.forName(spark, T).delete("a = 1")
    spark.sql("COMMIT")
    assert last(root) == [f"INSERT INTO {T} VALUES (3)", "WRITE default.t", "DELETE default.t"]


@pytest.mark.usefixtures("table")
def test_a_block_is_said_as_a_whole(spark: Any, root: Path) -> None:
    block = f"BEGIN ATOMIC INSERT INTO {T} VALUES (3); DELETE FROM {T} WHERE a = 1; END"
    spark.sql(block)
    assert last(root) == [block]
