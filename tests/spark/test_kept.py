"""What can be read stays, whatever VACUUM and clean-up of logs say; what expired goes, but for what tags keep."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.errors import AnalysisException, PySparkException

import lockstep
from lockstep.catalog import TransactionalCatalog
from lockstep.lake.verify import verify
from lockstep.retention import planning
from lockstep.retention.expiring import expire_snapshots

pytestmark = pytest.mark.long

CHECKED = "spark.databricks.delta.retentionDurationCheck.enabled"


@pytest.fixture
def vacuuming(connect: Callable[..., Any]) -> Iterator[Any]:
    """Return a session that may delete what is a moment old, and waits for nobody who has begun to read it."""
    spark = connect(deletion_grace="0")
    spark.conf.set(CHECKED, "false")
    yield spark
    spark.conf.unset(CHECKED)


def rows(session: Any, query: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in session.sql(query).collect())


def folder(root: Path, name: str = "t") -> Path:
    database = TransactionalCatalog.open(str(root)).database()
    [table] = [table for each, table in database.tables.items() if each.table == name]
    return root / table.location


def let_expire(root: Path) -> None:
    """Let all versions expire but the newest and those that tags keep, as a nightly run of another process does."""
    lake = TransactionalCatalog.open(str(root)).lake
    expire_snapshots(lake, older_than=lake.clock(), retain_last=1, grace=timedelta())


def data(folder: Path) -> set[str]:
    """Return what is in a table's folder but its log and the local file system's checksums."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and path.suffix != ".crc")
    return {str(path) for path in found if path.parts[0] != "_delta_log"}


KINDS = {
    "deletion vectors": "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
    "partitions": "PARTITIONED BY (p) TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')",
    "column mapping": "PARTITIONED BY (p) TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
}


DEEP_KINDS = {"partitions", "column mapping"}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.deep] * (kind in DEEP_KINDS)) for kind in KINDS]
)
def test_vacuum_keeps_what_a_tag_names_and_nothing_else(vacuuming: Any, root: Path, kind: str) -> None:
    spark = vacuuming
    spark.sql(f"CREATE TABLE t (id INT, p STRING) {KINDS[kind]}")
    spark.sql("INSERT INTO t SELECT /*+ REPARTITION(1) */ id, concat('a b%', id % 4) FROM range(9)")
    spark.sql("DELETE FROM t WHERE id = 4")
    spark.sql("CREATE TAG good")
    good = rows(spark, "SELECT * FROM t")
    tagged = data(folder(root))
    spark.sql("UPDATE t SET id = id + 100 WHERE id % 2 = 1")
    between = data(folder(root)) - tagged
    spark.sql("INSERT OVERWRITE t VALUES (7, 'x')")
    head = data(folder(root)) - tagged - between
    all_stay = {Path(row.path).name for row in spark.sql("VACUUM t RETAIN 0 HOURS DRY RUN").collect()}
    assert not {Path(path).name for path in between} & all_stay, "versions that have these can be read"
    let_expire(root)
    dry = {Path(row.path).name for row in spark.sql("VACUUM t RETAIN 0 HOURS DRY RUN").collect()}
    assert {Path(path).name for path in between} <= dry
    assert not {Path(path).name for path in (*head, *needed(spark, "FOR SYSTEM_VERSION AS OF 'good'"))} & dry
    assert not [name for name in dry if name.startswith("p=") and name.endswith("2")], "all in that folder is kept"
    spark.sql("VACUUM t RETAIN 0 HOURS")
    assert data(folder(root)) & between == set()
    assert head <= data(folder(root))
    assert rows(spark, "SELECT * FROM t FOR SYSTEM_VERSION AS OF 'good'") == good
    spark.sql("RESTORE DATABASE lake TO TAG good")
    assert rows(spark, "SELECT * FROM t") == good
    spark.sql("INSERT OVERWRITE t VALUES (8, 'x')")
    spark.sql("DROP TAG good")
    let_expire(root)
    spark.sql("VACUUM t RETAIN 0 HOURS")
    assert data(folder(root)) & tagged == set()
    assert rows(spark, "SELECT * FROM t") == [(8, "x")]


def needed(spark: Any, version: str) -> set[str]:
    found = spark.sql(f"SELECT DISTINCT _metadata.file_path AS path FROM t {version}").collect()
    return {Path(row.path).name for row in found}


def test_a_table_whose_drop_has_expired_comes_back_to_a_tag(spark: Any, root: Path) -> None:
    spark.sql("CREATE TABLE t (id INT) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql("INSERT INTO t SELECT /*+ REPARTITION(1) */ id FROM range(9)")
    spark.sql("CREATE TAG good")
    where = folder(root)
    tagged = data(where)
    spark.sql("DELETE FROM t WHERE id = 4")
    spark.sql("INSERT OVERWRITE t VALUES (7)")
    spark.sql("DROP TABLE t")
    spark.sql("CREATE NAMESPACE later")
    let_expire(root)
    for gone in data(where) - tagged:
        (where / gone).unlink()  # as upkeep does in the end
    assert spark.sql("SHOW TABLES DROPPED").count() == 0
    spark.sql("CALL lake.system.restore(tag => 'good', tables => array('t'))")
    assert rows(spark, "SELECT * FROM t") == [(id_,) for id_ in range(9)]
    spark.sql("INSERT INTO t VALUES (9)")
    assert len(rows(spark, "SELECT * FROM t")) == 10


def inventory(spark: Any, path: Path, files: set[str], scheme: str = "file:") -> None:
    """Register a view with files of a table's folder, as an inventory of a store would list them."""
    listed = [
        (f"{scheme}{path}/{each}", 1, False, (path / each).stat().st_mtime_ns // 1_000_000) for each in sorted(files)
    ]
    schema = "path STRING, length BIGINT, isDir BOOLEAN, modificationTime BIGINT"
    spark.createDataFrame(listed, schema).createOrReplaceTempView("listed")


DEEP_WAYS = [pytest.param(way, marks=pytest.mark.deep) for way in ("FULL", "path", "inventory", "DeltaTable")]


def test_an_inventory_names_files_as_the_store_has_them(vacuuming: Any, root: Path) -> None:
    """Those that nobody needs go, as in plain Delta; of the others none."""
    spark = vacuuming
    spark.sql("CREATE TABLE t (id INT, p STRING) PARTITIONED BY (p)")
    spark.sql("INSERT INTO t VALUES (1, 'a b%')")
    spark.sql("CREATE TAG good")
    spark.sql("INSERT OVERWRITE t VALUES (2, 'a b%')")
    needed = data(folder(root))
    stray = folder(root) / "p=a b%25" / "stray%41.parquet"
    stray.write_bytes(b"nobody's")
    os.utime(stray, (1, 1))
    let_expire(root)
    inventory(spark, folder(root), data(folder(root)))
    statement = "VACUUM t USING INVENTORY (SELECT * FROM listed) RETAIN 0 HOURS"
    assert [row.path for row in spark.sql(f"{statement} DRY RUN").collect()] == [f"file:{stray}"]
    spark.sql(statement)
    assert data(folder(root)) == needed
    assert rows(spark, "SELECT id FROM t FOR SYSTEM_VERSION AS OF 'good'") == [(1,)]


def test_an_inventory_that_delta_would_not_take_is_refused_as_by_delta(vacuuming: Any, root: Path) -> None:
    """But what names no file in it is left out."""
    spark = vacuuming
    spark.sql("CREATE TABLE t AS SELECT 1 AS id")
    spark.sql("CREATE TAG good")
    there = data(folder(root))
    vacuum = "VACUUM t USING INVENTORY (SELECT {}, false AS isDir, 1L AS modificationTime) RETAIN 0 HOURS"
    for wrong in ("'x' AS path, 1 AS length", "7 AS path, 1L AS length", "'x' AS path"):
        with pytest.raises(AnalysisException, match="DELTA_INVALID_INVENTORY_SCHEMA"):
            spark.sql(vacuum.format(wrong))
    spark.sql(vacuum.format("CAST(NULL AS STRING) AS path, 1L AS length"))
    assert data(folder(root)) == there


@pytest.mark.parametrize("way", ["LITE", *DEEP_WAYS])
def test_every_way_of_vacuum_keeps_it(vacuuming: Any, root: Path, way: str) -> None:
    spark = vacuuming
    spark.sql("CREATE TABLE t AS SELECT 1 AS id")
    spark.sql("CREATE TAG good")
    tagged = data(folder(root))
    spark.sql("INSERT OVERWRITE t VALUES (2)")
    between = data(folder(root)) - tagged
    spark.sql("INSERT OVERWRITE t VALUES (3)")
    let_expire(root)
    if way == "inventory":
        inventory(spark, folder(root), data(folder(root)) - between, "lockstep://head.file")
        spark.sql("VACUUM t USING INVENTORY (SELECT * FROM listed) RETAIN 0 HOURS")
        assert between <= data(folder(root)), "what is not listed stays"
    vacuum_by(way, spark, root)
    assert tagged <= data(folder(root))
    assert not between & data(folder(root))
    assert rows(spark, "SELECT * FROM t FOR SYSTEM_VERSION AS OF 'good'") == [(1,)]


def test_vacuum_of_a_shallow_clone_deletes_nothing_that_either_needs(vacuuming: Any, root: Path) -> None:
    """The clone's log names the files of the other table by whole paths, also those that it removed."""
    spark = vacuuming
    spark.sql("CREATE TABLE t AS SELECT /*+ REPARTITION(1) */ id FROM range(5)")
    spark.sql("CREATE TABLE clone SHALLOW CLONE t")
    spark.sql("DELETE FROM clone WHERE id < 2")
    (folder(root, "clone") / "unstaged.parquet").write_bytes(b"nobody's")
    before = data(folder(root)), data(folder(root, "clone"))
    spark.sql("VACUUM clone")
    assert (data(folder(root)), data(folder(root, "clone"))) == before, "which are younger than a week"
    spark.sql("VACUUM clone RETAIN 0 HOURS")
    assert before[1] - data(folder(root, "clone")) == {"unstaged.parquet"}
    assert rows(spark, "SELECT * FROM clone") == [(2,), (3,), (4,)]
    assert rows(spark, "SELECT * FROM t") == [(0,), (1,), (2,), (3,), (4,)]


@pytest.mark.parametrize("is_linked", [False, True], ids=["the lake's own way", "through a link"])
def test_vacuum_keeps_a_file_that_a_plain_writer_named_by_its_whole_path(
    vacuuming: Any, root: Path, tmp_path: Path, is_linked: bool
) -> None:
    spark = vacuuming
    (tmp_path / "link").symlink_to(root)
    spark.sql("CREATE TABLE t AS SELECT 1 AS id")
    [file] = data(folder(root))
    copied = folder(root) / "whole.parquet"
    shutil.copy(folder(root) / file, copied)
    size = copied.stat().st_size
    named = tmp_path / "link" / copied.relative_to(root) if is_linked else copied
    add = {"path": named.as_uri(), "partitionValues": {}, "size": size, "modificationTime": 1, "dataChange": True}
    (folder(root) / "_delta_log" / f"{1:020}.json").write_text(json.dumps({"add": add}) + "\n")
    assert rows(spark, "SELECT * FROM t") == [(1,), (1,)]
    (folder(root) / "unstaged.parquet").write_bytes(b"nobody's")
    spark.sql("VACUUM t RETAIN 0 HOURS")
    assert data(folder(root)) == {file, copied.name}
    assert rows(spark, "SELECT * FROM t") == [(1,), (1,)]


def age(log: Path) -> None:
    """Have all files of a log be forty days old, which is older than Delta keeps them."""
    then = time.time() - 40 * 24 * 3600
    for path in log.iterdir():
        if path.is_file():
            os.utime(path, (then, then))


def versions(log: Path) -> list[int]:
    return sorted(int(path.stem) for path in log.glob("*.json") if path.stem.isdigit())


def forget_kept(root: Path) -> None:
    """Have the tags be as an older Lockstep made them, which kept nothing beside tables' logs."""
    shutil.rmtree(root / "_lockstep" / "kept")


@pytest.mark.deep
@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_a_log_is_kept_from_the_checkpoint_on_that_a_tag_needs(spark: Any, root: Path, policy: str) -> None:
    spark.sql(
        "CREATE TABLE t (id INT) TBLPROPERTIES ('delta.checkpointInterval' = '4', "
        f"'delta.checkpointPolicy' = '{policy}')"
    )
    for number in range(6):
        spark.sql(f"INSERT INTO t VALUES ({number})")
    spark.sql("CREATE TAG good")
    forget_kept(root)
    log = folder(root) / "_delta_log"
    for number in range(6, 12):
        age(log)
        let_expire(root)
        spark.sql(f"INSERT INTO t VALUES ({number})")
    assert versions(log)[0] == 4, "what comes before the last checkpoint that the tag needs is gone"
    assert versions(log) == list(range(4, 13))
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    good = [(number,) for number in range(6)]
    assert rows(spark, "SELECT * FROM t FOR SYSTEM_VERSION AS OF 'good'") == good
    spark.sql("RESTORE DATABASE lake TO TAG good")
    assert rows(spark, "SELECT * FROM t") == good, "Delta itself restores no version of more than a week ago"
    spark.sql("RESTORE TABLE t TO VERSION AS OF 12")
    spark.sql("DROP TAG good")
    for number in range(12, 16):
        age(log)
        let_expire(root)
        spark.sql(f"INSERT INTO t VALUES ({number})")
    assert versions(log)[0] >= 12
    assert rows(spark, "SELECT count(*) FROM t") == [(16,)]


@pytest.fixture
def open_beside(vacuuming: Any, spark: Any) -> tuple[Any, Any]:
    """Return a session that vacuums, and another one, with a transaction that has written a new row and a vector."""
    spark.sql("CREATE TABLE t (id INT) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql("INSERT INTO t SELECT /*+ REPARTITION(1) */ id FROM range(4)")
    spark.sql("BEGIN")
    spark.sql("INSERT INTO t VALUES (7)")
    spark.sql("DELETE FROM t WHERE id = 2")
    return vacuuming, spark


@pytest.mark.parametrize("way", ["LITE", *DEEP_WAYS])
def test_a_vacuum_takes_nothing_of_an_open_transaction(open_beside: tuple[Any, Any], root: Path, way: str) -> None:
    vacuuming, spark = open_beside
    (folder(root) / "unstaged.parquet").write_bytes(b"what a statement is writing just now")
    before = data(folder(root))
    assert vacuuming.sql("VACUUM t RETAIN 0 HOURS DRY RUN").count() == 0
    vacuum_by(way, vacuuming, root)
    assert data(folder(root)) == before
    spark.sql("COMMIT")
    assert rows(vacuuming, "SELECT * FROM t") == [(0,), (1,), (3,), (7,)]
    vacuum_by(way, vacuuming, root)
    assert before - data(folder(root)) == {"unstaged.parquet"}
    assert rows(vacuuming, "SELECT * FROM t") == [(0,), (1,), (3,), (7,)]


def test_nor_of_one_that_this_driver_does_not_know(vacuuming: Any, root: Path) -> None:
    vacuuming.sql("CREATE TABLE t AS SELECT 1 AS id")
    with lockstep.open(str(root)).transaction() as tx:
        tx["t"].append({"id": [7]})
        before = data(folder(root))
        vacuuming.sql("VACUUM t RETAIN 0 HOURS")
        assert data(folder(root)) == before
    assert rows(vacuuming, "SELECT * FROM t") == [(1,), (7,)]


def test_a_table_is_vacuumed_whose_rows_lockstep_took_out(vacuuming: Any, root: Path) -> None:
    """Delta's VACUUM fails, by whatever name, on a table that has a deletion vector in its log."""
    vacuuming.sql("CREATE TABLE t (id INT) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    vacuuming.sql("INSERT INTO t SELECT /*+ REPARTITION(1) */ id FROM range(6)")
    with lockstep.open(str(root)).transaction() as tx:
        tx["t"].delete("id = 1")
    with lockstep.open(str(root)).transaction() as tx:
        tx["t"].delete("id = 2")
        vacuuming.sql("DELETE FROM t WHERE id = 3")  # COMMIT makes one vector of the two
    left = [(0,), (4,), (5,)]
    by_path = f"spark_catalog.delta.`{folder(root)}`"
    for vacuum in (f"{by_path} DRY RUN", "t LITE", "t RETAIN 0 HOURS"):
        vacuuming.sql(f"VACUUM {vacuum}")
        assert rows(vacuuming, "SELECT * FROM t") == left
    assert rows(vacuuming, f"SELECT * FROM {by_path}") == left


def vacuum_by(way: str, spark: Any, root: Path) -> None:
    if way == "DeltaTable":
        DeltaTable.forName(spark, "lake.default.t").vacuum(0)
    elif way == "path":
        spark.sql(f"VACUUM delta.`lockstep://head.file{folder(root)}` RETAIN 0 HOURS")
    elif way == "inventory":
        inventory(spark, folder(root), data(folder(root)))
        spark.sql("VACUUM t USING INVENTORY (SELECT * FROM listed) RETAIN 0 HOURS")
    else:
        spark.sql(f"VACUUM t {way} RETAIN 0 HOURS")


def test_what_a_reader_began_to_read_before_it_expired_stays_for_the_grace_period(
    vacuuming: Any, connect: Callable[..., Any], root: Path
) -> None:
    patient = connect()
    patient.conf.set(CHECKED, "false")
    patient.sql("CREATE TABLE t AS SELECT 1 AS id")
    patient.sql("INSERT OVERWRITE t VALUES (2)")
    slow = patient.table("t").where("id > 0")  # it has found its files
    slow_files = [path for path in data(folder(root)) if path.endswith(".parquet")]
    patient.sql("INSERT OVERWRITE t VALUES (3)")
    let_expire(root)
    patient.sql("VACUUM t RETAIN 0 HOURS")
    assert set(slow_files) <= data(folder(root)), "deletion-grace is a day"
    assert slow.count() == 1
    vacuuming.sql("VACUUM t RETAIN 0 HOURS")
    assert len(data(folder(root))) == 1, "where it is nothing, nobody is waited for"


@pytest.mark.deep
def test_what_a_plain_writer_cleaned_up_is_told(vacuuming: Any, root: Path) -> None:
    """It knows no tags, and took what an older Lockstep's tag needs. VACUUM refuses then, and verify finds it."""
    spark = vacuuming
    spark.sql("CREATE TABLE t (id INT) TBLPROPERTIES ('delta.checkpointInterval' = '2')")
    spark.sql("INSERT INTO t VALUES (1)")
    spark.sql("CREATE TAG good")
    forget_kept(root)
    spark.sql("INSERT INTO t VALUES (2)")
    path, everything = folder(root), [(number,) for number in range(1, 8)]
    for number in range(3, 8):
        age(path / "_delta_log")
        spark.createDataFrame([(number,)], "id INT").write.format("delta").mode("append").save(str(path))
    assert rows(spark, "SELECT * FROM t") == everything
    assert versions(path / "_delta_log")[0] > 1
    before = data(path)
    let_expire(root)
    reason = r"the log of table default\.t does not tell of version 1 any more"
    with pytest.raises(PySparkException, match=reason) as error:
        spark.sql("VACUUM t RETAIN 0 HOURS")
    assert error.value.getSqlState() == "58P01"
    assert data(path) == before
    timeline = TransactionalCatalog.open(str(root)).timeline
    [found] = verify(timeline.storage, timeline).differences
    assert (found.problem, found.table_version) == ("unreadable", 1)
    spark.sql("DROP TAG good")
    let_expire(root)
    spark.sql("VACUUM t RETAIN 0 HOURS")
    assert rows(spark, "SELECT * FROM t") == everything


def test_maintain_marks_and_deletes_what_has_expired(spark: Any, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "YOUNGEST", timedelta())  # as if an hour had gone by since each was removed
    spark.conf.set(CHECKED, "false")
    spark.sql("CREATE TABLE t (id INT) TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 hours')")
    for number in range(4):
        spark.sql(f"INSERT INTO t VALUES ({number})")
    spark.sql("OPTIMIZE t")
    let_expire(root)
    [row] = spark.sql("CALL lake.system.maintain()").collect()
    assert (row.deleted_files, row.waiting_files, row.compacted_tables) == (0, 8, 0), "with Hadoop's checksums"
    before = data(folder(root))
    spark.sql("VACUUM t RETAIN 0 HOURS")
    assert data(folder(root)) == before, "a VACUUM leaves what is marked until its grace period is over"
    marked_at = time.time() - 2 * 24 * 3600
    [marks] = (root / "_lockstep" / "deletions").glob("marked-*.json")
    then = datetime.fromtimestamp(marked_at, UTC).isoformat()
    marks.write_text(re.sub(r'"marked_at":"[^"]*"', f'"marked_at":"{then}"', marks.read_text()))
    [again] = spark.sql("CALL lake.system.vacuum(table => 't')").collect()
    assert (again.deleted_files, again.waiting_files) == (0, 8), "marked before it was removed: that does not count"
    assert rows(spark, "SELECT * FROM t") == [(number,) for number in range(4)]
