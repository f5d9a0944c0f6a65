"""Statements on tables of a few rows, run for real: data files whose rows are known, and the commits that Delta stages.

    INSERT          adds a data file
    DELETE, UPDATE  rewrites the files that it touches; where the table has deletion vectors, marks rows in them instead
    OPTIMIZE        puts all files into one, `dataChange` false
    ALTER           sets a table property

A data file is a JSON list of rows. All is read back from the store each time, by the protocol's rules and by nothing of
Lockstep's but the decoder of deletion vectors; a log that breaks a rule raises `BrokenTableError`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from pyroaring import BitMap64

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import ROW_TRACKING, Action, LogicalFile, bodies, logical_file, parse, render
from lockstep.delta.combine.deletion_vectors import decode, inline, serialize
from lockstep.delta.log import commit_path, staging_folder
from lockstep.storage import Storage
from lockstep.timeline.entry import Table
from lockstep.transactions.transaction import Transaction
from tests.support.lakes import PROTOCOL, add, metadata, named, remove, stage, stage_new

VECTORS = "delta.enableDeletionVectors"
TRACKING = "delta.enableRowTracking"
PART = "part-"
"""How the names of data files begin."""


class Row(NamedTuple):
    """A row; `serial` tells rows apart that look the same, and an updated row is another row."""

    id: int
    value: int
    serial: int


class Condition(NamedTuple):
    """A WHERE clause on `id`."""

    operator: Literal["=", "<", ">="]
    bound: int

    @property
    def sql(self) -> str:
        """The text that Catalyst makes of it."""
        return f"(id {self.operator} {self.bound})"

    def holds(self, row: Row) -> bool:
        """Whether a row satisfies it."""
        match self.operator:
            case "=":
                return row.id == self.bound
            case "<":
                return row.id < self.bound
            case ">=":
                return row.id >= self.bound


Where: TypeAlias = Condition | None
"""None is every row."""
Properties: TypeAlias = Mapping[str, str]


def matching(rows: Iterable[Row], where: Where) -> list[Row]:
    """Return the rows that satisfy a condition."""
    return [row for row in rows if where is None or where.holds(row)]


class BrokenTableError(AssertionError):
    """A table's log or its files are not what the protocol, or a statement, left there."""


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass
class Replayed:
    """A table as its log says it is, after some commits.

    Attributes:
        files: the adds of its logical files, oldest first.
        properties: `configuration` of its last metaData.
        mark: the highest row id given out; -1 for none.
    """

    files: dict[LogicalFile, dict[str, Any]] = field(default_factory=dict)
    properties: Properties = field(default_factory=dict)
    mark: int = -1

    def take(self, actions: Sequence[Action]) -> None:
        """Take one commit in: what it removes, which must be there, then what it adds."""
        for body in bodies(actions, "remove"):
            if self.files.pop(logical_file(body), None) is None:
                raise BrokenTableError(f"a commit removes {logical_file(body)}, and the table has {list(self.files)}")
        for body in bodies(actions, "add"):
            if any(path == body["path"] for path, _ in self.files):
                raise BrokenTableError(f"a commit adds {body['path']}, which is there already")
            self.files[logical_file(body)] = body
        for body in bodies(actions, "metaData"):
            self.properties = dict(body["configuration"])
        for body in bodies(actions, "domainMetadata"):
            mark = json.loads(body["configuration"])["rowIdHighWaterMark"]
            if mark < self.mark:
                raise BrokenTableError(f"the mark of row ids falls from {self.mark} to {mark}")
            self.mark = mark


class Reader:
    """Reads tables as any Delta reader does."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def published(self, location: str, last: int) -> Iterator[list[Action]]:
        """Yield a table's commits up to a version, from the first on."""
        for version in range(last + 1):
            data = self.storage.get(commit_path(location, version))
            if data is None:
                raise BrokenTableError(f"version {version} of {location} is not there")
            yield parse(data)

    def seen_by(self, tx: Transaction, table: Table) -> Replayed:
        """Return a table as a transaction sees it: up to its pin, and all that stands in its staging folder."""
        found = Replayed()
        for actions in self.published(table.location, table.version):
            found.take(actions)
        folder = staging_folder(table.location, tx.id)
        for name in self.storage.list(folder):
            found.take(parse(self.storage.get(f"{folder}/{name}") or b""))
        return found

    def rows(self, location: str, file: Mapping[str, Any]) -> dict[int, Row]:
        """Return a data file's rows that are not deleted, by their positions."""
        if (data := self.storage.get(f"{location}/{file['path']}")) is None:
            raise BrokenTableError(f"data file {file['path']} is gone, and {location} names it")
        gone = decode(file.get("deletionVector"), self.storage.get, location=location, root=self.storage.url)
        return {at: Row(*row) for at, row in enumerate(json.loads(data)) if at not in gone}

    def contents(self, location: str, table: Replayed) -> Counter[Row]:
        """Return all rows of a table, each as often as it is there."""
        return Counter(row for file in table.files.values() for row in self.rows(location, file).values())

    def history(self, location: str, commits: Iterable[Sequence[Action]]) -> Iterator[tuple[Counter[Row], Properties]]:
        """Yield what is in each version of a table, given its commits; each file is read once."""
        table = Replayed()
        read: dict[LogicalFile, list[Row]] = {}
        for actions in commits:
            table.take(actions)
            for key in table.files.keys() - read.keys():
                read[key] = [*self.rows(location, table.files[key]).values()]
            yield Counter(row for key in table.files for row in read[key]), table.properties


def wrong_row_ids(commits: Iterable[Sequence[Action]]) -> str | None:
    """Say what is wrong with the row ids of a table, given all its commits (Protocol, "Row Tracking").

    Each file is given, in the commit that first adds it, ids that no other file ever had, and that commit's version.
    """
    given: dict[range, str] = {}
    seen: set[str] = set()
    table = Replayed()
    for version, actions in enumerate(commits):
        table.take(actions)
        for file in bodies(actions, "add"):
            if file["path"] in seen or file.get("baseRowId") is None:
                continue
            seen.add(file["path"])
            ids = range(file["baseRowId"], file["baseRowId"] + json.loads(file["stats"])["numRecords"])
            for other, path in given.items():
                if ids.start < other.stop and other.start < ids.stop:
                    return f"{file['path']} has the row ids {ids}, {path} has {other}"
            given[ids] = file["path"]
            if ids.stop - 1 > table.mark:
                return f"{file['path']} has the row ids {ids}, above the mark {table.mark}"
            if file["defaultRowCommitVersion"] != version:
                return f"{file['path']} came with version {version} and says {file['defaultRowCommitVersion']}"
    return None


# --- writing ----------------------------------------------------------------------------------------------------------


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
                new.mark(file, hit)
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
    now = Replayed()
    for actions in Reader(storage).published(table.location, table.version):
        now.take(actions)
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

    def mark(self, file: Mapping[str, Any], positions: Iterable[int]) -> None:
        """Mark more rows of a file as deleted."""
        self.remove(file)
        gone = decode(file.get("deletionVector"), lambda _: None, location="", root="") | BitMap64(positions)
        stats = json.dumps({**json.loads(file["stats"]), "tightBounds": False})
        again = {**file, "deletionVector": inline(serialize(gone), len(gone)), "stats": stats, "dataChange": True}
        self.actions.append({"add": again})
