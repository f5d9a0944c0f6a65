"""What crosses the boundary of a transaction, or of what it can undo, is right or refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import lockstep
from lockstep.errors import ActiveTransactionError, NoTransactionError
from lockstep.spark.bridge import is_open
from lockstep.spark.raised import from_spark
from tests.support.interposed import host_of
from tests.support.sparks import since


def refused(error: PySparkException) -> type | None:
    """Return the class of Lockstep's error behind Spark's."""
    ours = from_spark(error)
    return None if ours is None else type(ours)


T = "lake.default.t"
NAMES = count()

MADE: dict[str, Callable[[Any], Any]] = {
    "spark.table": lambda spark: spark.table(T),
    "a query": lambda spark: spark.sql(f"SELECT id FROM {T}"),
    "a DataFrame's view": lambda spark: viewed(spark, spark.table(T).createOrReplaceTempView),
    "a view's text": lambda spark: viewed(spark, lambda name: spark.sql(f"CREATE TEMP VIEW {name} AS FROM {T}")),
    "cached": lambda spark: spark.table(T).cache(),
    "a cached query": lambda spark: spark.sql(f"SELECT id FROM {T} WHERE id > 0").cache(),
}
"""Ways to make a DataFrame that is used more than once."""


def viewed(spark: Any, create: Callable[[str], object]) -> Any:
    name = f"v{next(NAMES)}"
    create(name)
    return UsedByName(spark, name)


class UsedByName:
    """A temporary view, as its users know it."""

    def __init__(self, spark: Any, name: str) -> None:
        self._spark, self._name = spark, name

    def select(self, column: str) -> Any:
        return self._spark.sql(f"SELECT {column} FROM {self._name}")


def seen(frame: Any) -> list[int] | str | None:
    """Return what a DataFrame shows now, or the SQLSTATE of its refusal."""
    try:
        return sorted(row.id for row in frame.select("id").collect())
    except PySparkException as error:
        return error.getSqlState()


BEFORE = {  # made before BEGIN: used inside, after the transaction wrote 2, and after its COMMIT
    "spark.table": ("25001", [1, 2]),
    "a query": ([1], [1]),
    "a DataFrame's view": ("25001", [1, 2]),
    "a view's text": ([1, 2], [1, 2]),
    "cached": ("25001", [1, 2]),
    "a cached query": ([1], [1]),
}


def test_what_is_made_before_begin_shows_the_snapshot_inside_or_is_refused(spark: Any) -> None:
    spark.sql(f"CREATE TABLE {T} AS SELECT 1 AS id")
    frames = {way: make(spark) for way, make in MADE.items()}
    assert {way: seen(frame) for way, frame in frames.items()} == {way: [1] for way in MADE}
    spark.sql("BEGIN")
    spark.sql(f"INSERT INTO {T} VALUES (2)")
    inside = {way: seen(frame) for way, frame in frames.items()}
    spark.sql("COMMIT")
    assert {way: (inside[way], seen(frame)) for way, frame in frames.items()} == BEFORE


def test_what_is_made_before_begin_of_an_older_version_is_refused_inside(spark: Any, other: Any) -> None:
    """A query keeps the database version that it was made of; a transaction reads none but its snapshot."""
    spark.sql(f"CREATE TABLE {T} AS SELECT 1 AS id")
    query = MADE["a query"](spark)
    other.sql(f"INSERT INTO {T} VALUES (2)")
    spark.sql("BEGIN")
    assert (seen(query), seen(MADE["a query"](spark))) == ("25001", [1, 2])


def changes(spark: Any, end: int | None = None, start: int = 2) -> Any:
    reader = spark.read.option("startingSystemVersion", start)
    return (reader if end is None else reader.option("endingSystemVersion", end)).table(T)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "open": changes,
    "closed": lambda spark: changes(spark, 3),
    "of nothing": lambda spark: changes(spark, 4, start=4),
    "filtered and joined": lambda spark: changes(spark).where("id > 0").join(changes(spark), "id"),
    "cached": lambda spark: changes(spark).cache(),
    "a view": lambda spark: viewed(spark, changes(spark).createOrReplaceTempView),
}


def test_changes_that_were_asked_for_before_begin_are_refused_inside(spark: Any) -> None:
    spark.sql(f"CREATE TABLE {T} AS SELECT 1 AS id")
    spark.sql(f"INSERT INTO {T} VALUES (2)")
    spark.sql(f"INSERT INTO {T} VALUES (3)")
    spark.sql("CREATE NAMESPACE lake.aside")
    expected = {way: [] if way == "of nothing" else [2, 3] for way in CHANGES}

    def shown(frames: dict[str, Any]) -> dict[str, Any]:
        return {way: seen(frame) for way, frame in frames.items()}

    before = {way: make(spark) for way, make in CHANGES.items()}
    assert shown(before) == expected
    spark.sql("BEGIN READ ONLY AS OF VERSION 2")
    assert shown(before) == dict.fromkeys(CHANGES, "25001")
    assert seen(changes(spark)) == [2]
    spark.sql("ROLLBACK")
    spark.sql("BEGIN")
    assert shown(before) == dict.fromkeys(CHANGES, "25001")
    with pytest.raises(PySparkException, match="asked for before BEGIN"):
        before["closed"].select("id").write.mode("append").insertInto(T)
    inside = {way: make(spark) for way, make in CHANGES.items()}
    assert shown(inside) == expected
    spark.sql("ROLLBACK")
    assert shown(before) == shown(inside) == expected


@pytest.mark.parametrize(("end", "left"), [("COMMIT", [1, 2]), ("ROLLBACK", [1]), ("ROLLBACK TO before", [1])])
def test_what_is_made_inside_is_refused_when_that_has_ended(spark: Any, end: str, left: list[int]) -> None:
    """But for a view's text, which is read anew; a cache that was filled inside is no way around."""
    spark.sql(f"CREATE TABLE {T} AS SELECT 1 AS id")
    spark.sql("BEGIN")
    spark.sql("SAVEPOINT before")
    spark.sql(f"INSERT INTO {T} VALUES (2)")
    frames = {way: make(spark) for way, make in MADE.items()}
    assert {way: seen(frame) for way, frame in frames.items()} == {way: [1, 2] for way in MADE}
    spark.sql(end)
    assert {way: seen(frame) for way, frame in frames.items()} == dict.fromkeys(MADE, "25P01") | {"a view's text": left}


def test_what_was_collected_from_a_cache_is_not_shown_again_after_rollback(spark: Any) -> None:
    """The same DataFrame, without a new plan: its rows were in the cache, and never in the table."""
    spark.sql(f"CREATE TABLE {T} AS SELECT 1 AS id")
    spark.sql("BEGIN")
    spark.sql(f"INSERT INTO {T} VALUES (2)")
    frame = spark.table(T).cache()
    assert sorted(row.id for row in frame.collect()) == [1, 2]
    spark.sql("ROLLBACK")
    with pytest.raises((PySparkException, Py4JJavaError)):
        frame.collect()


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


@pytest.mark.parametrize("use", ["history", "detail", "update"])
def test_a_delta_table_of_an_ended_transaction_is_refused(use: str, spark: Any) -> None:
    """What looks into the log itself, not through a plan, is told the same, in the same words."""
    from delta.tables import DeltaTable

    spark.sql("CREATE TABLE lake.default.t AS SELECT 1 AS id")
    with lockstep.transaction(spark):
        spark.sql("INSERT INTO lake.default.t VALUES (2)")
        inside = DeltaTable.forName(spark, "lake.default.t")
    uses: dict[str, Callable[[], Any]] = {
        "history": lambda: inside.history().collect(),
        "detail": lambda: inside.detail().collect(),
        "update": lambda: inside.update(set={"id": "id + 1"}),
    }
    with pytest.raises(PySparkException, match="has ended") as error:
        uses[use]()
    assert refused(error.value) is NoTransactionError
    assert {row.id for row in spark.table("lake.default.t").collect()} == {1, 2}


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


BEGIN, ROLLBACK = "BEGIN TRANSACTION; SAVEPOINT s", "ROLLBACK"
OPEN, FETCH, INSERT = "OPEN c", "FETCH c INTO x", f"INSERT INTO {T} VALUES (x + 10)"

CURSORS: dict[str, tuple[list[str], str | None]] = {
    "opened before BEGIN": ([OPEN, BEGIN, FETCH], "25001"),
    "fetched from before BEGIN": ([OPEN, FETCH, BEGIN, FETCH], "25001"),
    "opened inside, after ROLLBACK": ([BEGIN, INSERT, OPEN, FETCH, ROLLBACK, FETCH], "25P01"),
    "opened inside, after COMMIT": ([BEGIN, OPEN, FETCH, "COMMIT", FETCH], "25P01"),
    "opened inside, after a COMMIT that is hidden": ([BEGIN, OPEN, "EXECUTE IMMEDIATE 'COMMIT'", FETCH], "25P01"),
    "opened inside, after ROLLBACK TO": ([BEGIN, INSERT, OPEN, FETCH, "ROLLBACK TO s", FETCH], "25P01"),
    "opened in another transaction": ([BEGIN, OPEN, "COMMIT", BEGIN, FETCH], "25P01"),
    "inside": ([BEGIN, OPEN, FETCH, INSERT, FETCH, INSERT, "CLOSE c", "COMMIT"], None),
    "outside": ([OPEN, FETCH, BEGIN, INSERT, "COMMIT", FETCH, BEGIN, INSERT, "COMMIT", "CLOSE c"], None),
    "opened again inside": ([OPEN, BEGIN, "CLOSE c", OPEN, FETCH, INSERT, FETCH, INSERT, "COMMIT"], None),
}
"""What a script does with a cursor, and the SQLSTATE of its refusal."""


@since("4.2", "cursors")
@pytest.mark.parametrize("case", CURSORS)
def test_a_cursor_is_fetched_from_where_it_was_opened(spark: Any, case: str) -> None:
    """Its rows are computed one by one, by no query that would be looked at."""
    statements, state = CURSORS[case]
    spark.conf.set("spark.sql.scripting.cursorEnabled", "true")
    spark.sql(f"CREATE TABLE {T} AS SELECT id FROM range(1, 3, 1, 1)")
    declared = f"DECLARE x BIGINT DEFAULT 0; DECLARE c CURSOR FOR SELECT id FROM {T}"
    found = None
    try:
        spark.sql(f"BEGIN {declared}; {'; '.join(statements)}; END")
    except PySparkException as error:
        found = error.getSqlState()
    assert found == state
    if state is None:
        assert seen(spark.table(T)) == [1, 2, 11, 12]


def test_a_block_that_could_not_be_rolled_back_is_ended_by_its_id(
    spark: Any, spark_session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.sql(f"CREATE TABLE {T} (id INT)")
    host = host_of(spark_session)
    answer, left = host.call, ["rollback"]

    def call(request: str) -> str:
        if json.loads(request)["op"] in left:
            left.remove("rollback")
            return json.dumps({"error": {"condition": "LOCKSTEP_UNAVAILABLE", "message": "once", "sqlstate": "58030"}})
        return answer(request)

    monkeypatch.setattr(host, "call", call)
    with pytest.raises(PySparkException, match="no luck"):
        spark.sql(f"BEGIN ATOMIC INSERT INTO {T} VALUES (1); SELECT raise_error('no luck'); END")
    assert not left
    assert not is_open(spark)
    [open_one] = spark.sql("SHOW TRANSACTIONS IN lake").collect()
    spark.sql(f"INSERT INTO {T} VALUES (2)")
    spark.sql(f"CALL lake.system.abort('{open_one.transaction_id}', 'the block failed')")
    assert not spark.sql("SHOW TRANSACTIONS IN lake").collect()
    assert [row.id for row in spark.table(T).collect()] == [2]
