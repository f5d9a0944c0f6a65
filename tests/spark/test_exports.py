"""Exports are lakes that Spark and delta-rs read as the source was, whatever became of the source since."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.errors import PySparkException

from lockstep.catalog import TransactionalCatalog
from lockstep.lake.verify import verify
from tests.support.sessions import new_session
from tests.support.sparks import is_before

pytestmark = pytest.mark.long

CHECKED = "spark.databricks.delta.retentionDurationCheck.enabled"

TABLES = {
    "vectors": "PARTITIONED BY (p) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
    "mapped": "PARTITIONED BY (p) TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    "ids": (
        "TBLPROPERTIES ('delta.enableRowTracking' = 'true', 'delta.enableChangeDataFeed' = 'true', "
        "'delta.enableInCommitTimestamps' = 'true')"
    ),
    "points": "TBLPROPERTIES ('delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2')",
}
"""Each is written four times: rows come, some are changed, some go."""


@pytest.fixture
def full_of_everything(spark: Any) -> Any:
    spark.sql("CREATE NAMESPACE s COMMENT 'sales'")
    spark.sql("ALTER NAMESPACE s SET PROPERTIES ('cost centre' = '7')")
    for name, how in TABLES.items():
        spark.sql(f"CREATE TABLE s.{name} (id INT, p STRING) {how}")
        spark.sql(f"INSERT INTO s.{name} SELECT /*+ REPARTITION(1) */ id, concat('a b%', id % 3) FROM range(9)")
        spark.sql(f"UPDATE s.{name} SET id = id + 100 WHERE id % 4 = 1")
        spark.sql(f"DELETE FROM s.{name} WHERE id = 4")
    spark.sql("ALTER TABLE s.mapped RENAME COLUMN id TO number")
    spark.sql("CREATE TABLE s.old AS SELECT 1 AS id")
    spark.sql("ALTER TABLE s.old RENAME TO s.new")
    spark.sql("CREATE TABLE s.gone AS SELECT 1 AS id")
    spark.sql("DROP TABLE s.gone")
    spark.sql("CREATE TABLE s.shallow SHALLOW CLONE s.vectors")
    if not is_before("4.2"):
        spark.sql("CREATE VIEW s.seen AS SELECT id FROM s.vectors WHERE id < 3")
    spark.sql("CREATE TAG eod")
    return spark


def rows(session: Any, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in session.sql(f"SELECT {columns} FROM {table}").collect())


def contents(session: Any) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of all tables, with row ids where there are any."""
    names = (*TABLES, "new", "shallow", *(() if is_before("4.2") else ("seen",)))
    return {name: rows(session, f"s.{name}", "*, _metadata.row_id" if name == "ids" else "*") for name in names}


def by_delta_rs(root: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of tables as delta-rs reads them, without Spark and without Lockstep."""
    tables = TransactionalCatalog.open(str(root)).database().tables
    found = {}
    for name, table in tables.items():
        data = QueryBuilder().register("t", DeltaTable(str(root / table.location))).execute("SELECT * FROM t")
        found[name.table] = sorted(tuple(row.values()) for row in pa.table(data.read_all()).to_pylist())
    return found


@pytest.fixture
def at_target(spark_session: Any, tmp_path: Path) -> Callable[[str], Any]:
    """Return a function that opens a session whose catalog `lake` is an export."""

    def opened(name: str) -> Any:
        return new_session(spark_session, tmp_path / name)

    return opened


def test_every_mode_reads_as_the_source_did(
    full_of_everything: Any, at_target: Callable[[str], Any], root: Path, tmp_path: Path
) -> None:
    spark = full_of_everything
    expected = contents(spark)
    plain = {name: [row[:2] for row in table] for name, table in expected.items() if name != "seen"}
    assert by_delta_rs(root) == plain
    for mode in ("full", "partial", "minimal"):
        [done] = spark.sql(
            f"CALL lake.system.export(to => '{tmp_path}/{mode}', tag => 'eod', mode => '{mode}')"
        ).collect()
        assert (done.mode, done.tables, done.done) == (mode, len(plain), True)
    spark.sql("UPDATE s.shallow SET p = 'old' WHERE p = 'a b%2'")
    # The source goes on: rows, names and tables change, and what no version of ours needs is deleted.
    spark.conf.set(CHECKED, "false")
    for name in ("vectors", "mapped", "shallow"):
        spark.sql(f"INSERT OVERWRITE s.{name} VALUES (7, 'x')")
        spark.sql(f"VACUUM s.{name} RETAIN 0 HOURS")
    spark.sql("DROP TAG eod")
    spark.sql("VACUUM s.vectors RETAIN 0 HOURS")
    spark.sql("DROP TABLE s.mapped")
    spark.conf.unset(CHECKED)
    spark.sql(f"CALL lake.system.import(from => '{tmp_path}/minimal', to => '{tmp_path}/imported')")
    for name in ("full", "partial", "imported"):
        export = at_target(name)
        assert contents(export) == expected, name
        assert by_delta_rs(tmp_path / name) == plain, name
        assert rows(export, "s.mapped", "number") == [row[:1] for row in sorted(expected["mapped"])]
        with pytest.raises(PySparkException):
            export.sql("SELECT * FROM s.old")
        properties = {row[0]: row[1] for row in export.sql("DESCRIBE NAMESPACE EXTENDED s").collect()}
        assert "cost centre" in properties["Properties"]
        if name == "imported":
            continue  # it is a partial export
        export.sql("BEGIN")
        for table in ("vectors", "ids", "shallow"):
            export.sql(f"UPDATE s.{table} SET p = 'new' WHERE p = 'a b%0'")
            export.sql(f"DELETE FROM s.{table} WHERE p = 'a b%1'")
        export.sql("COMMIT")
        assert {row[1] for row in rows(export, "s.vectors")} == {"new", "a b%2"}
        ids = [row[1:] for row in rows(export, "s.ids", "id, _metadata.row_id")]
        assert set(ids) < {row[2:] for row in expected["ids"]}, "rows keep their ids"
        changes = rows(export, "table_changes('s.ids', 1)", "_change_type")
        assert {row[0] for row in changes} == {"update_preimage", "update_postimage", "delete"}
        lake = TransactionalCatalog.open(str(tmp_path / name))
        assert verify(lake.lake.storage, lake.timeline).differences == ()
    assert rows(spark, "s.vectors") == [(7, "x")], "the source has nothing of what its exports did"


def changes(session: Any, folder: Path, since: int) -> list[tuple[Any, ...]]:
    """Return what the feed of a table says that was done to its rows from a version on."""
    feed = session.read.format("delta").option("readChangeFeed", "true").option("startingVersion", since)
    return sorted(map(tuple, feed.load(str(folder)).select("_change_type", "id", "p").collect()))


def test_what_was_changed_in_a_clone_reads_the_same_in_the_lake(
    spark: Any, at_target: Callable[[str], Any], root: Path, tmp_path: Path
) -> None:
    """Deletion vectors on files of both, mapped columns, change data and in-commit timestamps are promoted.

    So are rows that a DataFrame appended with the option dataChange=false, whose files the lake never had.
    """
    spark.sql("CREATE NAMESPACE s")
    spark.sql(
        "CREATE TABLE s.t (id INT, p STRING) PARTITIONED BY (p) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', "
        "'delta.columnMapping.mode' = 'name', 'delta.enableChangeDataFeed' = 'true', "
        "'delta.enableInCommitTimestamps' = 'true')"
    )
    spark.sql("INSERT INTO s.t SELECT /*+ REPARTITION(1) */ id, concat('a b%', id % 2) FROM range(8)")
    spark.sql("DELETE FROM s.t WHERE id = 1")
    spark.sql("CREATE TABLE s.quiet AS SELECT 1L AS id")
    spark.sql("CREATE TABLE s.often TBLPROPERTIES ('delta.checkpointInterval' = '2') AS SELECT 1 AS id")
    spark.sql("INSERT INTO s.often VALUES (2)")
    spark.sql(f"CALL lake.system.clone('{tmp_path}/clone')")
    spark.sql("INSERT INTO s.t VALUES (100, 'lake')")
    clone = at_target("clone")
    clone.sql("DELETE FROM s.t WHERE id = 3")
    clone.sql("INSERT INTO s.t SELECT /*+ REPARTITION(1) */ id, 'mine' FROM range(20, 23)")
    clone.sql("UPDATE s.t SET id = id + 1000 WHERE id IN (2, 21)")
    clone.sql("CREATE TABLE s.shallow SHALLOW CLONE s.t")
    clone.sql("OPTIMIZE s.t")
    clone.range(2, 4).write.format("delta").mode("append").option("dataChange", "false").saveAsTable("s.quiet")
    clone.sql("INSERT INTO s.often VALUES (3)")
    expected = rows(clone, "s.t")
    of_clone, of_lake = (next(place.glob("s/t-*")) for place in (tmp_path / "clone", root))
    before = max(int(path.stem) for path in (of_lake / "_delta_log").glob("*.json"))
    [done] = clone.sql("CALL lake.system.promote()").collect()
    assert (done.tables, done.done) == (4, True)
    points = [path.name for path in root.glob("s/often-*/_delta_log/*.checkpoint.parquet")]
    assert points == [f"{2:020d}.checkpoint.parquet"], "Delta writes them at the interval, in the lake too"
    assert rows(spark, "s.often") == [(1,), (2,), (3,)]
    assert rows(spark, "s.quiet") == [(1,), (2,), (3,)]
    assert rows(spark, "s.t") == sorted([*expected, (100, "lake")])
    assert rows(spark, "s.shallow") == expected
    assert changes(spark, of_lake, before + 1) == changes(clone, of_clone, 1)
    spark.sql("UPDATE s.t SET id = 0 WHERE p = 'mine'")
    assert rows(spark, "s.t", "count(*)") == [(len(expected) + 1,)]
    lake = TransactionalCatalog.open(str(root))
    assert verify(lake.lake.storage, lake.timeline).differences == ()
