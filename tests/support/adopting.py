"""Delta tables that others made, and their adoption."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from lockstep.adoption.adopt import Wanted, adopt, look
from lockstep.adoption.release import release
from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import Action, render
from lockstep.timeline.entry import Table
from tests.support.lakes import SCHEMA, metadata, named


def plain_table(folder: Path, *ids: int) -> Path:
    """Have delta-rs make a table, or append to it: one commit for each id."""
    for id in ids:
        write_deltalake(str(folder), pa.table({"id": pa.array([id], pa.int64())}), mode="append")
    return folder


def ids(folder: Path, version: int | None = None) -> list[int]:
    """Return what delta-rs reads of a table."""
    found: list[int] = DeltaTable(str(folder), version=version).to_pyarrow_table()["id"].to_pylist()
    return sorted(found)


def written_log(folder: Path, *actions: Action, features: Sequence[str] = (), **configuration: str) -> Path:
    """Write the first commit of a table whose protocol names these writer features."""
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
    if features:
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [*features]}
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    first = [{"commitInfo": {"operation": "CREATE TABLE"}}, {"protocol": protocol}, metadata(**configuration), *actions]
    (log / f"{0:020d}.json").write_bytes(render(first))
    assert json.loads(SCHEMA)["fields"][0]["name"] == "id"
    return folder


def adopted(catalog: TransactionalCatalog, name: str, folder: Path) -> Table:
    """Adopt a table in a transaction of its own, and return it as the lake has it then."""
    adopt_all(catalog, {name: folder})
    return catalog.database().tables[named(name)]


def adopt_all(catalog: TransactionalCatalog, folders: dict[str, Path]) -> int:
    """Adopt tables in one transaction, and return its database version."""
    tx = catalog.begin()
    wanted = [Wanted(named(name), str(folder)) for name, folder in folders.items()]
    adopt(catalog.lake, tx, look(catalog.lake, tx.names, wanted), make_namespaces=True)
    return catalog.commit(tx).version


def released(catalog: TransactionalCatalog, *names: str) -> int:
    """Release tables in a transaction of its own."""
    tx = catalog.begin()
    release(catalog.lake, tx, [named(name) for name in names])
    return catalog.commit(tx).version


def files_of(folder: Path) -> dict[str, bytes]:
    """Return all that is in a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
