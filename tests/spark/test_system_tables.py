"""The system tables on real Spark: read, joined, filtered, at older versions, inside transactions; never written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import lockstep
from lockstep.catalog import TransactionalCatalog
from lockstep.errors import ConflictError, LockstepError
from lockstep.spark.raised import lockstep_errors
from lockstep.timeline.history import History

pytestmark = pytest.mark.long

NAMES = ["conflicts", "files", "history", "settings", "tables", "tags", "transactions"]


@pytest.fixture
def lake(connect: Callable[[], Any]) -> Any:
    """A session on a lake of which versions 1 to 5 make t and p, write both, and tag that."""
    spark = connect()
    spark.sql("CREATE TABLE t AS SELECT 1 AS id")
    spark.sql("CREATE TABLE p (id BIGINT, day STRING) PARTITIONED BY (day)")
    with lockstep.transaction(spark, comment="two"):
        spark.sql("INSERT INTO t VALUES (2)")
        spark.sql("INSERT INTO p VALUES (1, 'a'), (2, 'a'), (3, 'b')")
    spark.sql("CREATE TAG good")
    return spark


def rows(spark: Any, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.sql(sql).collect()]


def refused(act: Callable[[], Any]) -> tuple[str | None, str]:
    with pytest.raises(PySparkException) as caught:
        act()
    return caught.value.getSqlState(), str(caught.value)


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Count the entries of the timeline that are handed out."""
    read: list[int] = []
    original = History.read

    def noted(self: History, storage: Any, versions: range, **more: Any) -> Any:
        read.extend(versions)
        return original(self, storage, versions, **more)

    with monkeypatch.context() as patched:
        patched.setattr(History, "read", noted)
        yield read


def test_they_are_listed_and_described(lake: Any) -> None:
    assert [row.tableName for row in lake.sql("SHOW TABLES IN lake.system").collect()] == NAMES
    assert ("version", "bigint", "the database version") in rows(lake, "DESCRIBE TABLE lake.system.history")
    for name in NAMES:
        assert lake.table(f"lake.system.{name}").collect() is not None
        assert rows(lake, f"SELECT count(*) FROM lake.system.{name}")[0][0] == lake.table(f"lake.system.{name}").count()
    assert ("system",) not in rows(lake, "SHOW NAMESPACES IN lake")
    lake.sql("USE lake.system")
    assert rows(lake, "SELECT max(version) FROM history") == [(4,)]


def test_they_join(lake: Any) -> None:
    """Which transaction wrote a table last, and how large it is."""
    sql = """
        SELECT t.name, h.comment, sum(f.size) > 0 AS has_bytes, sum(f.rows) AS rows
        FROM lake.system.tables t
        JOIN lake.system.history h ON h.version = t.changed_in
        JOIN lake.system.files f ON f.namespace = t.namespace AND f.name = t.name
        WHERE t.kind = 'TABLE' GROUP BY ALL ORDER BY t.name
    """
    assert rows(lake, sql) == [("p", "two", True, 3), ("t", "two", True, 2)]
    frame = lake.table("lake.system.tables").where("name = 'p'").join(lake.table("lake.system.files"), ["name"])
    assert frame.count() == 2
    assert rows(lake, "SELECT (SELECT count(*) FROM lake.system.tags), (SELECT max(id) FROM t)") == [(1, 2)]
    lake.sql("CREATE TABLE kept AS SELECT version, committed_at, tables FROM lake.system.history WHERE version > 1")
    assert rows(lake, "SELECT version, tables FROM kept ORDER BY version")[1] == (3, ["default.p", "default.t"])


def test_conditions_and_limits_read_no_more_than_they_leave(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    history = "SELECT version FROM lake.system.history"
    [moment] = rows(lake, "SELECT committed_at FROM lake.system.history WHERE version = 3")[0]
    cases = {
        f"{history} WHERE version > 2": ([3, 4], {3, 4}),
        f"{history} WHERE version >= 2 AND version < 3": ([2], {2}),
        f"{history} WHERE version IN (1, 3) AND tables IS NOT NULL": ([1, 3], {1, 2, 3}),
        f"{history} WHERE version > 1 AND comment = 'two'": ([3], {2, 3, 4}),
        f"{history} ORDER BY version DESC LIMIT 2": ([4, 3], {3, 4}),
        f"{history} WHERE version < 4 ORDER BY committed_at DESC LIMIT 1": ([3], {3}),
        f"{history} WHERE version = 77": ([], set()),
        f"{history} WHERE version > 3 OR author = 'nobody'": ([4], {0, 1, 2, 3, 4}),
        "SELECT transaction_id FROM lake.system.transactions WHERE state = 'INFLIGHT'": ([], set()),
        "SELECT database_version FROM lake.system.transactions WHERE database_version > 3": ([4], {4}),
    }
    for sql, (expected, most) in cases.items():
        with counted(monkeypatch) as read:
            assert [row[0] for row in rows(lake, sql)] == expected, sql
        assert set(read) <= most, sql
    assert rows(lake, f"{history} WHERE committed_at >= TIMESTAMP '{moment}' ORDER BY version") == [(3,), (4,)]
    assert rows(lake, f"{history} WHERE committed_at < TIMESTAMP '{moment}' ORDER BY version") == [(0,), (1,), (2,)]
    with counted(monkeypatch) as read:
        lake.sql(history).explain()
    assert read == [], "to explain a query reads nothing"


def test_a_statement_sees_one_version_and_older_ones_if_asked(lake: Any) -> None:
    assert rows(lake, "SELECT count(*) FROM lake.system.tables FOR SYSTEM_VERSION AS OF 1") == [(1,)]
    assert rows(lake, "SELECT max(version) FROM lake.system.history FOR SYSTEM_VERSION AS OF 2") == [(2,)]
    assert rows(lake, "SELECT count(*) FROM lake.system.tags FOR SYSTEM_VERSION AS OF 'good'") == [(1,)]
    assert rows(lake, "SELECT sum(rows) FROM lake.system.files FOR SYSTEM_VERSION AS OF 2") == [(1,)]
    for asked, expected in (
        ("settings FOR SYSTEM_VERSION AS OF 1", "0A000"),
        ("history VERSION AS OF 1", "42809"),
        ("tables TIMESTAMP AS OF current_timestamp()", "42809"),
    ):
        state, message = refused(partial(lake.sql, f"SELECT * FROM lake.system.{asked}"))
        assert state == expected, message
    frame = lake.sql("SELECT name FROM lake.system.tables")
    lake.sql("DROP TABLE p")
    assert frame.count() == 2, "it was made of one version"
    assert lake.sql("SELECT name FROM lake.system.tables").count() == 1


def test_a_transaction_sees_its_own_view_and_others_do_not(lake: Any, other: Any) -> None:
    lake.sql("BEGIN")
    lake.sql("CREATE TABLE mine AS SELECT 1 AS id UNION ALL SELECT 2")
    lake.sql("INSERT INTO t VALUES (3)")
    lake.sql("CREATE TAG here")
    other.sql("INSERT INTO lake.default.p VALUES (4, 'c')")
    assert rows(lake, "SELECT name, table_version FROM lake.system.tables ORDER BY name")[0] == ("mine", 0)
    assert rows(lake, "SELECT sum(rows) FROM lake.system.files WHERE name = 't'") == [(3,)]
    assert rows(lake, "SELECT sum(rows) FROM lake.system.files WHERE name = 'mine'") == [(2,)]
    assert rows(lake, "SELECT sum(rows) FROM lake.system.files WHERE name = 'p'") == [(3,)]
    assert rows(lake, "SELECT tag, database_version FROM lake.system.tags ORDER BY tag") == [
        ("good", 4),
        ("here", None),
    ]
    assert rows(lake, "SELECT max(version) FROM lake.system.history") == [(4,)]
    assert refused(lambda: lake.sql("SELECT * FROM lake.system.tables FOR SYSTEM_VERSION AS OF 5"))[0] == "22023"
    mine = lake.sql("SELECT name FROM lake.system.tables")
    kept = lake.sql("SELECT name, id FROM lake.system.tables").cache()
    assert kept.count() == 3
    seen = "SELECT count(*) FROM lake.system.tables WHERE name = 'mine'"
    assert rows(other, seen) == [(0,)]
    [row] = other.sql("SELECT * FROM lake.system.transactions WHERE state = 'INFLIGHT'").collect()
    assert (row.tables, row.is_alive) == (["default.mine", "default.t"], True)
    assert row.bytes_staged > 0
    lake.sql("COMMIT")
    assert refused(mine.collect)[0] == "25P01"
    assert refused(kept.collect)[0] == "25P01", "what is cached of it is what the transaction saw"
    kept.unpersist()
    assert rows(other, seen) == [(1,)]
    [row] = other.sql(f"SELECT * FROM lake.system.transactions WHERE transaction_id = '{row.transaction_id}'").collect()
    assert (row.state, row.database_version, row.reason) == ("COMPLETED", 6, None)


def test_what_was_made_before_begin_shows_no_later_version(lake: Any, other: Any) -> None:
    lake.sql("BEGIN READ ONLY AS OF VERSION 2")
    assert rows(lake, "SELECT sum(rows) FROM lake.system.files") == [(1,)]
    assert rows(lake, "SELECT count(*) FROM lake.system.tags") == [(1,)], "tags are names from outside"
    lake.sql("COMMIT")
    frame = lake.sql("SELECT max(version) FROM lake.system.history")
    lake.sql("BEGIN READ ONLY AS OF VERSION 2")
    assert refused(frame.collect)[0] == "25001"
    lake.sql("COMMIT")
    assert frame.select("*").collect()[0][0] == 4


def test_files_have_their_partitions_and_deleted_rows(lake: Any) -> None:
    lake.sql("ALTER TABLE p SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
    lake.sql("DELETE FROM p WHERE id = 1")
    sql = """
        SELECT partition_values['day'], rows, deleted_rows, table_version, size > 0, path LIKE '%/p-%/day=%.parquet',
          modified_at BETWEEN current_timestamp() - INTERVAL 1 HOUR AND current_timestamp()
        FROM lake.system.files WHERE name IN ('p') ORDER BY 1
    """
    assert rows(lake, sql) == [("a", 2, 1, 3, True, True, True), ("b", 1, 0, 3, True, True, True)]


@pytest.mark.parametrize(
    ("sql", "state"),
    [
        ("INSERT INTO lake.system.tags VALUES ('x', 1, NULL, NULL, NULL, '')", "42809"),
        ("DELETE FROM lake.system.history WHERE version = 1", "42809"),
        ("UPDATE lake.system.settings SET value = 'x'", "42809"),
        ("DROP TABLE lake.system.history", "42939"),
        ("ALTER TABLE lake.system.history RENAME TO lake.system.past", "42939"),
        ("ALTER TABLE lake.default.t RENAME TO lake.system.t", "42939"),
        ("ALTER TABLE lake.system.history ADD COLUMN (x INT)", "42939"),
        ("CREATE TABLE lake.system.mine AS SELECT 1 AS id", "42939"),
        ("CREATE OR REPLACE TABLE lake.system.history AS SELECT 1 AS id", "42939"),
        ("DROP NAMESPACE lake.system CASCADE", "42939"),
        ("CREATE NAMESPACE lake.system", "42939"),
        ("CREATE NAMESPACE lake.SYSTEM.mine", "42939"),
        ("SELECT * FROM lake.system.nosuch", "42P01"),
    ],
)
def test_nothing_of_it_is_changed(lake: Any, sql: str, state: str) -> None:
    found, message = refused(lambda: lake.sql(sql))
    assert found == state, message
    assert rows(lake, "SELECT max(version) FROM lake.system.history") == [(4,)]


def test_a_lake_that_has_such_a_namespace_keeps_it(lake: Any, root: Path) -> None:
    """One that an older Lockstep made."""
    core = TransactionalCatalog.open(str(root))
    core.run(lambda tx: tx.changing().create_namespace(("system",), {}))
    lake.sql("CREATE TABLE lake.system.tags AS SELECT 7 AS mine")
    lake.sql("INSERT INTO lake.system.tags VALUES (8)")
    assert rows(lake, "SELECT mine FROM lake.system.tags ORDER BY mine") == [(7,), (8,)]
    assert rows(lake, "SELECT tag FROM (SELECT tag FROM lake.system.conflicts RIGHT JOIN (SELECT 1 AS tag))") == [(1,)]
    lake.sql("DROP TABLE lake.system.tags")
    assert rows(lake, "SELECT tag FROM lake.system.tags") == [("good",)]


def test_write_skew_is_refused_though_both_read_system_tables(connect: Callable[[], Any]) -> None:
    one, two = connect(), connect()
    one.sql("CREATE TABLE a AS SELECT 1 AS id")
    one.sql("CREATE TABLE b AS SELECT 1 AS id")
    for session, read, written in ((one, "a", "b"), (two, "b", "a")):
        session.sql("BEGIN")
        session.sql(f"SELECT count(*) FROM {read} JOIN lake.system.history ON true").collect()
        session.sql("SELECT * FROM lake.system.files").collect()
        session.sql(f"INSERT INTO {written} VALUES (2)")
    one.sql("COMMIT")
    with pytest.raises(ConflictError), lockstep_errors():
        two.sql("COMMIT")
    [row] = two.sql("SELECT * FROM lake.system.conflicts").collect()
    assert (row.rule, row.object, row.winner_version) == ("pivot", "default.b", 3)
    [ended] = two.sql("SELECT * FROM lake.system.transactions WHERE state = 'ROLLED_BACK'").collect()
    assert (ended.transaction_id, ended.tables, ended.reason) == (row.transaction_id, ["default.a"], row.message)


def test_system_tables_alone_conflict_with_nothing(connect: Callable[[], Any]) -> None:
    one, two = connect(), connect()
    one.sql("CREATE TABLE a AS SELECT 1 AS id")
    one.sql("CREATE TABLE b AS SELECT 1 AS id")
    for session, written in ((one, "b"), (two, "a")):
        session.sql("BEGIN")
        session.sql(f"INSERT INTO {written} SELECT max(version) FROM lake.system.history")
    one.sql("COMMIT")
    two.sql("COMMIT")
    assert rows(one, "SELECT count(*) FROM lake.system.conflicts") == [(0,)]


def test_settings_say_who_sets_them(lake: Any) -> None:
    lake.sql("SET lockstep.isolation = SNAPSHOT")
    sql = "SELECT value, default_value, source FROM lake.system.settings WHERE name = '{}'"
    assert rows(lake, sql.format("lockstep.isolation")) == [("SNAPSHOT", None, "session")]
    assert rows(lake, sql.format("lockstep.statement_timeout")) == [("0", None, "default")]
    assert rows(lake, sql.format("spark.sql.catalog.lake.create")) == [("true", "false", "catalog")]
    [(value, _, source)] = rows(lake, sql.format("spark.sql.extensions"))
    assert "lockstep.spark.Extensions" in value
    assert source == "driver"


def test_settings_show_what_the_lake_keeps(lake: Any) -> None:
    sql = "SELECT value, source FROM lake.system.settings WHERE name = 'spark.sql.catalog.lake.retention-age'"
    assert rows(lake, sql) == [("30d", "default")]
    lake.sql("CALL lake.system.retention(age => '365d')")
    assert rows(lake, sql) == [("365d", "lake")]
    assert rows(lake, "SELECT value FROM lake.system.settings WHERE source = 'lake' AND value LIKE '3%'") == [("365d",)]
    assert rows(lake, "SELECT count(*) FROM lake.system.settings WHERE source = 'lake'") == [(1,)]


def test_what_a_transaction_makes_is_not_shown_to_another_session(lake: Any, other: Any) -> None:
    """Not by a view of its query either, which is resolved anew for whoever uses it."""
    lake.sql("BEGIN")
    lake.sql("CREATE TABLE mine AS SELECT 1 AS id")
    lake.sql("SELECT name FROM lake.system.tables").createOrReplaceGlobalTempView("listed")
    assert rows(other, "SELECT name FROM global_temp.listed ORDER BY name") == [("p",), ("t",)]
    lake.sql("ROLLBACK")


def test_errors_are_ours_in_python_too(lake: Any) -> None:
    with pytest.raises(LockstepError) as caught, lockstep_errors():
        lake.sql("DROP TABLE lake.system.tags")
    assert caught.value.sqlstate == "42939"
