"""A tag is read without Spark after delta-rs, which knows no tags, has cleaned up the log and vacuumed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import lockstep
from lockstep.delta.log import log_files
from lockstep.errors import LockstepError, UnsupportedError
from lockstep.exports.deep import verify_deep
from lockstep.tables.opened import OpenLake
from lockstep.timeline.entry import ExportMode, Name, TagDdl
from tests.support.exports import export
from tests.unit.tables.test_table import rows_of

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
TAGGED = [(1, "a"), (2, "b"), (4, "d")]
MODES: tuple[ExportMode, ...] = ("full", "partial")
T = Name(namespace=("default",), table="t")


def make(lake: OpenLake, where: Path | None) -> Path:
    """Make a table whose tag needs commits and a deletion vector; return its folder."""
    with lake.transaction() as tx:
        properties = {"delta.enableDeletionVectors": "true"}
        table = tx.create("t", SCHEMA, location=None if where is None else str(where), properties=properties)
        table.append({"id": [1, 2, 3], "v": ["a", "b", "c"]})
    with lake.transaction() as tx:
        tx["t"].append({"id": [4], "v": ["d"]})
    with lake.transaction() as tx:
        tx["t"].delete("id = 3")
    lake.catalog.run(lambda tx: tx.changing().create_tag(TagDdl(action="create", name="good")))
    for number in range(5, 8):
        with lake.transaction() as tx:
            tx["t"].append({"id": [number], "v": ["later"]})
    location = lake.catalog.timeline.head.tables[T].location
    return Path(str(location).removeprefix("file://")) if where else Path(_root(lake)) / location


def _root(lake: OpenLake) -> str:
    return lake.catalog.lake.storage.url.removeprefix("file://")


def clean_up(lake: OpenLake, folder: Path) -> None:
    """Have delta-rs make a checkpoint, and take all of the log that comes before it."""
    lake.catalog.lake.upkeep.settle()
    deltalake.DeltaTable(str(folder)).create_checkpoint()
    then = time.time() - 40 * 24 * 3600
    for path in (folder / "_delta_log").iterdir():
        if path.is_file():
            os.utime(path, (then, then))
    deltalake.DeltaTable(str(folder)).cleanup_metadata()
    tagged = lake.catalog.as_of("good").tables[T]
    assert log_files(lake.catalog.lake.storage, tagged.location).missing_for(tagged.version) is not None


@pytest.mark.parametrize("is_outside", [False, True])
def test_a_tag_is_read_after_a_clean_up_by_delta_rs(lake: OpenLake, tmp_path: Path, is_outside: bool) -> None:
    folder = make(lake, tmp_path / "elsewhere" if is_outside else None)
    before = rows_of(lake.at("good")["t"].to_arrow())
    clean_up(lake, folder)
    then = lockstep.open(_root(lake)).at("good")["t"]
    assert rows_of(then.to_arrow()) == before == TAGGED
    assert rows_of(then.to_arrow(["v"])) == [(v,) for _, v in TAGGED]
    assert sorted(then.polars().collect().rows()) == TAGGED
    assert rows_of(lake.at("good").sql("SELECT * FROM t WHERE id < 4")) == TAGGED[:2]
    with pytest.raises(UnsupportedError, match="read it by to_arrow"):
        then.delta()
    with pytest.raises(LockstepError, match=r"no column 'w'"):
        then.to_arrow(["w"])
    lake.catalog.run(lambda tx: tx.changing().rename_table(T, Name(namespace=("default",), table="u")))
    lake.catalog.run(lambda tx: tx.changing().drop_table(Name(namespace=("default",), table="u")))
    assert rows_of(lake.at("good")["t"].to_arrow()) == TAGGED


def test_it_is_restored_and_exported(lake: OpenLake, tmp_path: Path) -> None:
    clean_up(lake, make(lake, None))
    version = lake.catalog.as_of("good").version
    for mode in MODES:
        export(lake.catalog, tmp_path / mode, mode, version)
        assert rows_of(lockstep.open(str(tmp_path / mode)).at()["t"].to_arrow()) == TAGGED
    lake.restore("good")
    assert rows_of(lake.at()["t"].to_arrow()) == TAGGED


def test_what_a_vacuum_by_delta_rs_takes_is_found(lake: OpenLake) -> None:
    folder = make(lake, None)
    with lake.transaction() as tx:
        tx["t"].overwrite({"id": [9], "v": ["z"]})
    clean_up(lake, folder)
    storage, timeline = lake.catalog.lake.storage, lake.catalog.timeline
    assert "tag good" not in {each.needed_by for each in verify_deep(storage, timeline)}
    deltalake.DeltaTable(str(folder)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    lost = [each for each in verify_deep(storage, timeline) if each.needed_by == "tag good"]
    assert {(each.problem, each.table, each.prevented_by) for each in lost} == {
        ("lost", T, "delta.deletedFileRetentionDuration")
    }
    assert all(not Path(_root(lake), each.path).exists() for each in lost)
    with pytest.raises(LockstepError, match="is gone"):
        lake.at("good")["t"].to_arrow()
