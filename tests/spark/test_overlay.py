"""What is committed is nobody's to change who has not committed, Delta's housekeeping included."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from py4j.protocol import Py4JJavaError

import lockstep
from lockstep.timeline.entry import Name
from tests.support.hadoop import CHANGES, Caller, unknown_methods
from tests.support.inotify import arrivals
from tests.support.sessions import CATALOG

pytestmark = pytest.mark.long

T = f"{CATALOG}.default.t"
DAY_S = 24 * 60 * 60


def folder_of(root: Path, table: str = "t") -> Path:
    database = lockstep.TransactionalCatalog.open(str(root)).database()
    return root / database.tables[Name(namespace=("default",), table=table)].location


def log_of(root: Path, table: str = "t") -> Path:
    return folder_of(root, table) / "_delta_log"


def ids(session: Any, table: str = T) -> list[int]:
    return sorted(row.id for row in session.sql(f"SELECT id FROM {table}").collect())


@pytest.fixture
def aged(spark: Any, root: Path) -> Path:
    """Return the log of table t, at version 9 with the rows 1 to 9, all of it older than its retention."""
    spark.sql(
        f"CREATE TABLE {T} (id BIGINT) TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 1 day', "
        "'delta.deletedFileRetentionDuration' = 'interval 1 day')"
    )
    log = log_of(root)
    for id in range(1, 10):
        write_deltalake(log.parent, pa.table({"id": pa.array([id], pa.int64())}), mode="append")
    assert ids(spark) == list(range(1, 10))
    long_ago = time.time() - 40 * DAY_S
    for version, file in enumerate(sorted(log.glob("*.json"))):
        os.utime(file, (long_ago + version, long_ago + version))
    return log


RECORDS = {"open", "ended"}
"""Folders of records of transactions, which a host writes by itself while one is open."""


def state(folder: Path) -> dict[str, tuple[int, ...]]:
    """All that is in a folder, and when each file came to be what it is."""
    found: dict[str, tuple[int, ...]] = {}
    for path in folder.rglob("*"):
        if any(part in RECORDS for part in path.parts):
            continue
        stat = path.lstat()
        kept = (stat.st_ino, stat.st_mode, stat.st_uid)
        found[str(path)] = kept if path.is_dir() else (*kept, stat.st_size, stat.st_mtime_ns)
    return found


def changed(before: dict[str, tuple[int, ...]], folder: Path) -> list[str]:
    """What was there and is not, or is something else now."""
    now = state(folder)
    return [path for path, what in before.items() if now.get(path) != what]


# --- a table whose log is older than its retention --------------------------------------------------------------------


@pytest.mark.parametrize("by_hand", [False, True], ids=["after a commit", "by hand"])
def test_what_is_rolled_back_costs_a_table_nothing_of_its_history(spark: Any, aged: Path, by_hand: bool) -> None:
    before = state(aged.parent)
    transaction = spark.sql("BEGIN").first().transaction_id
    spark.sql(f"INSERT INTO {T} VALUES (10)")
    if by_hand:  # as RESTORE does, and whoever drops a feature
        checkpoint(spark, f"lockstep://{transaction}-9.file{aged.parent}")
        assert list(aged.glob("_lockstep/*/*.checkpoint.parquet")), "it is written, and read in this transaction"
    assert changed(before, aged.parent) == []
    assert ids(spark) == list(range(1, 11))
    spark.sql("ROLLBACK")
    assert changed(before, aged.parent) == []
    assert ids(spark) == list(range(1, 10))


def checkpoint(session: Any, uri: str) -> None:
    jvm = session._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session._jsparkSession, uri).checkpoint()


def test_what_is_committed_is_there_for_everybody_when_the_log_is_older_than_its_retention(
    spark: Any, connect: Callable[[], Any], root: Path, aged: Path
) -> None:
    spark.sql("BEGIN")
    spark.sql(f"INSERT INTO {T} VALUES (10)")
    assert not list(aged.glob("_lockstep/*/*checkpoint*")), "nobody would read it"
    with arrivals(aged) as arrived:
        spark.sql("COMMIT")
    rows = list(range(1, 11))
    assert ids(spark) == rows
    assert ids(connect()) == rows
    assert ids(spark, f"spark_catalog.delta.`{aged.parent}`") == rows
    assert sorted(DeltaTable(aged.parent).to_pyarrow_table()["id"].to_pylist()) == rows
    how = [how for name, how in arrived() if name == f"{10:020d}.checkpoint.parquet"]
    assert how == ["moved"], "written after COMMIT, and a writer that dies leaves none that is torn"


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_a_checkpoint_gets_its_name_when_it_is_whole(spark: Any, root: Path, policy: str) -> None:
    spark.sql(
        f"CREATE TABLE {T} (id BIGINT) "
        f"TBLPROPERTIES ('delta.checkpointInterval' = '1', 'delta.checkpointPolicy' = '{policy}')"
    )
    log = log_of(root)
    (log / "_sidecars").mkdir(exist_ok=True)
    with arrivals(log) as arrived, arrivals(log / "_sidecars") as arrived_beside:
        spark.sql(f"INSERT INTO {T} VALUES (1)")
    found = [(name, how) for name, how in arrived() + arrived_beside() if not name.startswith(("_", "."))]
    checkpoints = [how for name, how in found if "checkpoint" in name or name.endswith(".parquet")]
    assert checkpoints == ["moved"] * (2 if policy == "v2" else 1), found


def test_manifests_for_other_readers_name_committed_files_and_no_others(spark: Any, root: Path) -> None:
    spark.sql(
        f"CREATE TABLE {T} (id BIGINT) TBLPROPERTIES ('delta.compatibility.symlinkFormatManifest.enabled' = 'true')"
    )
    spark.sql(f"INSERT INTO {T} VALUES (1)")
    folder = folder_of(root)
    manifest = folder / "_symlink_format_manifest" / "manifest"
    (first,) = manifest.read_text().split()
    for end, files in (("ROLLBACK", 1), ("COMMIT", 3)):
        spark.sql("BEGIN")
        spark.sql(f"INSERT INTO {T} VALUES (2)")
        spark.sql(f"INSERT INTO {T} VALUES (3)")
        assert manifest.read_text().split() == [first]
        spark.sql(end)
        assert len(manifest.read_text().split()) == files
    assert all(Path(path.removeprefix("file:")).parent == folder for path in manifest.read_text().split())


# --- what a transaction sees of a log ---------------------------------------------------------------------------------


def compact(log: Path, first: int, last: int) -> None:
    """Put commits of a log together, as Delta Kernel does: the Delta protocol's "Log Compaction Files"."""
    commits = [log / f"{version:020d}.json" for version in range(first, last + 1)]
    actions = [line for commit in commits for line in commit.read_text().splitlines() if "commitInfo" not in line]
    (log / f"{first:020d}.{last:020d}.compacted.json").write_text("".join(f"{each}\n" for each in actions))


def test_a_compaction_of_later_commits_is_not_seen(spark: Any, root: Path) -> None:
    """Its name begins with a version that the transaction sees; what is in it does not end there."""
    spark.sql(f"CREATE TABLE {T} (id BIGINT)")
    spark.sql(f"INSERT INTO {T} VALUES (1)")
    spark.sql(f"INSERT INTO {T} VALUES (2)")
    folder = folder_of(root)
    spark.sql("BEGIN ISOLATION LEVEL SNAPSHOT")
    assert ids(spark) == [1, 2], "once it has used the table, what others do is not seen"
    for id in (-1, -2):  # versions 3 and 4
        write_deltalake(folder, pa.table({"id": pa.array([id], pa.int64())}), mode="append")
    compact(log_of(root), 2, 4)
    for id in (10, 11):
        spark.sql(f"INSERT INTO {T} VALUES ({id})")
        spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # for the log to be listed anew
        assert ids(spark)[-1] == id
    assert ids(spark) == [1, 2, 10, 11]
    spark.sql("COMMIT")
    assert ids(spark) == [-2, -1, 1, 2, 10, 11]


@pytest.mark.parametrize("namespace", ["_delta_log", "_lockstep", "_symlink_format_manifest"])
def test_a_namespace_may_be_called_as_a_folder_of_deltas(spark: Any, root: Path, namespace: str) -> None:
    """Its tables lie in no such folder, whose files are other than data."""
    table = f"{CATALOG}.{namespace}.t"
    spark.sql(f"CREATE NAMESPACE {CATALOG}.{namespace}")
    spark.sql(f"CREATE TABLE {table} AS SELECT 1L AS id")
    spark.sql("BEGIN")
    spark.sql(f"INSERT INTO {table} VALUES (2)")
    spark.sql(f"CREATE TABLE {CATALOG}.{namespace}.u AS SELECT 3L AS id")
    spark.sql("COMMIT")
    spark.sql(f"DELETE FROM {table} WHERE id = 1")
    assert ids(spark, table) == [2]
    assert ids(spark, f"{CATALOG}.{namespace}.u") == [3]


# --- every way to change a file ---------------------------------------------------------------------------------------


@pytest.fixture
def everything(spark: Any, other: Any, root: Path) -> dict[str, Path]:
    """Return a file of each kind that a table has; the session has an open transaction, and so has another."""
    spark.sql(f"CREATE TABLE {CATALOG}.default.other (id BIGINT)")
    spark.sql(f"INSERT INTO {CATALOG}.default.other VALUES (1)")
    spark.sql(
        f"CREATE TABLE {T} (id BIGINT, part INT) PARTITIONED BY (part) TBLPROPERTIES ("
        "'delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true', "
        "'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '3')"
    )
    spark.sql(f"INSERT INTO {T} SELECT id, 1 FROM range(100)")
    spark.sql(f"DELETE FROM {T} WHERE id < 50 AND id % 7 = 3")
    spark.sql(f"UPDATE {T} SET id = -1 WHERE id = 99")
    folder, log = folder_of(root), log_of(root)
    beyond = root.parent / "beyond.txt"
    beyond.write_text("nobody's")
    theirs = set(folder.rglob("*.parquet"))
    begun = [session.sql("BEGIN").first().transaction_id for session in (spark, other)]
    other.sql(f"INSERT INTO {T} VALUES (1000, 1)")
    spark.sql(f"INSERT INTO {T} VALUES (2000, 2)")
    (own,) = set(folder.rglob("part=2/*.parquet")) - theirs
    mine, another = (log / "_lockstep" / transaction / f"{4:020d}.json" for transaction in begun)
    return {
        "commit": log / f"{3:020d}.json",
        "local checksum": log / f".{3:020d}.crc.crc",
        "local checksum of a sidecar": next(log.glob("_sidecars/.*")),
        "checksum": log / f"{3:020d}.crc",
        "checkpoint": next(log.glob("[0-9]*.checkpoint.*")),
        "last checkpoint": log / "_last_checkpoint",
        "sidecar": next(log.glob("_sidecars/[!.]*")),
        "change data": next(folder.glob("_change_data/**/*.parquet")),
        "deletion vector": next(folder.glob("deletion_vector_*.bin")),
        "data": next(folder.glob("part=1/*.parquet")),
        "own data": own,
        "staged commit": log / mine.name,
        "staged commit where it is": mine,
        "staged commit of another": another,
        "folder": folder,
        "log": log,
        "staging": log / "_lockstep",
        "staging of another": another.parent,
        "partition": folder / "part=1",
        "data of another table": next(folder_of(root, "other").glob("*.parquet")),
        "commit of another table": log_of(root, "other") / f"{1:020d}.json",
        "folder of another table": folder_of(root, "other"),
        "entry": root / "_lockstep" / "timeline" / f"{1:020d}.json",
        "timeline": root / "_lockstep" / "timeline",
        "beyond": beyond,
    }


TRIED_IN_FULL = {"commit", "data", "own data", "staged commit", "last checkpoint"}
"""Each method is tried on these; on what else there is, those that the others come down to."""

PRIMITIVE = {
    "create(Path,boolean)",
    "append(Path)",
    "truncate(Path,long)",
    "rename(Path,Path)",
    "rename onto",
    "rename onto with options",
    "delete(Path,boolean)",
    "delete one",
    "mkdirs(Path)",
    "moveToLocalFile(Path,Path)",
    "setPermission(Path,FsPermission)",
    "setTimes(Path,long,long)",
}


def test_each_method_of_hadoops_file_system_is_known(spark: Any) -> None:
    assert not unknown_methods(spark), "say in tests/support/hadoop.py what they do"


def try_all(call: Caller, files: dict[str, Path], folder: Path, skip: Callable[[str, str], bool]) -> list[str]:
    """Return what changed something that was there; what is new is taken away again."""
    before = state(folder)
    found = []
    for kind, file in files.items():
        for how, change in CHANGES.items():
            if skip(how, kind) or (kind not in TRIED_IN_FULL and how not in PRIMITIVE):
                continue
            answer = call.attempt(change, call.path(file))
            if lost := changed(before, folder):
                found.append(f"{how} on {kind}: {lost} ({answer})")
                before = state(folder)
            for path in sorted(set(state(folder)) - set(before), reverse=True):
                Path(path).rmdir() if Path(path).is_dir() else Path(path).unlink()
    return found


def test_nothing_that_is_there_can_be_changed_through_a_transactions_uri(
    spark: Any, root: Path, everything: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    transaction = everything["staged commit where it is"].parent.name
    call = Caller(spark, f"lockstep://{transaction}-3.file", tmp_path_factory.mktemp("local") / "source")
    assert try_all(call, everything, root.parent, lambda how, kind: False) == []
    spark.sql("COMMIT")
    assert len(ids(spark)) == 100 - 7 + 1


def test_at_the_head_files_are_made_and_deleted_one_by_one_and_nothing_else(
    spark: Any, root: Path, everything: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    files = {kind: file for kind, file in everything.items() if kind not in REPLACED}
    spark._jvm.org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)  # as while Delta commits
    call = Caller(spark, "lockstep://head.file", tmp_path_factory.mktemp("local") / "source")
    assert try_all(call, files, root.parent, lambda how, kind: how == "delete one" and kind in DELETED) == []
    for kind in sorted(DELETED):
        assert not call.attempt(CHANGES["delete one"], call.path(files[kind])), kind
        assert files[kind].exists() is (kind in NEEDED), kind


REPLACED = {"checksum", "checkpoint", "last checkpoint", "staged commit"}
"""What Delta writes at the head beside its commits; and what is not there."""

DELETED = {
    "commit",
    "sidecar",
    "local checksum of a sidecar",
    "change data",
    "deletion vector",
    "data",
    "own data",
    "data of another table",
    "commit of another table",
    "beyond",
}
"""What VACUUM and the clean-up of logs delete."""

NEEDED = {"commit", "commit of another table"}
"""What of that stays, for versions that can be read need it; whoever deletes it is told that it did nothing."""


def test_a_file_context_may_do_what_the_file_system_may(
    spark: Any, root: Path, everything: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Hadoop's other face, through which Delta writes checksums."""
    transaction = everything["staged commit where it is"].parent.name
    uri = f"lockstep://{transaction}-3.file"
    call = Caller(spark, uri, tmp_path_factory.mktemp("local") / "source")
    files = spark._jvm.org.apache.hadoop.fs.FileContext.getFileContext(
        spark._jvm.java.net.URI.create(uri), spark._jsparkSession.sessionState().newHadoopConf()
    )
    before, new = state(root.parent), everything["log"] / f".{5:020d}.crc.made.tmp"
    away = call.path(everything["folder"] / "away.parquet")
    for kind, file in everything.items():
        for change in (
            lambda path: files.delete(path, True),
            lambda path: files.rename(path, away, rename_options(spark)),
            lambda path: files.truncate(path, 0),
            lambda path: files.create(path, create_flags(spark), create_options(spark)).close(),
        ):
            with contextlib.suppress(Py4JJavaError):  # whatever it answers: what matters is what it did
                change(call.path(file))
            assert not changed(before, root.parent), kind
            before = state(root.parent)
    files.create(call.path(new), create_flags(spark), create_options(spark)).close()
    files.rename(call.path(new), call.path(everything["log"] / f"{5:020d}.crc"), rename_options(spark))
    staging = everything["staged commit where it is"].parent
    assert (staging / f"{5:020d}.crc").exists()
    assert not (staging / new.name).exists()


def test_hadoop_keeps_nothing_of_a_transaction_whose_checksums_it_wrote(spark: Any) -> None:
    """Its statistics are kept by authority, for ever, and each transaction has one of its own."""
    spark.sql(f"CREATE TABLE {T} (id BIGINT)")
    for id in range(3):
        spark.sql("BEGIN")
        spark.sql(f"INSERT INTO {T} VALUES ({id})")
        spark.sql("COMMIT")
    kept = [str(uri) for uri in spark._jvm.org.apache.hadoop.fs.FileContext.getAllStatistics()]
    assert [uri for uri in kept if uri.startswith("lockstep")] == ["lockstep:///"]


def create_flags(spark: Any) -> Any:
    flag = spark._jvm.org.apache.hadoop.fs.CreateFlag
    return spark._jvm.java.util.EnumSet.of(flag.CREATE, flag.OVERWRITE)


def create_options(spark: Any) -> Any:
    return spark.sparkContext._gateway.new_array(spark._jvm.org.apache.hadoop.fs.Options.CreateOpts, 0)


def rename_options(spark: Any) -> Any:
    return spark.sparkContext._gateway.new_array(spark._jvm.org.apache.hadoop.fs.Options.Rename, 0)
