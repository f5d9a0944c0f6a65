"""Statements on tables of a few rows, run for real: data files whose rows are known, and the commits that Delta stages.

    INSERT          adds a data file
    DELETE, UPDATE  rewrites the files that it touches; where the table has deletion vectors, marks rows in them instead
    OPTIMIZE        puts all files into one, `dataChange` false
    ALTER           sets a table property

These change rows that satisfy conditions, so that what a lake holds can be compared with a model, row by row; values of
keys, for histories of several processes, are for `tests.support.keyed`.

What is there is read by `tests.support.rows`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyroaring import BitMap64

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import ROW_TRACKING, Action, render
from lockstep.delta.combine.deletion_vectors import serialize
from lockstep.delta.log import commit_path
from lockstep.storage import Storage
from lockstep.timeline.entry import Table
from lockstep.transactions.transaction import Transaction
from tests.support.lakes import PROTOCOL, add, metadata, named, remove, stage, stage_new
from tests.support.replay import Replayed, published
from tests.support.rows import Reader, Row, Where, matching
from tests.support.vectors import inline

VECTORS = "delta.enableDeletionVectors"
TRACKING = "delta.enableRowTracking"
PART = "part-"
"""How the names of data files begin."""


class Statements:
    """One transaction's statements. Tables are named as in `lakes.named`."""

    def __init__(self, catalog: TransactionalCatalog, tx: Transaction) -> None:
        self.catalog = catalog
        self.tx = tx
        self.reader = Reader(catalog.lake.storage)
        self._written = 0

    def select(self, name: str, where: Where = None) -> list[Row]:
        """Return the rows that satisfy a condition, in no order."""
        table = self._reads(name, where)
        return matching(self.reader.contents(table.location, self.reader.seen_by(self.tx, table)).elements(), where)

    def create(self, name: str, rows: Sequence[Row] = (), **properties: str) -> None:
        """CREATE TABLE … AS SELECT."""
        new = self._file(_Commit(Replayed(properties=properties), version=0), rows)
        start = (PROTOCOL, metadata(**properties))
        stage_new(self.catalog, self.tx, name, *new.actions, start=start, data=new.data)

    def insert(self, name: str, rows: Sequence[Row]) -> None:
        """INSERT: reads nothing."""
        self._stage(name, self._file(self._commit(name), rows), "WRITE")

    def delete(self, name: str, where: Where = None) -> list[Row]:
        """DELETE: return the rows that are gone."""
        return self._change(name, where, lambda _: None, "DELETE")

    def update(self, name: str, where: Where, change: Callable[[Row], Row]) -> list[Row]:
        """UPDATE: change the rows that satisfy the condition, and return what they were."""
        return self._change(name, where, change, "UPDATE")

    def optimize(self, name: str) -> None:
        """OPTIMIZE: every row stays."""
        table, new = self.tx.table(named(name)), self._commit(name)
        files = list(new.table.files.values())
        if len(files) < 2 and not any("deletionVector" in file for file in files):
            return
        rows = [row for file in files for row in self.reader.rows(table.location, file).values()]
        for file in files:
            new.remove(file, dataChange=False)
        self._stage(name, self._file(new, rows, dataChange=False), "OPTIMIZE")

    def alter(self, name: str, key: str, value: str) -> None:
        """ALTER TABLE … SET TBLPROPERTIES."""
        new = self._commit(name)
        new.actions.append(metadata(**{**new.table.properties, key: value}))
        self._stage(name, new, "SET TBLPROPERTIES")

    def _change(self, name: str, where: Where, change: Callable[[Row], Row | None], operation: str) -> list[Row]:
        table, new = self._reads(name, where), self._commit(name)
        found: list[Row] = []
        written: list[Row] = []
        for file in list(new.table.files.values()):
            rows = self.reader.rows(table.location, file)
            hit = {at: row for at, row in rows.items() if where is None or where.holds(row)}
            if not hit:
                continue
            found += hit.values()
            written += [changed for row in hit.values() if (changed := change(row)) is not None]
            if len(hit) < len(rows) and new.table.properties.get(VECTORS) == "true":
                new.mark(file, self.reader.gone(table.location, file) | BitMap64(hit))
            else:
                new.remove(file)
                written += [row for at, row in rows.items() if at not in hit]
        if found:
            self._stage(name, self._file(new, written), operation)
        return found

    def _reads(self, name: str, where: Where) -> Table:
        table = self.tx.table(named(name))
        self.tx.read(table, None if where is None else where.sql)
        return table

    def _commit(self, name: str) -> _Commit:
        table = self.tx.table(named(name))
        version = [table.version, *self.tx.staged.get(table.id, [])][-1] + 1
        return _Commit(self.reader.seen_by(self.tx, table), version)

    def _file(self, new: _Commit, rows: Sequence[Row], **more: Any) -> _Commit:
        self._written += 1
        new.add(f"{PART}{self.tx.id}-{self._written}.json", rows, **more)
        return new

    def _stage(self, name: str, new: _Commit, operation: str) -> None:
        stage(self.catalog, self.tx, name, *new.actions, operation=operation, data=new.data)


def insert_plainly(storage: Storage, table: Table, rows: Sequence[Row], file: str) -> None:
    """INSERT as a plain Delta writer does, at once and unknown to the timeline."""
    now = Replayed().take_all(published(storage, table.location, table.version))
    new = _Commit(now, table.version + 1)
    new.add(f"{PART}{file}.json", rows)
    storage.put(f"{table.location}/{PART}{file}.json", new.data)
    info: Action = {"commitInfo": {"operation": "WRITE", "engineInfo": "plain"}}
    storage.put_once(commit_path(table.location, table.version + 1), render([info, *new.actions]))


class _Commit:
    """The actions of one statement on one table, and the data of the one file that it writes, if any."""

    def __init__(self, table: Replayed, version: int) -> None:
        self.table = table
        self.version = version
        self.actions: list[Action] = []
        self.data = b""

    def add(self, path: str, rows: Sequence[Row], **more: Any) -> None:
        """Add a data file, if there are rows for it."""
        if not rows:
            return
        self.data = json.dumps(rows).encode()
        stats = {"numRecords": len(rows), "nullCount": {"id": 0}}
        stats |= {"minValues": {"id": min(row.id for row in rows)}, "maxValues": {"id": max(row.id for row in rows)}}
        if self.table.properties.get(TRACKING) == "true":
            more |= {"baseRowId": self.table.mark + 1, "defaultRowCommitVersion": self.version}
            mark = json.dumps({"rowIdHighWaterMark": self.table.mark + len(rows)})
            self.actions.append({"domainMetadata": {"domain": ROW_TRACKING, "configuration": mark, "removed": False}})
        self.actions.append(add(path, size=len(self.data), stats=json.dumps(stats), **more))

    def remove(self, file: Mapping[str, Any], **more: Any) -> None:
        """Take a file out, as it is now."""
        kept = ("size", "deletionVector", "baseRowId", "defaultRowCommitVersion")
        self.actions.append(remove(file["path"], **{key: file[key] for key in kept if key in file}, **more))

    def mark(self, file: Mapping[str, Any], gone: BitMap64) -> None:
        """Mark rows of a file as deleted, and those that were before."""
        self.remove(file)
        stats = json.dumps({**json.loads(file["stats"]), "tightBounds": False})
        again = {**file, "deletionVector": inline(serialize(gone), len(gone)), "stats": stats, "dataChange": True}
        self.actions.append({"add": again})
