"""Delta's checkpoints after COMMIT: at the versions where plain Delta has them, by the table's own interval."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, PostCommitHookProperties, write_deltalake

import lockstep
from lockstep.delta.publish import publish
from lockstep.lake.verify import verify
from tests.support.cancelling import first_job_met
from tests.support.plain_sql import PlainSql

T = "lake.default.t"
DAY_S = 24 * 60 * 60
EVERY = "'delta.checkpointInterval' = '{}'"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainSql]:
    process = PlainSql(tmp_path_factory.mktemp("plain"))
    yield process
    process.close()


def folder_of(root: Path, table: str = "t") -> Path:
    (folder,) = root.glob(f"**/{table}-*/_delta_log/..")
    return folder.resolve()


def checkpoints(folder: Path) -> list[int]:
    """The versions that have a checkpoint, of either kind."""
    return sorted(int(path.name[:20]) for path in folder.glob("_delta_log/[0-9]*.checkpoint.*"))


def last_checkpoint(folder: Path) -> int:
    """The one that `_last_checkpoint` names; -1 without."""
    file = folder / "_delta_log" / "_last_checkpoint"
    return int(json.loads(file.read_text())["version"]) if file.exists() else -1


def commits(session: Any, *statements: str) -> None:
    session.sql("BEGIN")
    for statement in statements:
        session.sql(statement)
    session.sql("COMMIT")


def create(properties: str, table: str = T) -> str:
    return f"CREATE TABLE {table} (id BIGINT) USING delta TBLPROPERTIES ({properties})"


def append_zero(folder: Path) -> None:
    """Commit as delta-rs does, which writes no checksums, and has another rule for checkpoints."""
    rows = pa.table({"id": pa.array([0], pa.int64())})
    hooks = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
    write_deltalake(folder, rows, mode="append", post_commithook_properties=hooks)


def check_lake(root: Path) -> None:
    catalog = lockstep.TransactionalCatalog.open(str(root))
    assert verify(catalog.lake.storage, catalog.timeline).differences == ()


# --- beside plain Delta -----------------------------------------------------------------------------------------------

PROPERTIES = {
    "one": EVERY.format(1),
    "three": EVERY.format(3),
    "large": EVERY.format(1000),
    "ten": "'a' = 'b'",
    "sidecars": "'delta.checkpointPolicy' = 'v2', " + EVERY.format(2),
}
HEAD_START = {"three": 1, "large": 9, "ten": 8}
"""Versions that a writer that knows no checksums adds first: none is there to say what the interval is."""

EXPECTED = {"one": [1, 2], "three": [3], "large": [], "ten": [10], "sidecars": [2]}


@pytest.mark.deep
def test_checkpoints_are_at_the_versions_where_plain_deltas_are(spark: Any, root: Path, plain: PlainSql) -> None:
    for table, properties in PROPERTIES.items():
        spark.sql(create(properties, f"lake.default.{table}"))
        plain.sql(create(properties, table))
        for folder in (folder_of(root, table), plain.tables / table):
            for _ in range(HEAD_START.get(table, 0)):
                append_zero(folder)
    for id in (1, 2):
        commits(spark, *(f"INSERT INTO lake.default.{table} VALUES ({id})" for table in PROPERTIES))
        plain.sql(*(f"INSERT INTO {table} VALUES ({id})" for table in PROPERTIES))
    ours = {table: folder_of(root, table) for table in PROPERTIES}
    theirs = {table: plain.tables / table for table in PROPERTIES}
    assert {table: checkpoints(folder) for table, folder in ours.items()} == EXPECTED
    assert {table: checkpoints(folder) for table, folder in theirs.items()} == EXPECTED
    newest = {table: max(found, default=-1) for table, found in EXPECTED.items()}
    assert {table: last_checkpoint(folder) for table, folder in ours.items()} == newest
    assert len(list(ours["sidecars"].glob("_delta_log/_sidecars/[!.]*.parquet"))) == 1
    found = {table: plain.look(folder) for table, folder in ours.items()}
    assert found == {table: plain.look(folder) for table, folder in theirs.items()}
    assert {table: look["checkpoint"] for table, look in found.items()} == newest, "plain Delta reads it"
    assert [look["ids"] for look in found.values()] == [[0] * HEAD_START.get(table, 0) + [1, 2] for table in PROPERTIES]
    check_lake(root)


@pytest.mark.deep
def test_a_log_is_cleaned_up_as_by_plain_delta_but_for_what_can_be_read(
    spark: Any, root: Path, plain: PlainSql, connect: Callable[[], Any]
) -> None:
    day = "'interval 1 day'"
    retention = f"'delta.logRetentionDuration' = {day}, 'delta.deletedFileRetentionDuration' = {day}"
    expiring = f"{EVERY.format(1)}, {retention}"
    kept = f"{expiring}, 'delta.enableExpiredLogCleanup' = 'false'"
    tables = {"expiring": expiring, "kept": kept}
    for table, properties in tables.items():
        spark.sql(create(properties, f"lake.default.{table}"))
        plain.sql(create(properties, table))
    folders = {table: (folder_of(root, table), plain.tables / table) for table in tables}
    for id in (1, 2, 3):
        for both in folders.values():
            for folder in both:
                age(folder)
        commits(spark, *(f"INSERT INTO lake.default.{table} VALUES ({id})" for table in tables))
        plain.sql(*(f"INSERT INTO {table} VALUES ({id})" for table in tables))
    found = {table: [versions(folder) for folder in both] for table, both in folders.items()}
    assert found["kept"] == [[0, 1, 2, 3]] * 2
    ours, theirs = found["expiring"]
    assert theirs[0] > 0, "some of it is gone"
    assert ours == [0, 1, 2, 3], "no database version has expired"
    for table, (folder, other) in folders.items():
        assert plain.look(folder) == plain.look(other)
        rows = connect().sql(f"SELECT id FROM lake.default.{table}").collect()
        assert sorted(row.id for row in rows) == [1, 2, 3]
    check_lake(root)


def age(folder: Path) -> None:
    """Have all that is in a log be as old as no log is kept; later versions are later."""
    long_ago = time.time() - 40 * DAY_S
    for place, file in enumerate(sorted(path for path in (folder / "_delta_log").iterdir() if path.is_file())):
        os.utime(file, (long_ago + place, long_ago + place))


def versions(folder: Path) -> list[int]:
    """Those that have their commit in the log."""
    return sorted(int(path.stem) for path in folder.glob("_delta_log/*.json") if re.fullmatch(r"\d{20}", path.stem))


# --- what a transaction does to it ------------------------------------------------------------------------------------


def test_the_interval_is_the_one_that_the_transaction_set(spark: Any, root: Path) -> None:
    spark.sql(create(EVERY.format(1000)))
    commits(spark, f"INSERT INTO {T} VALUES (1)", f"ALTER TABLE {T} SET TBLPROPERTIES ({EVERY.format(1)})")
    assert checkpoints(folder_of(root)) == [1]
    commits(spark, f"ALTER TABLE {T} UNSET TBLPROPERTIES ('delta.checkpointInterval')", f"INSERT INTO {T} VALUES (2)")
    commits(spark, create(EVERY.format(1), "lake.default.u"), "INSERT INTO lake.default.u VALUES (1)")
    assert checkpoints(folder_of(root)) == [1]
    assert checkpoints(folder_of(root, "u")) == [], "Delta writes none of version 0"


def test_one_of_several_versions_is_enough(spark: Any, root: Path) -> None:
    spark.sql(create(f"{EVERY.format(3)}, 'delta.enableChangeDataFeed' = 'true'"))
    commits(
        spark,
        f"INSERT INTO {T} SELECT id FROM range(1, 5)",
        f"UPDATE {T} SET id = 10 WHERE id = 1",
        f"UPDATE {T} SET id = 20 WHERE id = 2",
        f"UPDATE {T} SET id = 30 WHERE id = 3",
    )
    folder = folder_of(root)
    assert versions(folder) == [0, 1, 2, 3, 4], "change data of several statements stays several versions"
    assert checkpoints(folder) == [3]


def test_a_commit_that_was_moved_is_where_it_came_to_be(
    spark: Any, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ratified as version 2, published as 3; and then the same again, past a version that would have been due."""
    spark.sql(create(EVERY.format(3)))
    spark.sql(f"INSERT INTO {T} VALUES (1)")
    folder = folder_of(root)
    overtaken: list[int] = []

    def overtake(*args: Any, **kwargs: Any) -> Any:
        if not overtaken:
            overtaken.append(1)
            append_zero(folder)
        return publish(*args, **kwargs)

    monkeypatch.setattr("lockstep.lake.publisher.publish", overtake)
    commits(spark, f"INSERT INTO {T} VALUES (2)")
    assert (versions(folder), checkpoints(folder)) == ([0, 1, 2, 3], [3])
    commits(spark, f"INSERT INTO {T} VALUES (3)")
    commits(spark, f"INSERT INTO {T} VALUES (4)")
    overtaken.clear()
    commits(spark, f"INSERT INTO {T} VALUES (5)")
    assert (versions(folder), checkpoints(folder)) == ([*range(8)], [3]), "version 6 is the plain writer's"
    assert sorted(DeltaTable(folder).to_pyarrow_table()["id"].to_pylist()) == [0, 0, 1, 2, 3, 4, 5]


def test_a_table_that_is_dropped_gets_none(spark: Any, root: Path) -> None:
    for table in "tu":
        spark.sql(create(EVERY.format(1), f"lake.default.{table}"))
    commits(spark, f"INSERT INTO {T} VALUES (1)", "INSERT INTO lake.default.u VALUES (1)", f"DROP TABLE {T}")
    assert (checkpoints(folder_of(root)), checkpoints(folder_of(root, "u"))) == ([], [1])


# --- what it costs, and what it may not -------------------------------------------------------------------------------


@pytest.mark.parametrize("has_checksums", [True, False])
def test_commit_runs_no_job_and_loads_no_log_where_none_is_due(spark: Any, root: Path, has_checksums: bool) -> None:
    spark.sql(create(EVERY.format(3)))
    folder = folder_of(root)
    if not has_checksums:
        append_zero(folder)
    jobs = spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs
    logs = spark._jvm.org.apache.spark.sql.delta.DeltaLog
    log = logs.forTable(spark._jsparkSession, f"lockstep://head.file{folder}")
    counted = {}
    for version in range(len(versions(folder)), 5):
        spark.sql("BEGIN")
        spark.sql(f"INSERT INTO {T} VALUES ({version})")
        before, loaded = jobs(), log.unsafeVolatileSnapshot().version()
        spark.sql("COMMIT")
        counted[version] = jobs() > before, log.unsafeVolatileSnapshot().version() > loaded
    assert counted == {version: (version == 3, version == 3) for version in counted}
    assert checkpoints(folder) == [3]


def test_a_checkpoint_that_fails_costs_nobody_the_commit(spark: Any, root: Path) -> None:
    """No file can be written with a codec whose library is not there; COMMIT itself writes none."""
    spark.sql(create(EVERY.format(1)))
    folder = folder_of(root)
    spark.conf.set("spark.databricks.delta.checkpoint.exceptionThrowing.enabled", "true")
    spark.sql("BEGIN")
    spark.sql(f"INSERT INTO {T} VALUES (1)")
    spark.conf.set("spark.sql.parquet.compression.codec", "lzo")
    assert spark.sql("COMMIT").first().tables_changed == 1
    assert (last_checkpoint(folder), checkpoints(folder)) == (-1, [])
    spark.conf.unset("spark.sql.parquet.compression.codec")
    commits(spark, f"INSERT INTO {T} VALUES (2)")
    assert (last_checkpoint(folder), checkpoints(folder)) == (2, [2])
    assert sorted(DeltaTable(folder).to_pyarrow_table()["id"].to_pylist()) == [1, 2]


def test_an_interrupt_of_a_checkpoint_costs_nobody_the_answer(spark: Any, root: Path) -> None:
    """Servers interrupt the thread of a statement that is cancelled: COMMIT has been decided by then."""
    spark.sql(create(EVERY.format(1)))
    spark.sql("BEGIN")
    spark.sql(f"INSERT INTO {T} VALUES (1)")
    threads = spark._jvm.java.lang.Thread
    asking = threads.currentThread()
    try:
        with first_job_met(spark, asking.interrupt):
            row = spark.sql("COMMIT").first()
    finally:
        is_interrupted = threads.interrupted()
    assert row.tables_changed == 1
    assert is_interrupted, "whoever runs the thread knows of it"
    assert last_checkpoint(folder_of(root)) == -1
    assert spark.sql(f"SELECT * FROM {T}").count() == 1
    commits(spark, f"INSERT INTO {T} VALUES (2)")
    assert last_checkpoint(folder_of(root)) == 2


@pytest.mark.parametrize("interval", ["0", "abc", "-1"])
def test_an_interval_that_is_none_costs_nobody_the_commit(spark: Any, root: Path, interval: str) -> None:
    """Another writer has set it, and whoever tries again what seemed to fail has his rows twice."""
    spark.sql(create("'a' = 'b'"))
    folder = folder_of(root)
    [line] = [
        line for line in (folder / "_delta_log" / f"{0:020d}.json").read_text().splitlines() if "metaData" in line
    ]
    action = json.loads(line)
    action["metaData"]["configuration"]["delta.checkpointInterval"] = interval
    info = {"commitInfo": {"timestamp": int(time.time() * 1000), "operation": "SET TBLPROPERTIES"}}
    (folder / "_delta_log" / f"{1:020d}.json").write_text(f"{json.dumps(info)}\n{json.dumps(action)}\n")
    spark.sql(f"INSERT INTO {T} VALUES (1)")
    commits(spark, f"INSERT INTO {T} VALUES (2)")
    spark.sql(f"UPDATE {T} SET id = 3 WHERE id = 2")
    spark.createDataFrame([(4,)], "id BIGINT").write.format("delta").mode("append").saveAsTable(T)
    assert sorted(DeltaTable(folder).to_pyarrow_table()["id"].to_pylist()) == [1, 3, 4]
    spark.sql(f"ALTER TABLE {T} UNSET TBLPROPERTIES ('delta.checkpointInterval')")
    check_lake(root)
