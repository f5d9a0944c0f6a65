"""A lake without Spark: what Delta would stage, and what a plain Delta writer would do, as small NDJSON files."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from lockstep.arbiters import Arbiter
from lockstep.catalog import NO_LOCK, TransactionalCatalog, new_id
from lockstep.commit.elsewhere import hold, reserve
from lockstep.conflict.lock_policy import FIRST_COMMITTER_WINS, Resolution
from lockstep.delta.actions import Action, render
from lockstep.delta.log import commit_path, staged_path
from lockstep.lake.lake import Lake
from lockstep.lake.turns import Turns, lock_file
from lockstep.storage import Storage
from lockstep.timeline.clock import Clock, utc_now
from lockstep.timeline.entry import INLINE_BYTES, Isolation, Name, Table
from lockstep.timeline.log import Timeline
from lockstep.transactions.transaction import Transaction
from tests.support.replay import Replayed, published

WRITTEN_AT = 4_102_444_800_000
"""When files say that they were written, in ms since 1970: 2100, so they are young by any clock of a test."""

SCHEMA = json.dumps({"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]})


def named(text: str) -> Name:
    """`orders` is `default.orders`; `sales.orders` says its namespace."""
    *namespace, table = text.split(".")
    return Name(namespace=tuple(namespace) or ("default",), table=table)


def open_catalog(
    storage: Storage,
    *,
    isolation: Isolation = "SERIALIZABLE",
    resolution: Resolution = FIRST_COMMITTER_WINS,
    clock: Clock = utc_now,
    turns: bool = False,
    arbiter: Arbiter | None = None,
) -> TransactionalCatalog:
    """Open the lake in a store, as a process of its own would: nothing is shared with other catalogs.

    Args:
        turns: whether it takes turns with others of this host that do; a test that has two race does not want it.
    """
    timeline = Timeline.create(storage, clock=clock, arbiter=arbiter)
    lake = Lake(storage, timeline, clock=clock, new_id=new_id, turns=Turns(lock_file(storage.url)) if turns else None)
    return TransactionalCatalog(lake, author="ada", isolation=isolation, resolution=resolution)


def again(catalog: TransactionalCatalog) -> TransactionalCatalog:
    """The same lake in another process."""
    return open_catalog(catalog.lake.storage, clock=catalog.lake.clock)


def location(catalog: TransactionalCatalog, name: str) -> str:
    return catalog.timeline.head.tables[named(name)].location


def log_file(catalog: TransactionalCatalog, name: str, version: int) -> str:
    """Return the path of a table version's commit."""
    return commit_path(location(catalog, name), version)


def tree(store: Storage) -> set[str]:
    """All files of the lake but those of the timeline."""
    root = Path(store.url.removeprefix("file://"))
    found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    return {path for path in found if not path.startswith("_lockstep/")}


# --- actions ----------------------------------------------------------------------------------------------------------


def staged_commits(root: Path) -> list[Path]:
    """Return what open transactions have written into the logs of a lake's tables, while they may be ending."""
    # Path.rglob would fail on a folder that goes meanwhile; this passes over it.
    folders = (Path(folder) for folder, _, names in os.walk(root) if names)
    logs = (
        folder for folder in folders if folder.parent.name == "_lockstep" and folder.parent.parent.name == "_delta_log"
    )
    return [path for folder in logs for path in folder.glob("*.json")]


def add(path: str, **more: Any) -> Action:
    stats = json.dumps({"numRecords": 1})
    file = {
        "path": path,
        "partitionValues": {},
        "size": 1,
        "modificationTime": WRITTEN_AT,
        "dataChange": True,
        "stats": stats,
    }
    return {"add": {**file, **more}}


def large(path: str) -> Action:
    """A file whose commit is too large for the timeline's entry."""
    return add(path, tags={"why": "x" * INLINE_BYTES})


def remove(path: str, **more: Any) -> Action:
    return {"remove": {"path": path, "deletionTimestamp": 0, "dataChange": True, "size": 1, **more}}


def metadata(*columns: str, **configuration: str) -> Action:
    """Metadata of a table of ids, with these columns after them and these properties."""
    format = {"provider": "parquet", "options": {}}
    schema = json.loads(SCHEMA)
    schema["fields"] += [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in columns]
    body = {"id": "m", "format": format, "partitionColumns": [], "createdTime": 0, "schemaString": json.dumps(schema)}
    return {"metaData": {**body, "configuration": configuration}}


CONSTRAINT = metadata(**{"delta.constraints.c": "id > 0"})
PROTOCOL: Action = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
NEW_TABLE: tuple[Action, ...] = (PROTOCOL, metadata())
CREATED: tuple[Action, ...] = ({"commitInfo": {"operation": "CREATE TABLE AS SELECT"}}, *NEW_TABLE)
"""How the commit of a statement begins that makes a table and fills it."""


# --- what Delta does --------------------------------------------------------------------------------------------------


def stage(
    catalog: TransactionalCatalog,
    tx: Transaction,
    name: str,
    *actions: Action,
    operation: str = "WRITE",
    data: bytes = b"rows",
    lock: AbstractContextManager[object] = NO_LOCK,
) -> None:
    """Stage one statement's commit of a table, and write the data files that it adds and that are not there.

    All with the same data.

    Args:
        lock: what is held while the transaction changes, if several threads use it.
    """
    with lock:
        table = catalog.table(tx, named(name))
        version = _stage(catalog, tx, table, actions, operation=operation, data=data)
    catalog.claim(tx, table.location, version, lock=lock)


def stage_new(
    catalog: TransactionalCatalog,
    tx: Transaction,
    name: str,
    *actions: Action,
    start: Sequence[Action] = NEW_TABLE,
    data: bytes = b"rows",
    where: Path | None = None,
) -> str:
    """Stage the first commit of a new table, at a folder that a statement names or not; return its location."""
    creation = reserve(catalog.lake, tx, named(name), None if where is None else str(where))
    table = Table(id=creation.id, name=creation.name, location=creation.location, version=-1, since=0)
    version = _stage(catalog, tx, table, [*start, *actions], operation="CREATE TABLE AS SELECT", data=data)
    catalog.claim(tx, creation.location, version)
    return creation.location


def _stage(
    catalog: TransactionalCatalog,
    tx: Transaction,
    table: Table,
    actions: Sequence[Action],
    *,
    operation: str,
    data: bytes,
) -> int:
    version = [table.version, *tx.staged.get(table.id, [])][-1] + 1
    storage = catalog.lake.storage
    lay(storage, table.location, actions, data)
    hold(catalog.lake, tx, table.location)
    storage.put(
        staged_path(table.location, tx.id, version), render([{"commitInfo": {"operation": operation}}, *actions])
    )
    catalog.stage(tx, table.location, version)
    return version


def lay(storage: Storage, location: str, actions: Sequence[Action], data: bytes = b"rows") -> None:
    """Write the data and change files that actions add to a table and that are not there."""
    for path in (action[kind]["path"] for action in actions for kind in ("add", "cdc") if kind in action):
        if "://" not in path and not storage.exists(f"{location}/{path}"):
            storage.put(f"{location}/{path}", data)


def create(catalog: TransactionalCatalog, *names: str, files: Sequence[str] = ()) -> None:
    """Commit new tables, in one transaction, each with these files."""
    tx = catalog.begin()
    for name in names:
        stage_new(catalog, tx, name, *map(add, files))
    catalog.commit(tx)


def append(catalog: TransactionalCatalog, name: str, path: str, isolation: Isolation | None = None) -> int:
    """Commit one new file in a transaction of its own, and return the database version."""
    tx = catalog.begin(isolation=isolation)
    stage(catalog, tx, name, add(path))
    return catalog.commit(tx).version


def foreign(catalog: TransactionalCatalog, name: str, version: int, *actions: Action, **info: Any) -> str:
    """Commit as a plain Delta writer does, who knows nothing of the timeline; return the file's path."""
    table = catalog.timeline.head.tables[named(name)]
    path = commit_path(table.location, version)
    data = render([{"commitInfo": {"operation": "WRITE", "engineInfo": "plain", **info}}, *actions])
    file = Path(catalog.lake.storage.url.removeprefix("file://"), path)
    with file.open("xb") as out:
        out.write(data)
    return path


# --- what is there ----------------------------------------------------------------------------------------------------


def files(catalog: TransactionalCatalog, name: str, version: int | None = None) -> set[str]:
    """Replay a table's published log, and return the files of its version in the newest database version."""
    table = catalog.database([named(name)]).tables[named(name)]
    return replay(catalog.lake.storage, table.location, table.version if version is None else version)


def replay(storage: Storage, location: str, version: int) -> set[str]:
    """Return the files of a table version, from its published log alone: what any Delta reader sees."""
    return Replayed().take_all(published(storage, location, version)).paths()
