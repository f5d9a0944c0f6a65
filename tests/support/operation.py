"""An operation of a transaction on a small database: what it writes and reads, and the actions that Delta writes.

The database: table s.a (id "A") of rows (id, p, v), partitioned by p, in the files x1 (ids 1, 2), x2 (3, 4) and y1
(21, 22); table s.b (id "B") with one row; view s.v, which asks no table; the empty namespace n. A CHECK constraint on
s.a forbids a negative v, once there is one.

"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyroaring import BitMap64

from lockstep.conflict.writes import Changes
from lockstep.delta.actions import Action
from lockstep.delta.combine.deletion_vectors import serialize
from lockstep.delta.combine.evolution import TableState
from lockstep.delta.footprint import footprint
from lockstep.delta.pruning.row_sets import NO_ROW, Rows
from lockstep.timeline.entry import Isolation, Name, NamespaceDdl, TableDdl, ViewDdl
from tests.support.lakes import PROTOCOL, metadata
from tests.support.meaning import IDS, PART, Run
from tests.support.vectors import inline


@dataclass(frozen=True)
class Tracked:
    """What Delta keeps of what a transaction read of s.a, for its conflict check (OptimisticTransaction.scala).

    Attributes:
        partition: the value of p that all read predicates ask for; None for any.
        files: paths of the files that its scans were left with.
        reads: whether it has read predicates at all.
    """

    partition: str | None = None
    files: frozenset[str] = frozenset()
    reads: bool = True


LEGACY = ("appendOnly", "invariants")
"""The features of the tables' protocol."""
BLIND = Tracked(reads=False)
WHOLE = Tracked(files=frozenset({"x1", "x2", "y1"}))


@dataclass(frozen=True)
class Operation:
    """One operation, by one of the two transactions.

    Attributes:
        name: as the documentation calls it.
        example: it as SQL, or in words.
        run: what it means.
        writes: by table id, Delta's actions.
        reads: by table id, the rows that Lockstep records as read.
        view_reads: the views whose definitions it uses.
        ddl: its changes of names.
        delta: what Delta tracks; None for what Delta has no conflict check for, DDL of its catalog.
        duck: the changes that DuckLake records, each with what it is about; None where it has no such operation.
    """

    name: str
    example: str
    run: Run
    writes: dict[str, tuple[Action, ...]] = field(default_factory=dict)
    reads: dict[str, Rows] = field(default_factory=dict)
    view_reads: frozenset[Name] = frozenset()
    ddl: tuple[TableDdl | NamespaceDdl | ViewDdl, ...] = ()
    delta: Tracked | None = BLIND
    duck: frozenset[tuple[str, str]] | None = frozenset()

    def changes(self, transaction: str, isolation: Isolation, version: int | None = None) -> Changes:
        """Return it as the conflict check sees it."""
        return Changes(
            transaction,
            namespaces=tuple(ddl for ddl in self.ddl if isinstance(ddl, NamespaceDdl)),
            tables=tuple(ddl for ddl in self.ddl if isinstance(ddl, TableDdl)),
            views=tuple(ddl for ddl in self.ddl if isinstance(ddl, ViewDdl)),
            writes={id: footprint(actions, partial(_before, id)) for id, actions in self.writes.items()},
            reads=dict.fromkeys(self.writes, NO_ROW) | self.reads,
            view_reads=self.view_reads,
            names={"A": A, "B": B},
            isolation=isolation,
            base=1,
            database_version=version,
        )


def _before(id: str) -> TableState | None:
    """Return what a table is at first; None for a new one."""
    return TableState(described()["metaData"], PROTOCOL["protocol"]) if id in ("A", "B") else None


def described(*columns: dict[str, Any], mark: int = 100, properties: dict[str, str] | None = None) -> Action:
    """The metadata of the tables; they have an identity column, which is of no further interest."""
    identity = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.highWaterMark": mark}
    fields = [column("id"), column("p"), column("v"), {**column("n"), "metadata": identity}, *columns]
    return schema(*fields, properties=properties or {})


def schema(*fields: dict[str, Any], properties: dict[str, str]) -> Action:
    body = metadata(**properties)["metaData"]
    return {"metaData": {**body, "schemaString": json.dumps({"type": "struct", "fields": fields})}}


def column(name: str) -> dict[str, Any]:
    return {"name": name, "type": "long", "nullable": True, "metadata": {}}


A, B, C, V = (Name(namespace=("s",), table=table) for table in "abcv")


def add(path: str, part: str, ids: Iterable[int], **more: Any) -> Action:
    """A data file with the statistics that Delta writes."""
    ids = sorted(ids)
    stats = {
        "numRecords": len(ids), "minValues": {"id": ids[0]}, "maxValues": {"id": ids[-1]}, "nullCount": {"id": 0},
    }  # fmt: skip
    body = {"path": path, "partitionValues": {"p": part}, "size": 1, "modificationTime": 0, "dataChange": True}
    return {"add": {**body, "stats": json.dumps(stats), **more}}


def removes(path: str, **more: Any) -> Action:
    """A file's removal, with its partition and without statistics, as Delta writes it."""
    part = {"p": PART[path]}
    return {"remove": {"path": path, "partitionValues": part, "size": 1, "dataChange": True, **more}}


def info(operation: str = "WRITE", *, blind: bool = False) -> Action:
    return {"commitInfo": {"operation": operation, "isBlindAppend": blind}}


def rewrites(path: str, to: str, *ids: int) -> tuple[Action, ...]:
    """Copy on write: the file is replaced by one with these rows."""
    return info("UPDATE"), removes(path), add(to, PART[path], ids)


def marks(path: str, row: int, *new: Action) -> tuple[Action, ...]:
    """Merge on read: the row at this position gets out of the file by its deletion vector."""
    vector = inline(serialize(BitMap64([row])), 1)
    return info("UPDATE"), add(path, PART[path], IDS[path], deletionVector=vector), removes(path), *new


def appends(*actions: Action) -> tuple[Action, ...]:
    return info(blind=True), *actions


def row_ids(mark: int) -> Action:
    return {"domainMetadata": {
        "domain": "delta.rowTracking", "configuration": json.dumps({"rowIdHighWaterMark": mark}), "removed": False,
    }}  # fmt: skip


def point(id: int) -> Rows:
    """The condition of a statement on one row, which names the partition too."""
    part = next(PART[path] for path, ids in IDS.items() if id in ids)
    return frozenset({f"((p = '{part}') AND (id = {id}))"})


def tracks(path: str) -> Tracked:
    return Tracked(PART[path], frozenset({path}))


INSERTED, DELETED = ("insert", "A"), ("delete", "A")


def duck(*changes: tuple[str, str], files: Iterable[str] = ()) -> frozenset[tuple[str, str]]:
    """What DuckLake records; `files` are those from which rows are deleted."""
    return frozenset(changes) | {("file", path) for path in files}
