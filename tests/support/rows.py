"""Tables of a few rows, as a Delta reader finds them: what a row is, and which ones are there.

A data file is a JSON list of rows. All is read back from the store each time, by nothing of Lockstep's but the decoder
of deletion vectors; a log that breaks a rule raises `BrokenTableError`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from pyroaring import BitMap64

from lockstep.delta.actions import Action, LogicalFile, bodies, parse
from lockstep.delta.combine.deletion_vectors import decode
from lockstep.delta.log import staging_folder
from lockstep.storage import Storage
from lockstep.timeline.entry import Table
from lockstep.transactions.transaction import Transaction
from tests.support.replay import Replayed, data_of, published


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


class Reader:
    """Reads tables as any Delta reader does."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def seen_by(self, tx: Transaction, table: Table) -> Replayed:
        """Return a table as a transaction sees it: up to its pin, and all that stands in its staging folder."""
        folder = staging_folder(table.location, tx.id)
        staged = (parse(self.storage.get(f"{folder}/{name}") or b"") for name in self.storage.list(folder))
        return Replayed().take_all(published(self.storage, table.location, table.version)).take_all(staged)

    def rows(self, location: str, file: Mapping[str, Any]) -> dict[int, Row]:
        """Return a data file's rows that are not deleted, by their positions."""
        data = data_of(self.storage, location, file["path"])
        gone = self.gone(location, file)
        return {at: Row(*row) for at, row in enumerate(data) if at not in gone}

    def gone(self, location: str, file: Mapping[str, Any]) -> BitMap64:
        """Return the positions of a data file's rows that are deleted."""
        return decode(file.get("deletionVector"), self.storage.get, location=location, root=self.storage.url)

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
