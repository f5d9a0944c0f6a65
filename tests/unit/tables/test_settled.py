"""A process that has read a table goes on after somebody has settled it: it reads and changes what was kept."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

import lockstep
from lockstep.tables.opened import OpenLake
from tests.support.commands import read


def test_what_was_read_before_theirs_was_kept_is_not_carried_on(tmp_path: Path) -> None:
    lake = lockstep.open(str(tmp_path / "lake"), create=True)
    with lake.transaction() as tx:
        tx.create("t", pa.schema([("id", pa.int64())])).append({"id": [1]})
    folder = Path(lake.at()["t"].uri.removeprefix("file://"))
    shutil.copytree(folder, tmp_path / "plain")
    with lake.transaction() as tx:
        tx["t"].append({"id": [2]})
    assert ids(lake) == [1, 2]

    write_deltalake(str(tmp_path / "plain"), pa.table({"id": [9]}), mode="append")  # over ours, as on S3
    shutil.copytree(tmp_path / "plain", folder, dirs_exist_ok=True)
    read("settle", tmp_path / "lake", "default.t", "--theirs", "--yes")

    assert ids(lake) == [1, 9]
    with lake.transaction() as tx:
        tx["t"].update({"id": "id + 10"})
    assert ids(lake) == [11, 19]


def ids(lake: OpenLake) -> list[int]:
    """What a transaction reads, which keeps what it has read of the log."""
    with lake.transaction(read_only=True) as tx:
        found: list[int] = tx["t"].to_arrow()["id"].to_pylist()
    return sorted(found)
