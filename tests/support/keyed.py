"""Tables of keys and their values, for histories: a few lines that play Delta's part, in place of Spark.

A row is a value of a key; a data file holds some rows of one key, and its statistics say which key. Reading a table is
replaying its published log up to the pin, then what is staged.

    append t0/list0.0    UPDATE: removes the list's file, adds one with a value more    reads the table
    merge  t0/set0.0     MERGE: the same with a set, all of whose files become one      reads the table
    add    t0/set0.0     INSERT: adds a file with one row                               reads nothing

These write values of keys, so that who read which value shows the order of transactions (`tests.support.history`); rows
that satisfy conditions, deletion vectors and row ids are for `tests.support.statements`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import Action
from lockstep.delta.log import read_staged
from lockstep.storage import Storage
from lockstep.timeline.entry import NEW, Table
from lockstep.transactions.transaction import Transaction
from tests.support.lakes import add, named, remove, stage
from tests.support.replay import Replayed, data_of, published

Contents: TypeAlias = dict[str, tuple[str, ...]]


class Tables:
    """Reads tables as a Delta reader does: from the published log, staged commits, and data files."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._replayed: dict[str, tuple[int, Replayed]] = {}
        self._data: dict[str, tuple[str, ...]] = {}

    def files(self, location: str, version: int, staged: Iterable[Sequence[Action]] = ()) -> dict[str, str]:
        """Return the files of a table, oldest first, and the key of each.

        Published commits do not change, so a later version is replayed from an earlier one.
        """
        done, table = self._replayed.get(location, (NEW, Replayed(strict=False)))
        if done > version:
            done, table = NEW, Replayed(strict=False)
        table.take_all(published(self.storage, location, version, after=done))
        self._replayed[location] = version, table
        return keys_of_files(table.copy().take_all(staged))

    def seen_by(self, tx: Transaction, table: Table) -> dict[str, str]:
        """Return a table's files as a transaction sees them."""
        staged = (read_staged(self.storage, table.location, tx.id, version) for version in tx.staged.get(table.id, []))
        return self.files(table.location, table.version, staged)

    def rows(self, location: str, files: Iterable[str]) -> tuple[str, ...]:
        """Return the values in some files, in order.

        Raises:
            BrokenTableError: one of them is gone.
        """
        return tuple(value for path in files for value in self._read(location, path))

    def _read(self, location: str, path: str) -> tuple[str, ...]:
        if (where := f"{location}/{path}") not in self._data:
            self._data[where] = tuple(data_of(self.storage, location, path))
        return self._data[where]

    def contents(self, tables: Iterable[Table]) -> Contents:
        """Return all keys of some table versions, with their values."""
        found: Contents = {}
        for table in tables:
            found |= self.grouped(table, self.files(table.location, table.version))
        return found

    def grouped(self, table: Table, files: dict[str, str]) -> Contents:
        """Return each key's values."""
        return {
            f"{table.name.table}/{key}": self.rows(table.location, [path for path in files if files[path] == key])
            for key in dict.fromkeys(files.values())
        }


def keys_of_files(table: Replayed) -> dict[str, str]:
    """Return a table's files, and the key of each, which its statistics tell."""
    return {path: json.loads(file["stats"])["minValues"]["key"] for (path, _), file in table.files.items()}


def data_file(path: str, key: str, values: Sequence[str]) -> Action:
    """Return the add of a file that holds these rows of one key."""
    stats = {"numRecords": len(values), "minValues": {"key": key}, "maxValues": {"key": key}, "nullCount": {"key": 0}}
    return add(path, stats=json.dumps(stats))


def note_read(tx: Transaction, table: Table, key: str) -> None:
    """Tell the transaction what is read, as the host does of a query, and of the target of an UPDATE or a MERGE.

    The predicate is Catalyst's text of it; the files' statistics know the column.
    """
    tx.read(table, f"(key = '{key}')")


class Delta:
    """One transaction's statements, as Delta would run them."""

    def __init__(self, catalog: TransactionalCatalog, tables: Tables, tx: Transaction) -> None:
        self.catalog = catalog
        self.tables = tables
        self.tx = tx
        self._files = 0

    def read(self, key: str) -> tuple[str, ...]:
        """SELECT: return a key's values."""
        _, table, _, files = self._find(key)
        return self.tables.rows(table.location, files)

    def insert(self, key: str, value: str) -> None:
        """INSERT: a new file with one row; nothing is read."""
        table, column = key.split("/")
        self._stage(table, column, (value,), [], "WRITE")

    def rewrite(self, key: str, value: str, operation: str) -> None:
        """UPDATE or MERGE: one new file with a row more, in place of the key's files."""
        name, table, column, files = self._find(key)
        self._stage(name, column, (*self.tables.rows(table.location, files), value), files, operation)

    def _find(self, key: str) -> tuple[str, Table, str, list[str]]:
        """Return a key's table, and its files there; that is a read."""
        name, column = key.split("/")
        table = self.tx.table(named(name))
        note_read(self.tx, table, column)
        files = self.tables.seen_by(self.tx, table)
        return name, table, column, [path for path in files if files[path] == column]

    def _stage(self, table: str, column: str, values: Sequence[str], instead_of: Sequence[str], operation: str) -> None:
        self._files += 1
        new = data_file(f"part-{self.tx.id}-{self._files}.parquet", column, values)
        data = json.dumps(values).encode()
        stage(self.catalog, self.tx, table, *map(remove, instead_of), new, operation=operation, data=data)
