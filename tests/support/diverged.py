"""Lakes with a table that has diverged, in each of the ways there are; and how a person settles it."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
from pyarrow import parquet

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import Action, render
from lockstep.delta.log import commit_path
from lockstep.errors import LockstepError
from lockstep.lake.policy import PROPERTY
from lockstep.recovery.divergence import divergence
from lockstep.recovery.settle import Side, settle
from lockstep.storage.outside import open_reaching
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, create, lay, location, metadata, named, open_catalog, remove, stage

Diverge: TypeAlias = Callable[[TransactionalCatalog, FaultyStorage], None]
SIDES: tuple[Side, ...] = ("ours", "theirs")


def killed_at_each_call(
    folder: Path, make: Callable[[FaultyStorage], TransactionalCatalog], keep: Side
) -> Iterator[tuple[str, TransactionalCatalog, bool]]:
    """Settle a table anew, killed at one call of the store after the other, until that comes to its end.

    Yields:
        At which call, the lake as another process finds it, and whether the table is settled: whoever was told so is
        right, and there is one who was told, and one who was not and is not.
    """
    outcomes = set()
    for number in range(1, 500, 3):
        store = FaultyStorage(open_reaching(str(folder / str(number)), create=True))
        catalog = make(store)
        version = catalog.timeline.head.version
        store.die_at(number)
        try:
            settled(catalog, keep)
            is_done = True
        except LockstepError:
            is_done = False
        catalog.lake.upkeep.settle()
        store.heal()
        after = open_catalog(store.inner)
        is_settled = after.timeline.head.version > version
        outcomes.add((is_done, is_settled))
        assert is_settled or not is_done
        yield str(number), after, is_settled
        if is_done:
            break
    assert {(False, False), (True, True)} <= outcomes


def put_foreign(catalog: TransactionalCatalog, version: int, *actions: Action) -> None:
    """Do what a plain writer does that writes over what is there, data first."""
    where = location(catalog, "t")
    lay(catalog.lake.storage, where, actions)
    catalog.lake.storage.put(commit_path(where, version), render([{"commitInfo": {"operation": "WRITE"}}, *actions]))


def overtaken(catalog: TransactionalCatalog, store: FaultyStorage, *theirs: Action) -> None:
    """Have a plain writer take the version of a transaction of ours before it is published."""
    tx = catalog.begin()
    stage(catalog, tx, "t", remove("p"), add("ours"))
    where = location(catalog, "t")
    store.interrupt(
        "put_if_absent", lambda: put_foreign(open_catalog(store.inner), 1, *theirs), path=commit_path(where, 1)
    )
    catalog.commit(tx)


def in_conflict(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    """Both removed the same file; the plain writer went on."""
    overtaken(catalog, store, remove("p"), add("theirs"))
    put_foreign(catalog, 2, add("theirs2"))


def written_over(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    """What was published is gone from the log; the plain writer went on."""
    tx = catalog.begin()
    stage(catalog, tx, "t", remove("p"), add("ours"))
    catalog.commit(tx)
    catalog.lake.upkeep.settle()
    put_foreign(catalog, 1, remove("p"), add("theirs"))
    put_foreign(catalog, 2, add("theirs2"))


def refused(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    """The table refuses foreign commits."""
    tx = catalog.begin()
    stage(catalog, tx, "t", metadata(**{PROPERTY: "refuse"}), remove("p"), add("ours"))
    catalog.commit(tx)
    put_foreign(catalog, 2, remove("ours"), add("theirs"))
    put_foreign(catalog, 3, add("theirs2"))


CASES: dict[str, Diverge] = {"in conflict": in_conflict, "written over": written_over, "refused": refused}
HELD: dict[Side, set[str]] = {"ours": {"ours"}, "theirs": {"theirs", "theirs2"}}


def diverged(store: FaultyStorage, case: str) -> TransactionalCatalog:
    """Return a lake with a table t that has diverged, and a table u."""
    catalog = open_catalog(store)
    create(catalog, "t", "u", files=["p"])
    CASES[case](catalog, store)
    catalog.lake.upkeep.settle()
    return catalog


def settled(catalog: TransactionalCatalog, keep: Side) -> int:
    return settle(catalog.lake, divergence(catalog.lake, named("t")), keep, lambda do: catalog.run(do).version)


def as_it_is(folder: Path, to: Path) -> Path:
    """Copy a table, without what Lockstep has there: a plain writer has read it, and does not hear of what comes."""
    return shutil.copytree(folder, to, ignore=shutil.ignore_patterns("_lockstep", "*.crc"))


def write_over(folder: Path, theirs: Path) -> None:
    """Have a plain writer, which worked in a copy of a table, come late: its commits take the place of those there.

    As Delta's own log store for S3 does it. Nothing else of what is there is written over, checksums neither.
    """
    for path in sorted(theirs.rglob("*")):
        to = folder / path.relative_to(theirs)
        is_commit = path.parent.name == "_delta_log" and path.suffix == ".json"
        if path.is_file() and (not to.exists() or (is_commit and to.read_bytes() != path.read_bytes())):
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, to)


def write_checkpoint(
    store: FaultyStorage, where: str, version: int, actions: list[Action], name: str = "checkpoint.parquet"
) -> None:
    """Write a checkpoint, by default a classic one, with as many columns as are read of one."""
    rows = [{kind: json.loads(json.dumps(body)) for kind, body in action.items()} for action in actions]
    for row in rows:
        if "metaData" in row:
            row["metaData"]["configuration"] = [("a", "b")][:0]
            row["metaData"]["format"] = {"provider": "parquet"}
        if "add" in row:
            row["add"]["partitionValues"] = [("a", "b")][:0]
    map_type = pa.map_(pa.string(), pa.string())
    schema = pa.schema(
        {
            "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
            "metaData": pa.struct(
                {
                    "id": pa.string(),
                    "format": pa.struct({"provider": pa.string()}),
                    "schemaString": pa.string(),
                    "partitionColumns": pa.list_(pa.string()),
                    "createdTime": pa.int64(),
                    "configuration": map_type,
                }
            ),
            "txn": pa.struct({"appId": pa.string(), "version": pa.int64()}),
            "domainMetadata": pa.struct({"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()}),
            "add": pa.struct(
                {
                    "path": pa.string(),
                    "partitionValues": map_type,
                    "size": pa.int64(),
                    "modificationTime": pa.int64(),
                    "dataChange": pa.bool_(),
                    "stats": pa.string(),
                }
            ),
        }
    )
    buffer = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows, schema=schema), buffer)
    store.inner.put(f"{where}/_delta_log/{version:020d}.{name}", buffer.getvalue())
