"""Beside us: plain Delta writers, and people who edit, delete or lose what the lake is made of."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from pyspark.errors import PySparkException

import lockstep
from lockstep.delta.log import commit_path
from lockstep.errors import (
    ConflictError,
    CorruptTimelineError,
    InvalidError,
    LockstepError,
    MissingFilesError,
    UnavailableError,
)
from lockstep.spark.raised import from_spark
from lockstep.storage import open_storage
from lockstep.timeline.entry import Name
from lockstep.timeline.files import FOLDER, entry_path
from tests.support.faulty import FaultyStorage
from tests.support.lakes import open_catalog, remove, stage
from tests.support.sessions import CATALOG, new_session

pytestmark = pytest.mark.long

T = f"{CATALOG}.default.t"
NAME = Name(namespace=("default",), table="t")


@pytest.fixture
def folder(spark: Any, root: Path) -> Path:
    """Return the folder of table t, which has the rows 1 and 2 in two files, as any other writer may know it."""
    spark.sql(f"CREATE TABLE {T} (id BIGINT)")
    spark.sql(f"INSERT INTO {T} VALUES (1)")
    spark.sql(f"INSERT INTO {T} VALUES (2)")
    return root / catalog(root).database().tables[NAME].location


def catalog(root: Path) -> lockstep.TransactionalCatalog:
    return lockstep.TransactionalCatalog.open(str(root))


def kinds(root: Path) -> list[str]:
    """The kinds of all entries after those that made the table."""
    return [entry.kind for entry in catalog(root).timeline.entries(3)]


def ids(session: Any, table: str = T) -> list[int]:
    return sorted(row.id for row in session.sql(f"SELECT id FROM {table}").collect())


def plain_append(folder: Path, *ids: int) -> None:
    """Commit each as delta-rs does."""
    for id in ids:
        write_deltalake(folder, pa.table({"id": pa.array([id], pa.int64())}), mode="append")


def refusal(session: Any, sql: str) -> PySparkException:
    with pytest.raises(PySparkException) as caught:
        session.sql(sql).collect()
    return caught.value


# --- plain Delta writers ----------------------------------------------------------------------------------------------


def test_what_delta_rs_does_is_there_at_the_next_touch(spark: Any, folder: Path, root: Path) -> None:
    plain_append(folder, 3)
    assert ids(spark) == [1, 2, 3]
    DeltaTable(folder).delete("id = 1")
    plain_append(folder, 4)
    assert ids(spark) == [2, 3, 4]
    assert kinds(root) == ["external", "external"], "one for each time it was noticed"
    spark.sql(f"INSERT INTO {T} VALUES (5)")
    assert ids(spark) == [2, 3, 4, 5]
    assert ids(spark, f"{T} FOR SYSTEM_VERSION AS OF 4") == [1, 2, 3], "and it is part of the database's history"


def test_what_spark_writes_by_path_is_there_at_the_next_touch(spark: Any, other: Any, folder: Path, root: Path) -> None:
    other.createDataFrame([(3,)], "id BIGINT").write.format("delta").mode("append").save(str(folder))
    other.sql(f"UPDATE spark_catalog.delta.`{folder}` SET id = 10 WHERE id = 1")
    assert ids(spark) == [2, 3, 10]
    assert kinds(root) == ["external"]
    spark.sql(f"UPDATE {T} SET id = 11 WHERE id = 10")
    assert sorted(DeltaTable(folder).to_pyarrow_table()["id"].to_pylist()) == [2, 3, 11]


def test_in_a_race_of_both_every_row_lands(spark: Any, folder: Path) -> None:
    """Each takes versions that the other was about to write."""
    with ThreadPoolExecutor(1) as pool:
        foreign = pool.submit(plain_append, folder, *range(10, 20))
        ours = 20
        while not foreign.done() or ours == 20:
            spark.sql(f"INSERT INTO {T} VALUES ({ours})")
            ours += 1
        foreign.result()
    assert ids(spark) == [1, 2, *range(10, ours)]


def test_a_transaction_that_uses_the_table_for_the_first_time_sees_it(spark: Any, folder: Path, root: Path) -> None:
    """Its snapshot moves on, whatever it has done to other tables; what it has seen is as it was."""
    spark.sql("CREATE TABLE lake.default.other (id BIGINT)")
    spark.sql("BEGIN ISOLATION LEVEL SNAPSHOT")
    spark.sql("CREATE TABLE lake.default.made AS SELECT 7L AS id")
    spark.sql("INSERT INTO lake.default.other VALUES (8)")
    spark.sql("SAVEPOINT s")
    plain_append(folder, 3)
    spark.sql(f"INSERT INTO lake.default.made SELECT id FROM {T}")
    assert ids(spark, "lake.default.made") == [1, 2, 3, 7]
    assert (ids(spark), ids(spark, "lake.default.other")) == ([1, 2, 3], [8])
    plain_append(folder, 4)
    assert ids(spark) == [1, 2, 3], "what it has seen stays"
    spark.sql("ROLLBACK TO s")
    assert (ids(spark), ids(spark, "lake.default.made")) == ([1, 2, 3], [7])
    spark.sql(f"DELETE FROM {T} WHERE id = 3")
    spark.sql("COMMIT")
    assert (ids(spark), ids(spark, "lake.default.made"), ids(spark, "lake.default.other")) == ([1, 2, 4], [7], [8])
    assert kinds(root)[-3:] == ["external", "external", "transaction"]


def test_a_transaction_that_has_seen_what_changed_since_does_not(spark: Any, other: Any, folder: Path) -> None:
    """The two were never there together: a snapshot with both would be of no time."""
    spark.sql("CREATE TABLE lake.default.other AS SELECT 7L AS id")
    spark.sql("BEGIN ISOLATION LEVEL SNAPSHOT")
    assert ids(spark, "lake.default.other") == [7]
    other.sql("INSERT INTO lake.default.other VALUES (8)")
    plain_append(folder, 3)
    assert (ids(spark), ids(spark, "lake.default.other")) == ([1, 2], [7])
    spark.sql("COMMIT")
    assert (ids(spark), ids(spark, "lake.default.other")) == ([1, 2, 3], [7, 8])


def test_a_transaction_that_has_used_the_table_does_not_see_it_and_lands_behind_it(
    spark: Any, folder: Path, root: Path
) -> None:
    spark.sql("BEGIN ISOLATION LEVEL SNAPSHOT")
    assert ids(spark) == [1, 2]
    plain_append(folder, 3)
    assert ids(spark) == [1, 2]
    spark.sql(f"INSERT INTO {T} VALUES (4)")
    assert ids(spark) == [1, 2, 4]
    spark.sql("COMMIT")
    assert ids(spark) == [1, 2, 3, 4]
    assert kinds(root) == ["external", "transaction"]


def test_a_transaction_that_conflicts_with_it_is_refused(spark: Any, folder: Path) -> None:
    """The plain writer was first, so its change stands, and ours is told to run again."""
    spark.sql("BEGIN ISOLATION LEVEL SNAPSHOT")
    spark.sql(f"UPDATE {T} SET id = 10 WHERE id = 1")
    DeltaTable(folder).delete("id = 1")
    error = refusal(spark, "COMMIT")
    assert error.getSqlState() == "40001"
    assert isinstance(from_spark(error), ConflictError)
    assert "of table default.t, as this transaction does" in str(error)
    assert ids(spark) == [2]


def test_nothing_foreign_is_lost_to_a_dropped_table(spark: Any, folder: Path) -> None:
    spark.sql("BEGIN")
    spark.sql(f"DROP TABLE {T}")
    plain_append(folder, 3)
    spark.sql("COMMIT")
    assert sorted(DeltaTable(folder).to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3], "its files stay where they are"


# --- logs that were cleaned up ----------------------------------------------------------------------------------------


def left_to_plain_writers(session: Any, folder: Path) -> None:
    """Have plain writers commit up to version 20, where Spark makes a checkpoint and cleans up a log that is old."""
    plain_append(folder, *range(3, 20))
    log = folder / "_delta_log"
    for file in log.iterdir():
        if file.is_file():
            os.utime(file, (0, 0))
    session.createDataFrame([(20,)], "id BIGINT").write.format("delta").mode("append").save(str(folder))
    left = sorted(path.name for path in log.glob("*.json"))
    assert left == [f"{20:020d}.json"], "Delta's clean-up has taken all that the timeline knows"


def test_a_table_left_to_plain_writers_for_a_month_is_used_as_ever(
    spark: Any, other: Any, connect: Callable[[], Any], folder: Path, root: Path
) -> None:
    session, late = connect(), connect()
    for each in (session, late):
        each.sql("BEGIN")
        assert ids(each) == [1, 2]
    session.sql(f"INSERT INTO {T} VALUES (100)")
    left_to_plain_writers(other, folder)
    error = refusal(session, "COMMIT")
    assert error.getSqlState() == "40001"
    late.sql("ROLLBACK")
    assert ids(spark) == [*range(1, 21)]
    assert kinds(root) == ["external"]
    spark.sql("BEGIN")
    spark.sql(f"UPDATE {T} SET id = 30 WHERE id = 3")
    spark.sql(f"INSERT INTO {T} VALUES (31)")
    spark.sql("COMMIT")
    expected = [1, 2, *range(4, 21), 30, 31]
    assert ids(spark) == ids(connect()) == expected
    assert sorted(DeltaTable(folder).to_pyarrow_table()["id"].to_pylist()) == expected
    error = refusal(spark, f"SELECT * FROM {T} FOR SYSTEM_VERSION AS OF 3")
    assert error.getSqlState() == "22003", "what the clean-up took is not readable any more"
    assert "Available versions: [20, 21]" in str(error)


def test_a_commit_that_somebody_deleted_is_published_again(
    spark: Any, connect: Callable[[], Any], folder: Path, root: Path
) -> None:
    """Plain readers cannot read the table then; the next use of it by Lockstep makes it whole."""
    gone = folder / "_delta_log" / f"{1:020d}.json"
    gone.unlink()
    with pytest.raises(DeltaError):
        DeltaTable(folder).to_pyarrow_table()
    catalog(root).database([NAME])
    assert sorted(DeltaTable(folder).to_pyarrow_table()["id"].to_pylist()) == [1, 2]
    assert ids(connect()) == [1, 2]


def test_time_travel_reads_what_a_dead_driver_ratified(spark: Any, folder: Path, root: Path) -> None:
    store = FaultyStorage(open_storage(str(root)))
    dead = open_catalog(store)
    tx = dead.begin()
    stage(dead, tx, "t", remove(DeltaTable(folder).file_uris()[0].rsplit("/", 1)[1]), operation="DELETE")
    store.fail("put_if_absent", path=commit_path(tx.table(NAME).location, 3), times=9)
    assert dead.commit(tx).version == 4
    assert len(ids(spark, f"{T} FOR SYSTEM_VERSION AS OF 4")) == 1


# --- a lake that is damaged, or not there -----------------------------------------------------------------------------


def same_from_python(error: PySparkException, kind: type[LockstepError], call: Callable[[], object]) -> None:
    """Check that Python, without Spark, says the same as SQL does."""
    with pytest.raises(kind) as caught:
        call()
    assert error.getSqlState() == caught.value.sqlstate
    assert caught.value.message in str(error)
    assert type(from_spark(error)) is kind


def test_a_corrupt_entry_is_named_with_what_was_expected(spark: Any, folder: Path, root: Path) -> None:
    path = root / entry_path(4)
    path.write_text('{"format": 1, "version": 4, "kind": "surprise"}')
    for sql in (f"SELECT * FROM {T}", "BEGIN", f"INSERT INTO {T} VALUES (3)", "SHOW TABLES"):
        error = refusal(spark, sql)
        assert error.getSqlState() == "XX001"
        assert f"{entry_path(4)}: expected a timeline entry" in str(error)
        same_from_python(error, CorruptTimelineError, lambda: catalog(root))
    path.unlink()
    assert ids(spark) == [1, 2]


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda root: None, InvalidError, "no folder"),
        (lambda root: root.mkdir(), InvalidError, "no Lockstep timeline at file://"),
        (lambda root: root.write_text(""), InvalidError, "is a file: the root of a lake is a folder"),
    ],
)
def test_a_root_that_is_no_lake(
    spark_session: Any, root: Path, make: Callable[[Path], object], kind: type[LockstepError], message: str
) -> None:
    make(root)
    session = spark_session.newSession()
    session.conf.set(f"spark.sql.catalog.{CATALOG}.root", str(root))
    session.conf.set(f"spark.sql.catalog.{CATALOG}.create", "false")
    error = refusal(session, f"SELECT * FROM {T}")
    assert message in str(error)
    same_from_python(error, kind, lambda: catalog(root))


def test_a_root_that_cannot_be_made(spark_session: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    root = tmp_path / "file" / "lake"
    session = spark_session.newSession()
    session.conf.set(f"spark.sql.catalog.{CATALOG}.root", str(root))
    error = refusal(session, f"SELECT * FROM {T}")
    assert error.getSqlState() == "58030"
    same_from_python(error, UnavailableError, lambda: lockstep.TransactionalCatalog.open(str(root), create=True))


def test_a_timeline_that_cannot_be_written(spark: Any, folder: Path, root: Path) -> None:
    """Nothing is committed, there is no doubt about it, and the transaction may be committed once it can be."""
    spark.sql("BEGIN")
    spark.sql(f"INSERT INTO {T} VALUES (3)")
    timeline = (root / FOLDER).rename(root / "elsewhere")
    (root / FOLDER).write_text("in the way")
    error = refusal(spark, "COMMIT")
    assert error.getSqlState() == "58030"
    assert f"cannot write {entry_path(4)} in file://{root}" in str(error)
    (root / FOLDER).unlink()
    timeline.rename(root / FOLDER)
    assert spark.sql("COMMIT").collect()[0].database_version == 4
    assert ids(spark) == [1, 2, 3]


def test_a_table_whose_folder_somebody_deleted(
    spark: Any, connect: Callable[[], Any], folder: Path, root: Path
) -> None:
    spark.sql(f"CREATE TABLE {CATALOG}.default.u AS SELECT 1L AS id")
    shutil.rmtree(folder)
    select, insert, update = f"SELECT * FROM {T}", f"INSERT INTO {T} VALUES (3)", f"UPDATE {T} SET id = 3"
    new = connect()
    for sql in (select, insert, update):  # Delta may still have the table in its cache here, and find out only later
        error = refusal(spark, sql)
        assert error.getSqlState() in ("58030", "42P01", None)
        assert "no table can be read in" in str(error) or "doesn't exist" in str(error)
    for sql in (select, insert, update):
        error = refusal(new, sql)
        assert error.getSqlState() == "58030"
        assert "lake.default.t is in the catalog, but no table can be read in" in str(error)
        assert str(folder) in str(error)
    with pytest.raises(PySparkException, match="no table can be read in"):
        new.table(T).collect()
    for session in (spark, new):
        assert ids(session, f"{CATALOG}.default.u") == [1]
    assert not (folder / "_delta_log").exists() or not any((folder / "_delta_log").iterdir()), "nothing was half made"
    spark.sql(f"DROP TABLE {T}")
    assert [row.tableName for row in spark.sql("SHOW TABLES").collect()] == ["u"]


@pytest.mark.parametrize("has_data", [False, True], ids=["as a backup has it", "but for logs"])
def test_a_table_that_is_older_than_its_timeline_is_told_or_brought_up_to_date(
    spark: Any, folder: Path, root: Path, tmp_path: Path, has_data: bool
) -> None:
    """A backup that copies tables first: who writes one must not wait for ever for a version that never comes."""
    spark.sql("CREATE TABLE u (id BIGINT)")
    copy = tmp_path / "copy"
    shutil.copytree(root / "default", copy / "default")
    spark.sql(f"INSERT INTO {T} VALUES (3)")
    spark.sql(f"INSERT INTO {T} VALUES (4)")
    shutil.copytree(root / "_lockstep", copy / "_lockstep")
    if has_data:
        for file in folder.glob("*.parquet"):
            shutil.copy(file, copy / folder.relative_to(root))
    session = new_session(spark, copy)
    session.sql("INSERT INTO u VALUES (1)")
    assert ids(session, "u") == [1], "other tables go on"
    if has_data:
        assert ids(session) == [1, 2, 3, 4]
        session.sql(f"INSERT INTO {T} VALUES (5)")
        assert ids(session) == [1, 2, 3, 4, 5]
        return
    for begin, end in (("SELECT 1", "SELECT 1"), ("BEGIN", "ROLLBACK")):
        session.sql(begin)
        for statement in (f"SELECT * FROM {T}", f"INSERT INTO {T} VALUES (5)", f"DELETE FROM {T} WHERE id = 1"):
            error = refusal(session, statement)
            assert error.getSqlState() == "XX001", statement
            assert "Restore" in str(error)
        session.sql(end)
    session.sql(f"DROP TABLE {T}")
    session.sql(f"CREATE TABLE {T} (id BIGINT)")
    assert ids(session) == [], "a way out"


@pytest.mark.parametrize("statement", [f"INSERT INTO {T} VALUES (3)", f"DELETE FROM {T} WHERE id = 7"])
def test_a_plain_vacuum_beside_a_transaction_is_noticed_at_commit(
    folder: Path, spark: Any, other: Any, statement: str
) -> None:
    """It takes new data files, and new deletion vectors, for what no version names; the table must stay readable."""
    plain = f"delta.`{folder}`"
    spark.sql(f"ALTER TABLE {T} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"INSERT INTO {T} SELECT /*+ COALESCE(1) */ id FROM range(6, 9)")
    before = ids(other)
    other.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")

    def work(beside: str) -> None:
        with lockstep.transaction(spark):
            spark.sql(statement)
            other.sql(beside).collect()

    with pytest.raises(MissingFilesError, match=r"1 of the 1 files that transaction .* wrote are gone"):
        work(f"VACUUM {plain} RETAIN 0 HOURS")
    assert ids(other) == ids(spark) == before
    work(f"VACUUM {plain} RETAIN 24 HOURS")
    assert ids(other) != before
