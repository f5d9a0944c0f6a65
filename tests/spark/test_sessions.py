"""Whose a transaction is when several sessions, and several threads of one session, are at work in one driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lockstep.catalog import TransactionalCatalog
from lockstep.spark.bridge import is_open
from tests.support.gate import Gate, wait_until
from tests.support.lakes import named

T = "lake.default.t"
U = "lake.default.u"
MADE = "lake.default.made"


@pytest.fixture
def tables(spark: Any) -> None:
    """Make two empty tables."""
    for table in (T, U):
        spark.sql(f"CREATE TABLE {table} (id BIGINT)")


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def ids(session: Any, table: str = T) -> list[int]:
    return sorted(row.id for row in session.sql(f"SELECT id FROM {table}").collect())


def staged(root: Path) -> list[Path]:
    return [path for path in root.glob("**/_delta_log/_lockstep/**/*") if path.is_file()]


class Held:
    """A statement that appends a row to T on another thread, and stays at its gate until that is opened."""

    def __init__(self, spark: Any, threads: ThreadPoolExecutor, folder: Path, group: str) -> None:
        self._spark, self._gate, self._group = spark, Gate(folder, group), group
        self._running = threads.submit(self._run)
        wait_until(lambda: self._gate.is_reached or self._running.done(), "the statement does nothing")
        assert not self._running.done(), self._running.exception()

    def _run(self) -> None:
        self._spark.sparkContext.setJobGroup(self._group, self._group)
        self._spark.sparkContext.addJobTag(self._group)
        row = self._spark.range(9, 10).select(self._gate.column("id").alias("id"))
        row.write.mode("append").saveAsTable(T)

    def open(self) -> None:
        self._gate.open()

    def failure(self) -> BaseException | None:
        """Return why it failed, if it did, once it has ended."""
        return self._running.exception()


@pytest.fixture
def held(spark: Any, threads: ThreadPoolExecutor, tmp_path: Path) -> Iterator[Callable[[str], Held]]:
    """Return a function that begins such a statement, of this group and tag, and returns while it is at its gate."""
    begun = []

    def begin(group: str) -> Held:
        begun.append(Held(spark, threads, tmp_path, group))
        return begun[-1]

    yield begin
    for statement in begun:
        statement.open()


def state_of(statement: Held) -> str | None:
    """Return the SQLSTATE that a statement failed with."""
    error = statement.failure()
    assert isinstance(error, PySparkException), error
    return error.getSqlState()


# --- threads of one session -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("is_shared", [False, True], ids=["one session", "sessions that share"])
def test_what_threads_do_in_a_transaction_is_one_version_of_each_table(
    spark: Any, connect: Any, threads: ThreadPoolExecutor, is_shared: bool
) -> None:
    """On the same table and on others, all at once: none is lost."""
    other = connect()
    workers = [connect() if is_shared else spark for _ in range(5)]
    for session in {spark, *workers} if is_shared else ():
        session.sql("SET lockstep.shared_transaction = load")
    spark.sql("BEGIN")
    together = Barrier(5)

    def work(session: Any, number: int) -> None:
        together.wait()
        if number == 4:
            session.sql("CREATE TABLE lake.default.made AS SELECT 4L AS id")
        for id in (number, number + 10):
            session.sql(f"INSERT INTO {U if number == 3 else T} VALUES ({id})")

    for done in [threads.submit(work, session, number) for number, session in enumerate(workers)]:
        done.result()
    assert (ids(other), ids(other, U)) == ([], [])
    (row,) = spark.sql("COMMIT").collect()
    assert (row.tables_changed, row.rows_added) == (3, 11)
    assert (ids(other), ids(other, U), ids(other, "lake.default.made")) == ([0, 1, 2, 4, 10, 11, 12, 14], [3, 13], [4])
    assert other.sql(f"SELECT id FROM {T} VERSION AS OF 1").count() == 8


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK", "ROLLBACK TO before"])
def test_a_statement_that_runs_while_its_transaction_ends_is_refused(
    spark: Any, root: Path, held: Callable[[str], Held], end: str
) -> None:
    """It is in whole or not at all, leaves nothing behind, and is no part of the transaction that comes next."""
    spark.sql("BEGIN")
    spark.sql("SAVEPOINT before")
    spark.sql(f"INSERT INTO {T} VALUES (1)")
    late = held("late")
    spark.sql(end)
    before = [1] if end == "COMMIT" else []
    if is_open(spark):
        late.open()
        assert state_of(late) == "25000"
        with pytest.raises(PySparkException, match="25P02"):
            spark.sql("COMMIT")
    else:
        spark.sql("BEGIN")
        spark.sql(f"INSERT INTO {T} VALUES (2)")
        late.open()
        assert state_of(late) == "25P01"
        spark.sql("COMMIT")
        before = [*before, 2]
    assert (ids(spark), staged(root)) == (before, [])


@pytest.mark.usefixtures("tables")
def test_commit_and_rollback_of_two_threads_end_a_transaction_once(spark: Any, threads: ThreadPoolExecutor) -> None:
    spark.sql("BEGIN")
    spark.sql(f"INSERT INTO {T} VALUES (1)")
    together = Barrier(4)

    def end(statement: str) -> str | None:
        together.wait()
        try:
            spark.sql(statement)
        except PySparkException as error:
            return error.getSqlState()
        return statement

    answers = [threads.submit(end, statement) for statement in ("COMMIT", "ROLLBACK", "COMMIT", "ROLLBACK")]
    (ended,) = {answer.result() for answer in answers} - {"25P01"}
    assert sorted(answer.result() or "" for answer in answers)[:3] == ["25P01"] * 3
    assert ids(spark) == ([1] if ended == "COMMIT" else [])
    assert not is_open(spark)


# --- statements that are cancelled ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("how", ["group", "tag"])
def test_a_cancelled_write_fails_its_transaction(spark: Any, root: Path, held: Callable[[str], Held], how: str) -> None:
    """COMMIT refuses, unless what was cancelled is taken back by a savepoint from before."""
    for last in ("COMMIT", "ROLLBACK TO before"):
        spark.sql("BEGIN")
        spark.sql(f"INSERT INTO {T} VALUES (1)")
        spark.sql("SAVEPOINT before")
        cancelled = held(f"{how}-{last[:6]}")
        context = spark.sparkContext
        (context.cancelJobGroup if how == "group" else context.cancelJobsWithTag)(f"{how}-{last[:6]}")
        assert isinstance(cancelled.failure(), Py4JJavaError | PySparkException)
        if last == "COMMIT":
            with pytest.raises(PySparkException, match="25P02"):
                spark.sql(last)
            assert (ids(spark), staged(root)) == ([], [])
        else:
            spark.sql(last)
            spark.sql("COMMIT")
    assert (ids(spark), staged(root)) == ([1], [])


@pytest.mark.usefixtures("tables")
def test_a_cancelled_statement_outside_a_transaction_changes_nothing(
    spark: Any, root: Path, held: Callable[[str], Held]
) -> None:
    cancelled = held("alone")
    spark.sparkContext.cancelJobGroup("alone")
    assert isinstance(cancelled.failure(), Py4JJavaError | PySparkException)
    cancelled.open()
    assert ids(spark) == []
    assert TransactionalCatalog.open(str(root)).timeline.head.version == 2


# --- other sessions ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("tables")
def test_a_clone_has_its_parents_settings_and_not_its_transaction(spark: Any) -> None:
    """Neither do the parent's rows show in it, nor does a failure of the clone fail the parent's transaction."""
    spark.conf.set("lockstep.isolation", "SNAPSHOT")
    spark.sql("BEGIN")
    spark.sql(f"INSERT INTO {T} VALUES (1)")
    clone = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    assert (clone.conf.get("lockstep.isolation"), is_open(clone), ids(clone)) == ("SNAPSHOT", False, [])
    with pytest.raises((Py4JJavaError, PySparkException)):
        clone.sql(f"INSERT INTO {U} SELECT CAST(raise_error('no luck') AS BIGINT)")
    (mine,) = clone.sql("BEGIN").collect()
    clone.sql(f"INSERT INTO {U} VALUES (2)")
    spark.sql("COMMIT")
    assert is_open(clone)
    clone.sql("COMMIT")
    assert (mine.database_version, ids(clone), ids(spark, U)) == (2, [1], [2])


@pytest.mark.usefixtures("tables")
def test_nobody_writes_into_another_sessions_transaction_by_its_uri(spark: Any, connect: Any) -> None:
    """Its id is in SHOW TRANSACTIONS, and where a table lies in DESCRIBE DETAIL."""
    (folder,) = spark.sql(f"DESCRIBE DETAIL {T}").select("location").first()
    spark.sql(f"INSERT INTO {T} VALUES (1)")
    (began,) = spark.sql("BEGIN").collect()
    spark.sql(f"INSERT INTO {T} VALUES (2)")
    uri = f"lockstep://{began.transaction_id}-1.file{folder.removeprefix('file:')}"
    other = connect()
    rows = other.range(7, 8)

    def refused(write: Callable[[], object]) -> None:
        with pytest.raises(PySparkException, match="of another session") as error:
            write()
        assert error.value.getSqlState() == "25001"

    def all_refused() -> None:
        refused(lambda: other.sql(f"ALTER TABLE delta.`{uri}` SET TBLPROPERTIES ('mine' = 'now')"))
        refused(lambda: other.sql(f"RESTORE delta.`{uri}` TO VERSION AS OF 0"))

    refused(lambda: rows.write.format("delta").mode("append").save(uri))
    refused(lambda: rows.write.format("delta").mode("overwrite").option("replaceWhere", "id > 1").save(uri))
    all_refused()
    other.sql("BEGIN")
    all_refused()
    other.sql("ROLLBACK")
    assert ids(spark) == [1, 2]
    spark.range(3, 4).write.mode("overwrite").option("replaceWhere", "id = 3").saveAsTable(T)
    spark.sql("COMMIT")
    assert (ids(spark), ids(other)) == ([1, 2, 3], [1, 2, 3])


@pytest.mark.usefixtures("tables")
def test_a_misspelt_setting_is_refused_however_it_was_set(spark: Any) -> None:
    with pytest.raises(PySparkException, match=r"did you mean lockstep\.isolation\?") as refusal:
        spark.sql("SET lockstep.isolaton = SNAPSHOT")
    assert (refusal.value.getCondition(), refusal.value.getSqlState()) == ("LOCKSTEP_UNDEFINED", "42704")
    assert spark.conf.get("lockstep.isolaton", None) is None
    spark.conf.set("lockstep.isolaton", "SNAPSHOT")
    for statement in ("BEGIN", f"INSERT INTO {T} VALUES (1)"):
        with pytest.raises(PySparkException, match=r"did you mean lockstep\.isolation\?"):
            spark.sql(statement)
    assert (is_open(spark), ids(spark)) == (False, [])
    spark.conf.unset("lockstep.isolaton")
    spark.sql(f"INSERT INTO {T} VALUES (1)")


@pytest.mark.usefixtures("tables")
def test_sessions_on_threads_of_their_own_do_not_see_each_other(connect: Any, threads: ThreadPoolExecutor) -> None:
    """A transaction in each of them, all at once."""
    together = Barrier(3)

    def work(number: int) -> list[int]:
        session = connect()
        session.sql("BEGIN ISOLATION LEVEL SNAPSHOT")
        session.sql(f"INSERT INTO {T} VALUES ({number})")
        together.wait()
        seen = ids(session)
        session.sql("COMMIT")
        return seen

    assert [done.result() for done in [threads.submit(work, number) for number in range(3)]] == [[0], [1], [2]]
    assert ids(connect()) == [0, 1, 2]


@pytest.mark.parametrize(
    "first_use",
    [
        pytest.param(lambda session: session.range(2).write.saveAsTable(MADE), id="a write"),
        pytest.param(lambda session: session.range(2).writeTo(MADE).create(), id="a v2 write"),
        pytest.param(lambda session: session.catalog.tableExists(MADE), id="the catalog's API"),
        pytest.param(lambda session: session.catalog.setCurrentCatalog("lake"), id="the current catalog"),
    ],
)
def test_a_catalog_has_its_own_sessions_settings_whichever_session_is_active(
    spark: Any, spark_session: Any, root: Path, tmp_path: Path, first_use: Callable[[Any], Any]
) -> None:
    other = spark_session.newSession()
    other.conf.set("spark.sql.catalog.lake.root", str(tmp_path / "theirs"))
    spark_session._jvm.org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)
    first_use(other)
    other.sql(f"CREATE TABLE IF NOT EXISTS {MADE} AS SELECT 1 AS id")
    assert not spark.catalog.tableExists(MADE)
    assert named("default.made") in TransactionalCatalog.open(str(tmp_path / "theirs")).database().tables
