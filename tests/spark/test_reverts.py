"""Reverts that Spark takes part in: one after the other, and of versions that were read as older ones since."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import lockstep
from lockstep.errors import InvalidError
from tests.spark.test_recovery import newest, rows, state
from tests.support.sparks import is_before

pytestmark = pytest.mark.long


def made(spark: Any, root: Path, *statements: str) -> int:
    """Run statements, and return which database version the last one is."""
    for statement in statements:
        spark.sql(statement)
    version: int = newest(root).version
    return version


KINDS = {
    "vectors": "'delta.enableDeletionVectors' = 'true'",
    "mapping and row tracking": "'delta.columnMapping.mode' = 'name', 'delta.enableRowTracking' = 'true'",
}
SECOND = ("INSERT INTO t SELECT id + 1 FROM t", "DELETE FROM t WHERE id = 2", "ALTER TABLE t ADD COLUMN more INT")


@pytest.mark.parametrize("kind", KINDS)
def test_mistakes_are_reverted_one_after_the_other_newest_first(spark: Any, root: Path, kind: str) -> None:
    made(spark, root, f"CREATE TABLE t TBLPROPERTIES ({KINDS[kind]}) AS SELECT 1 AS id")
    first = made(spark, root, "INSERT INTO t VALUES (2)")
    for statement in SECOND:
        second = made(spark, root, statement)
        with pytest.raises(PySparkException, match=rf"{first} cannot be reverted: .*[Rr]evert what c") as error:
            spark.sql(f"CALL lake.system.revert({first})")
        assert state(error) == "22023"
        spark.sql(f"CALL lake.system.revert({second})")
        assert rows(spark, "SELECT * FROM t") == [(1,), (2,)], statement
    spark.sql(f"CALL lake.system.revert({first})")
    assert rows(spark, "SELECT * FROM t") == [(1,)]
    spark.sql(f"CALL lake.system.revert({newest(root).version})")
    assert rows(spark, "SELECT * FROM t") == [(1,), (2,)]


def test_a_view_and_a_name_are_taken_back_likewise(spark: Any, root: Path) -> None:
    first = made(spark, root, "CREATE VIEW v AS SELECT 1 AS id")
    second = made(spark, root, "CREATE OR REPLACE VIEW v AS SELECT 2 AS id")
    spark.sql(f"CALL lake.system.revert({second})")
    spark.sql(f"CALL lake.system.revert({first})")
    assert rows(spark, "SHOW VIEWS") == []


OLDER = {
    "FOR SYSTEM_VERSION": "SELECT id + 100 FROM t FOR SYSTEM_VERSION AS OF {database}",
    "VERSION AS OF": "SELECT id + 100 FROM t VERSION AS OF {table}",
    "table_changes": "SELECT id + 100 FROM table_changes('t', {table})",
    "CHANGES": "SELECT id + 100 FROM t CHANGES FROM SYSTEM_VERSION {database}",
    "a view as it was": "SELECT id + 100 FROM v FOR SYSTEM_VERSION AS OF {database}",
}
OTHERS = {"VALUES": "VALUES (101)", "another table": "SELECT id + 100 FROM u FOR SYSTEM_VERSION AS OF {database}"}


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("way", [*OLDER, *OTHERS])
def test_rows_that_were_made_of_those_that_are_taken_back_are_in_the_way(
    spark: Any, root: Path, way: str, inside: bool
) -> None:
    if way == "CHANGES" and is_before("4.2"):
        pytest.skip("a clause of Spark 4.2")
    made(spark, root, "CREATE TABLE u AS SELECT 1 AS id")
    made(spark, root, "CREATE TABLE t TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true') AS SELECT 0 AS id")
    made(spark, root, "CREATE VIEW v AS SELECT * FROM t")
    wrong = made(spark, root, "INSERT INTO t VALUES (1)")
    query = {**OLDER, **OTHERS}[way].format(database=wrong, table=1)
    around = ("BEGIN", "COMMIT") if inside else ()
    later = made(spark, root, *around[:1], f"INSERT INTO t {query}", *around[1:])
    there = rows(spark, "SELECT * FROM t")
    assert (101,) in there
    reads = {read.name.table: read.predicates for read in newest(root).reads}
    assert reads.get("t", []) in ([["false"], None] if way in OLDER else [[]]), "a transaction may say any row"
    is_refused = pytest.raises(InvalidError, match=rf"version {later} .* appended to rows that it had read")
    with is_refused if way in OLDER else nullcontext():
        lockstep.open(str(root)).revert(wrong)
    assert rows(spark, "SELECT * FROM t") == (there if way in OLDER else [(0,), (101,)])


def test_a_shallow_clone_is_given_back_with_its_source(spark: Any, root: Path) -> None:
    made(spark, root, "CREATE TABLE t AS SELECT 1 AS id", "CREATE TABLE c SHALLOW CLONE t")
    before = made(spark, root, "INSERT INTO c VALUES (2)")
    with pytest.raises(PySparkException, match=r"c cannot be released: .* of table default\.t") as error:
        spark.sql("CALL lake.system.release('default.c')")
    assert state(error) == "22023"
    assert newest(root).version == before
    made(spark, root, "CREATE TABLE copy AS SELECT * FROM c")
    spark.sql("CALL lake.system.release('default.copy')")
    spark.sql("BEGIN")
    spark.sql("CALL lake.system.release('default.t')")
    spark.sql("CALL lake.system.release('default.c')")
    spark.sql("COMMIT")
    assert rows(spark, "SHOW TABLES IN lake.default") == []
