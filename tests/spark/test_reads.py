"""Whatever Spark executes, in whatever way, is read at the snapshot, and is among what SERIALIZABLE judges."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from lockstep.catalog import TransactionalCatalog
from tests.support.lakes import add as add_file
from tests.support.lakes import named, stage

T, U, OUT = "lake.default.t", "lake.default.u", "lake.default.out"
"""Two tables that hold who is on call, in partitions, and one that is only written."""


@pytest.fixture
def tables(spark: Any) -> None:
    """Make tables with a row for each of 1 and 2."""
    for name in (T, U, OUT):
        spark.sql(f"CREATE TABLE {name} (who INT, n INT) USING delta PARTITIONED BY (who)")
        spark.sql(f"INSERT INTO {name} VALUES (1, 1), (2, 2)")


def add(session: Any, table: str = T, who: int = 1) -> None:
    session.sql(f"INSERT INTO {table} VALUES ({who}, 10)")


def is_refused(session: Any, sqlstate: str, work: Callable[[], Any]) -> bool:
    try:
        work()
    except (PySparkException, Py4JJavaError) as error:
        # A job that was cancelled is Spark's own error, whose text says why.
        own = isinstance(error, PySparkException) and error.getSqlState() == sqlstate
        return own or f"SQLSTATE: {sqlstate}" in str(error)
    return False


def commits(session: Any) -> bool:
    return not is_refused(session, "40001", lambda: session.sql("COMMIT"))


def begins(session: Any) -> None:
    session.sql("BEGIN ISOLATION LEVEL SERIALIZABLE")


def is_judged(session: Any, other: Any, read: Callable[[], Any], who: int = 1) -> bool:
    """Whether a transaction is refused beside one that adds what it read, and reads what it adds."""
    begins(session)
    begins(other)
    read()
    other.sql(f"SELECT * FROM {OUT} WHERE who = 2").collect()
    add(session, OUT, who=2)
    add(other, T, who=who)
    other.sql("COMMIT")
    return not commits(session)


# --- reads are joined, whatever expressions they share ----------------------------------------------------------------


def test_two_queries_of_one_dataframe_are_both_read(spark: Any, other: Any, tables: None) -> None:
    def read() -> None:
        both = spark.table(T)
        both.where("who = 1").collect()
        both.where("who = 2").collect()

    assert is_judged(spark, other, read)


def test_a_query_of_other_rows_of_the_dataframe_is_not_a_read_of_all(spark: Any, other: Any, tables: None) -> None:
    def read() -> None:
        both = spark.table(T)
        both.where("who = 2").collect()
        both.where("who = 3").collect()

    assert not is_judged(spark, other, read)


def test_a_temporary_view_used_twice_is_read_twice(spark: Any, other: Any, tables: None) -> None:
    def read() -> None:
        spark.table(T).createOrReplaceTempView("both")
        spark.sql("SELECT * FROM both WHERE who = 1").collect()
        spark.sql("SELECT * FROM both WHERE who = 2").collect()

    assert is_judged(spark, other, read)


def test_both_sides_of_a_self_join_are_read(spark: Any, other: Any, tables: None) -> None:
    def read() -> None:
        spark.table(T).createOrReplaceTempView("both")
        spark.sql("SELECT * FROM both a JOIN both b ON a.n = b.n WHERE a.who = 1 AND b.who = 2").collect()

    assert is_judged(spark, other, read)


def test_a_table_that_one_statement_uses_in_whole_is_not_narrowed_by_another(
    spark: Any, other: Any, tables: None
) -> None:
    spark.sql(f"ALTER TABLE {T} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    add(spark, T, who=2)

    def read() -> None:
        assert spark.sql(f"SELECT * FROM table_changes('{T}', 3)").collect()
        spark.sql(f"SELECT * FROM {T} WHERE who = 2").collect()

    assert is_judged(spark, other, read)


def test_a_condition_is_about_the_column_that_it_names_whatever_the_columns_were_called(spark: Any, other: Any) -> None:
    """A column is stored under the name that it had first: here that is how the other one may be written."""
    spark.sql("CREATE TABLE renamed (A INT, b INT) USING delta")
    spark.sql("INSERT INTO renamed VALUES (5, 5)")
    spark.sql("ALTER TABLE renamed SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    spark.sql("ALTER TABLE renamed RENAME COLUMN A TO c")
    spark.sql("ALTER TABLE renamed RENAME COLUMN b TO a")
    spark.sql("CREATE TABLE seen (n BIGINT) USING delta")
    begins(spark)
    begins(other)
    spark.sql("INSERT INTO seen SELECT count(*) FROM renamed WHERE A = 1")
    other.sql("SELECT * FROM seen").collect()
    other.sql("INSERT INTO renamed (c, a) VALUES (99, 1)")
    other.sql("COMMIT")
    assert not commits(spark)


def test_a_condition_is_judged_however_its_columns_are_spelled(spark: Any, other: Any, tables: None) -> None:
    spark.sql("CREATE TABLE nested (At STRUCT<place INT>) USING delta")
    spark.sql("INSERT INTO nested SELECT struct(1)")
    assert not is_judged(spark, other, lambda: spark.sql(f"SELECT * FROM {T} WHERE WHO = 2").collect())
    assert is_judged(spark, other, lambda: spark.sql(f"SELECT * FROM {T} WHERE WHO = 1").collect())
    begins(spark)
    begins(other)
    spark.sql("SELECT * FROM nested WHERE AT.PLACE = 2").collect()
    other.sql(f"SELECT * FROM {OUT}").collect()
    add(spark, OUT)
    other.sql("INSERT INTO nested SELECT struct(7)")
    other.sql("COMMIT")
    assert commits(spark)


# --- each way to execute ----------------------------------------------------------------------------------------------


def _checkpoint(query: Any) -> None:
    query.localCheckpoint()


def _rdd(query: Any) -> None:
    query.rdd.count()


def _cached(query: Any) -> None:
    query.cache().collect()
    query.unpersist()


def _cached_before_it_is_filtered(query: Any) -> None:
    query.cache()
    query.where("n > 0").collect()
    query.unpersist()


def _viewed(query: Any) -> None:
    query.createOrReplaceTempView("viewed")
    query.sparkSession.sql("CACHE TABLE viewed")
    query.sparkSession.sql("SELECT n FROM viewed").collect()
    query.sparkSession.sql("UNCACHE TABLE viewed")


WAYS: dict[str, Callable[[Any], Any]] = {
    "collect": lambda query: query.collect(),
    "show": lambda query: query.show(),
    "toArrow": lambda query: query.toArrow(),
    "count": lambda query: query.count(),
    "isEmpty": lambda query: query.isEmpty(),
    "head": lambda query: query.head(),
    "toLocalIterator": lambda query: list(query.toLocalIterator()),
    "foreachPartition": lambda query: query.foreachPartition(lambda rows: None),
    "rdd": _rdd,
    "localCheckpoint": _checkpoint,
    "cache": _cached,
    "cache, then filter": _cached_before_it_is_filtered,
    "CACHE TABLE": _viewed,
}


def predicates(session: Any, root: Path, read: Callable[[], Any]) -> list[str] | None:
    """Return what the entry of a transaction that reads says of the table; None is any row."""
    begins(session)
    read()
    add(session, OUT)
    session.sql("COMMIT")
    timeline = TransactionalCatalog.open(str(root)).timeline
    [entry] = timeline.entries(timeline.head.version - 1, timeline.head.version)
    [found] = [each for each in entry.reads if str(each.name) == "default.t"]
    return found.predicates


@pytest.mark.parametrize("way", WAYS)
def test_however_a_query_is_executed_its_rows_are_read(spark: Any, root: Path, tables: None, way: str) -> None:
    def read() -> None:
        WAYS[way](spark.table(T).where("who = 1"))
        spark.table(T).where("who = 2").collect()  # it takes nothing away from what was read before

    found = predicates(spark, root, read)
    if "cache" in way.lower():  # of what is cached any row counts
        assert found is None
    else:
        assert found is not None
        assert len(found) == 2
        assert "1" in found[0]
        assert "2" in found[1]


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT count(*) FROM {T}",
        f"SELECT (SELECT max(n) FROM {T} WHERE who = 1)",
        f"SELECT * FROM {U} WHERE n IN (SELECT n FROM {T} WHERE who = 1)",
        f"SELECT * FROM {U} u WHERE NOT EXISTS (SELECT 1 FROM {T} t WHERE t.n = u.n AND t.who = 1)",
        f"WITH c AS (SELECT * FROM {T} WHERE who = 1) SELECT * FROM c a JOIN c b ON a.n = b.n + 1",
        f"SELECT * FROM (SELECT * FROM {T} WHERE who = 1 UNION ALL SELECT * FROM {T} WHERE who = 2) LIMIT 1",
    ],
)
def test_rows_are_read_wherever_a_query_names_the_table(spark: Any, other: Any, tables: None, query: str) -> None:
    assert is_judged(spark, other, lambda: spark.sql(query).collect())


def test_a_query_that_cannot_have_rows_reads_none(spark: Any, other: Any, tables: None) -> None:
    def read() -> None:
        spark.sql(f"SELECT * FROM {T} LIMIT 0").collect()
        spark.sql(f"SELECT * FROM {T} WHERE who = 2").explain()

    assert not is_judged(spark, other, read)


@pytest.mark.parametrize(("who", "judged"), [(1, True), (2, False)])
def test_explain_reads_what_its_plan_would_read(spark: Any, other: Any, tables: None, who: int, judged: bool) -> None:
    """A query is written down when it is planned, and nobody knows then that it will not be executed."""
    explain = f"EXPLAIN SELECT * FROM {T} WHERE who = {who}"
    assert is_judged(spark, other, lambda: spark.sql(explain).collect(), who=1) == judged


# --- statements that remove rows which they did not look for ----------------------------------------------------------

ONE_FROM_TWO = (
    f"SELECT 3 - who AS who, n + 100 AS n FROM {T} WHERE who = 2 UNION ALL SELECT 1 AS who, n + 200 AS n FROM {OUT}"
)
"""New rows of 1 out of the rows of 2, and of all rows of the table that the transaction beside it writes."""


def _dynamic(session: Any) -> None:
    session.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    session.sql(f"INSERT OVERWRITE {T} {ONE_FROM_TWO}")


def _replace_where(session: Any) -> None:
    rows = session.sql(ONE_FROM_TWO).write.format("delta").mode("overwrite")
    rows.option("replaceWhere", "who = 1").saveAsTable(T)


OVERWRITES: dict[str, Callable[[Any], Any]] = {
    "static": lambda session: session.sql(
        f"INSERT OVERWRITE {T} SELECT * FROM {T} WHERE who = 2 UNION ALL SELECT 2 AS who, n FROM {OUT}"
    ),
    "dynamic": _dynamic,
    "replaceWhere": _replace_where,
}


@pytest.mark.parametrize("way", OVERWRITES)
def test_an_overwrite_on_its_own_has_changed_rows_that_it_did_not_read(
    spark: Any, other: Any, tables: None, way: str
) -> None:
    """The rows of 1, which the transaction read, are gone, and nobody looked for them."""
    begins(spark)
    assert spark.sql(f"SELECT n FROM {T} WHERE who = 1 AND n < 100").collect() == [(1,)]
    add(spark, OUT, who=2)
    OVERWRITES[way](other)
    assert (1, 1) not in other.table(T).collect()
    assert not commits(spark)


def test_a_merge_on_its_own_has_changed_only_rows_that_it_looked_for(spark: Any, other: Any, tables: None) -> None:
    begins(spark)
    spark.sql(f"SELECT n FROM {T} WHERE who = 1").collect()
    add(spark, OUT, who=2)
    other.sql(f"MERGE INTO {T} t USING {OUT} o ON t.n = o.n AND t.who = 2 WHEN MATCHED THEN UPDATE SET n = 7")
    assert commits(spark)


# --- what was made before BEGIN ---------------------------------------------------------------------------------------


def test_a_table_from_before_begin_is_not_read_afresh_inside(spark: Any, other: Any, tables: None) -> None:
    for way, act in WAYS.items():
        unused, used, planned = spark.table(T), spark.table(T), spark.table(T)
        if way not in ("show", "count", "isEmpty", "head"):
            act(used)
        planned.explain()
        begins(spark)
        add(other)
        spark.sql("SELECT 1").collect()  # a job of an RDD is known by the last statement of its thread
        for made, frame in (("unused", unused), ("used", used), ("planned", planned)):
            if way != "localCheckpoint" or made == "unused":
                assert is_refused(spark, "25001", partial(act, frame)), (way, made)
        spark.sql("ROLLBACK")


def test_a_query_that_was_executed_before_begin_is_read_inside(spark: Any, other: Any, tables: None) -> None:
    query = spark.sql(f"SELECT * FROM {T} WHERE who = 1")
    query.collect()
    assert is_judged(spark, other, query.collect)


def test_a_query_of_another_version_is_refused_each_time(spark: Any, other: Any, tables: None) -> None:
    query = spark.sql(f"SELECT * FROM {T} WHERE who = 1")
    query.collect()
    add(other)
    begins(spark)
    assert is_refused(spark, "25001", query.collect)
    assert is_refused(spark, "25001", query.collect)
    assert commits(spark)


def test_an_rdd_from_before_begin_is_not_computed_inside(spark: Any, other: Any, tables: None) -> None:
    rdd = spark.table(T).rdd
    rdd.count()
    begins(spark)
    assert is_refused(spark, "25001", rdd.count)
    assert is_refused(spark, "25001", lambda: spark.createDataFrame(rdd, "who INT, n INT").collect())
    assert spark.table(T).rdd.count() == 2
    spark.sql("ROLLBACK")
    assert rdd.count() == 2


@pytest.fixture
def feed(spark: Any, tables: None) -> None:
    """Have the table tell its changes, from version 2 on."""
    spark.sql(f"ALTER TABLE {T} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")


def test_changes_from_before_begin_are_not_read_afresh_inside(spark: Any, other: Any, feed: None) -> None:
    changes = spark.sql(f"SELECT who, n FROM table_changes('{T}', 2)")
    cached = spark.read.option("readChangeFeed", "true").option("startingVersion", 2).table(T).select("n")
    ended = spark.sql(f"SELECT who, n FROM table_changes('{T}', 2, 2)")
    cached.cache().collect()
    begins(spark)
    add(other)
    for frame in (changes, cached):
        assert is_refused(spark, "25001", frame.collect)
        assert is_refused(spark, "25001", partial(frame.where, "n > 0"))
    assert is_refused(spark, "25001", lambda: changes.write.insertInto(OUT))
    assert ended.collect() == [], "what it reads cannot become another"
    assert spark.sql(f"SELECT * FROM table_changes('{T}', 2)").collect() == []
    spark.sql("ROLLBACK")
    cached.unpersist()


def test_changes_that_a_transaction_saw_are_not_returned_after_it(spark: Any, feed: None) -> None:
    begins(spark)
    add(spark)
    changes = spark.sql(f"SELECT who, n FROM table_changes('{T}', 2)").cache()
    assert changes.collect() == [(1, 10)]
    spark.sql("ROLLBACK")
    begins(spark)
    assert is_refused(spark, "25P01", changes.collect)
    spark.sql("ROLLBACK")
    changes.unpersist()


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT who, n FROM {T} VERSION AS OF 1",
        f"SELECT who, n FROM {T} FOR SYSTEM_VERSION AS OF 4",
        f"SELECT who, n FROM table_changes('{T}', 2)",
        "SELECT who, n FROM cloned",
    ],
)
def test_an_rdd_that_is_made_inside_is_computed_inside(spark: Any, feed: None, query: str) -> None:
    add(spark)
    spark.sql(f"CREATE TABLE cloned SHALLOW CLONE {T}")
    begins(spark)
    rdd = spark.sql(query).rdd
    assert rdd.collect()
    assert spark.createDataFrame(rdd, "who INT, n INT").collect()
    spark.sql("ROLLBACK")


def test_an_rdd_of_a_clone_that_is_made_inside_is_computed_inside(spark: Any, feed: None) -> None:
    begins(spark)
    spark.sql(f"CREATE TABLE cloned SHALLOW CLONE {T}")
    assert spark.table("cloned").rdd.count() == 2
    assert spark.sql("SELECT * FROM cloned").rdd.count() == 2
    spark.sql("ROLLBACK")


def test_a_checkpoint_from_before_begin_is_the_users_own(spark: Any, tables: None) -> None:
    kept = spark.table(T).localCheckpoint()
    begins(spark)
    assert kept.count() == 2
    assert commits(spark)


def test_rows_that_a_rollback_to_undid_are_not_returned_again(spark: Any, tables: None) -> None:
    begins(spark)
    spark.sql("SAVEPOINT s")
    add(spark)
    undone = spark.sql(f"SELECT * FROM {T} WHERE who = 1")
    assert len(undone.collect()) == 2
    spark.sql("ROLLBACK TO s")
    assert is_refused(spark, "25P01", undone.collect)
    spark.sql("ROLLBACK")


# --- caches -----------------------------------------------------------------------------------------------------------


def test_a_cache_from_before_begin_is_read_where_it_is_the_snapshot(spark: Any, other: Any, tables: None) -> None:
    query = spark.sql(f"SELECT * FROM {T} WHERE who = 1").cache()
    query.collect()
    assert is_judged(spark, other, query.collect)
    begins(spark)
    assert is_refused(spark, "25001", query.collect)
    assert is_refused(spark, "25001", lambda: query.where("n > 0").collect())
    spark.sql("ROLLBACK")
    query.unpersist()


@pytest.mark.parametrize("table", [T, OUT])
def test_a_statement_that_writes_from_a_cache_has_read_what_filled_it(
    spark: Any, root: Path, tables: None, table: str
) -> None:
    """The cache is older than what another process did, which read what the statement writes."""
    cached = spark.sql(f"SELECT * FROM {table} WHERE who > 0").cache()
    assert cached.count() == 2
    another = TransactionalCatalog.open(str(root))
    tx = another.begin()
    tx.read(tx.table(named("out")))
    stage(another, tx, table.removeprefix("lake.default."), add_file("x", partitionValues={"who": "1"}))
    another.commit(tx)
    assert cached.count() == 2
    assert is_refused(spark, "40001", lambda: cached.write.insertInto(OUT))
    cached.unpersist()


# --- failures ---------------------------------------------------------------------------------------------------------


class Stuck:
    """A listener of Spark's that does not come back until it is let go: its queue holds up all that share it."""

    def __init__(self) -> None:
        self.is_called, self.may_go = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("on"):
            raise AttributeError(name)

        def on_event(_: Any) -> None:
            self.is_called.set()
            self.may_go.wait(120)

        return on_event

    class Java:
        implements = ("org.apache.spark.scheduler.SparkListenerInterface",)


def test_a_failed_write_is_known_though_a_listener_holds_up_the_others(spark: Any, tables: None) -> None:
    context, stuck = spark._jsparkSession.sparkContext(), Stuck()
    context.addSparkListener(stuck)
    begins(spark)
    spark.table(T).count()
    assert stuck.is_called.wait(60)
    try:
        with pytest.raises(PySparkException):
            spark.sql(f"INSERT INTO {OUT} SELECT who, raise_error('no') FROM {T}")
        assert is_refused(spark, "25P02", lambda: spark.sql("COMMIT"))
    finally:
        stuck.may_go.set()
        context.removeSparkListener(stuck)
