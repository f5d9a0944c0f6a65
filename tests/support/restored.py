"""What tests of restores without Spark share: tables of each kind, and what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from lockstep.delta.actions import Action
from lockstep.delta.log import read_published
from lockstep.delta.snapshot import Snapshot, read_snapshot
from lockstep.recovery.tags import new_tag
from lockstep.tables.opened import OpenLake
from lockstep.timeline.entry import Name, Table

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
ROWS = {"id": [1, 2, 3, 4], "v": ["a", "b", "c", "d"]}
KINDS: dict[str, dict[str, Any]] = {
    "files": {},
    "vectors": {"properties": {"delta.enableDeletionVectors": "true"}},
    "partitions": {"partition_by": ["v"]},
    "mapped": {"properties": {"delta.columnMapping.mode": "name"}},
    "times": {"properties": {"delta.enableInCommitTimestamps": "true"}},
    "feed": {"properties": {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}},
}


def named(table: str) -> Name:
    return Name(namespace=("default",), table=table)


def table_of(lake: OpenLake, name: str = "t") -> Table:
    return lake.catalog.database().tables[named(name)]


def snapshot_of(lake: OpenLake, name: str = "t", version: int | None = None) -> Snapshot:
    table = table_of(lake, name)
    return read_snapshot(lake.catalog.lake.storage, table.location, table.version if version is None else version)


def last_commit(lake: OpenLake, name: str = "t") -> list[Action]:
    table = table_of(lake, name)
    return read_published(lake.catalog.lake.storage, table.location, table.version)


def rows(lake: OpenLake, name: str = "t") -> list[dict[str, Any]]:
    found = lake.at()[name].to_arrow().to_pylist()
    return sorted(found, key=lambda row: repr(list(row.values())))


def make(lake: OpenLake, name: str = "t", **more: Any) -> int:
    with lake.transaction() as tx:
        tx.create(name, SCHEMA, **more).append(ROWS)
    assert tx.version is not None
    return tx.version


def touched(folder: Path) -> dict[Path, int]:
    """What is below a folder, and when each was last changed: a folder is whenever something in it comes or goes."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def tagged(lake: OpenLake, name: str) -> None:
    lake.catalog.run(
        lambda tx: tx.changing().create_tag(
            new_tag(name, version=None, days=None, comment="", now=lake.catalog.lake.clock())
        )
    )
