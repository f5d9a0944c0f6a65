"""Which folder an older database version is read from: the table's own, as its log was then, or none."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import lockstep
from lockstep.errors import ForeignCommitError, UnsupportedError
from lockstep.spark.host.host import Host
from lockstep.tables.opened import OpenLake
from lockstep.timeline.files import entry_path
from tests.support.client import Client
from tests.support.exports import export, opened
from tests.unit.tables.test_table import rows_of

SCHEMA = pa.schema([("id", pa.int64())])


def made(lake: OpenLake, folder: Path, name: str, *ids: int) -> int:
    """Make a table in a folder, with some rows, and return the database version that has it."""
    with lake.transaction() as tx:
        tx.create(name, SCHEMA, location=str(folder)).append(pa.table({"id": [*ids]}, schema=SCHEMA))
    assert tx.version is not None
    return tx.version


WAYS: dict[str, Callable[[OpenLake, str], pa.Table]] = {
    "to_arrow": lambda lake, name: lake.at()[name].to_arrow(),
    "sql": lambda lake, name: lake.at().sql(f"FROM {name}"),
    "polars": lambda lake, name: lake.at()[name].polars().collect().to_arrow(),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("folder", ["h#1", "q?x", "ü é", "x=[y]*", "50%", "a+b;c"])
def test_a_folder_of_any_name_is_read(lake: OpenLake, tmp_path: Path, folder: str, way: str) -> None:
    made(lake, tmp_path / folder, "t", 1)
    assert rows_of(WAYS[way](lake, "t")) == [(1,)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("folder", "taken_for"), [("a%20b", "a b"), ("p%2Fq", "p/q"), ("c%25d", "c%d")])
def test_a_folder_that_deltalake_takes_for_another_is_read_without_it(
    lake: OpenLake, tmp_path: Path, folder: str, taken_for: str, way: str
) -> None:
    """It would answer with that other folder's rows; the reader of transactions does not."""
    made(lake, tmp_path / folder, "t", 1)
    made(lake, tmp_path / taken_for, "other", 2, 3)
    assert rows_of(WAYS[way](lake, "t")) == [(1,)]
    with pytest.raises(UnsupportedError, match="would look in another folder"):
        lake.at()["t"].delta()
    with lake.transaction() as tx:
        assert rows_of(tx.sql("FROM t")) == [(1,)]


@pytest.fixture
def swapped(lake: OpenLake, tmp_path: Path) -> int:
    """A table whose folder has another table by now, and the database version of before."""
    version = made(lake, tmp_path / "w", "t", 1)
    made(lake, tmp_path / "u", "untouched", 5)
    shutil.move(tmp_path / "w", tmp_path / "moved")
    write_deltalake(str(tmp_path / "w"), pa.table({"id": [88]}, schema=SCHEMA))
    return version


def commit_others(lake: OpenLake, table: str) -> None:
    """Commit to another table so often that a checkpoint has what came before."""
    for number in range(101):
        with lake.transaction() as tx:
            tx[table].append(pa.table({"id": [number]}, schema=SCHEMA))
    lake.catalog.lake.upkeep.settle()


READS: dict[str, Callable[[OpenLake, int, Path], object]] = {
    "at": lambda lake, version, _: lake.at(version)["t"],
    "sql": lambda lake, version, _: lake.at(version).sql("FROM t"),
    "export": lambda _, version, to: export(opened(to.parent / "lake"), to, version=version),
}


@pytest.mark.parametrize("way", READS)
def test_an_older_version_of_a_folder_that_was_swapped_is_refused(
    lake: OpenLake, tmp_path: Path, swapped: int, way: str
) -> None:
    with pytest.raises(ForeignCommitError, match=r"table default\.t: .* wrote over version 0"):
        READS[way](lake, swapped, tmp_path / "copy")
    assert rows_of(lake.at(swapped + 1)["untouched"].to_arrow()) == [(5,)]


@pytest.mark.parametrize("is_new_process", [False, True])
def test_so_it_is_of_a_table_that_was_not_written_for_long(
    lake: OpenLake, tmp_path: Path, swapped: int, is_new_process: bool
) -> None:
    """At its newest version too, however many others were committed since, and whoever wrote them."""
    commit_others(lake, "untouched")
    reader = lockstep.open(str(tmp_path / "lake")) if is_new_process else lake
    for database in (reader.at(), reader.at(swapped)):
        with pytest.raises(ForeignCommitError, match=r"table default\.t: .* wrote over version 0"):
            database["t"].to_arrow()
    with pytest.raises(ForeignCommitError), reader.transaction() as tx:
        tx["t"].append(pa.table({"id": [6]}, schema=SCHEMA))


def test_a_table_whose_newest_entry_is_lost_is_read_and_said_not_to_be_compared(
    lake: OpenLake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What was lost of the timeline is for `verify` to tell; the table itself has lost nothing."""
    version = made(lake, tmp_path / "w", "t", 1)
    made(lake, tmp_path / "u", "other", 5)
    commit_others(lake, "other")
    (tmp_path / "lake" / entry_path(version)).unlink()
    reader = lockstep.open(str(tmp_path / "lake"))
    for _ in range(2):
        assert rows_of(reader.at()["t"].to_arrow()) == [(1,)]
    assert caplog.text.count("table default.t: its newest commit is not compared with its log") == 1


def test_in_spark_it_is_refused_at_an_older_version_and_in_a_transaction_that_reads_one(
    host: Host, tmp_path: Path, swapped: int
) -> None:
    client = Client(host, tmp_path / "lake")
    about = {"namespace": ["default"], "table": "t", "use": "pinned", "mentioned": [["default", "t"]]}
    assert client.refused("resolve", **about, version=f"@{swapped}")[0] == "40002"
    client.begin(read_only=True, as_of_version=swapped)
    assert client.refused("resolve", **about)[0] == "40002"
    client.ok("rollback")


def test_an_older_version_of_a_table_that_diverged_since_can_be_read(lake: OpenLake, tmp_path: Path) -> None:
    """What a plain writer wrote over is the newest commit: those before it are what they were."""
    before = made(lake, tmp_path / "w", "t", 1)
    with lake.transaction() as tx:
        tx["t"].append(pa.table({"id": [2]}, schema=SCHEMA))
    commits = sorted((tmp_path / "w" / "_delta_log").glob("*.json"))
    commits[-1].write_bytes(commits[-1].read_bytes() + b'{"txn":{"appId":"plain","version":1}}\n')
    with pytest.raises(ForeignCommitError):
        lake.at()["t"]
    assert rows_of(lake.at(before)["t"].to_arrow()) == [(1,)]
