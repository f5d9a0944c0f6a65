"""How many requests to its store each operation of the core makes, by a store that counts."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import render
from lockstep.delta.log import staged_path
from lockstep.storage import open_storage
from lockstep.transactions.transaction import Transaction
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, create, lay, named, open_catalog

TABLES = (1, 10)
"""So many tables are read or written at once."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What an operation asked of the store.

    Attributes:
        before: by kind of request, before the operation has answered.
        behind: the same, of what is done after that.
    """

    before: Mapping[str, int]
    behind: Mapping[str, int]


class Remote(FaultyStorage):
    """A folder that is asked as an object store is: it is raced first, and no look at it is quick."""

    is_proven_by_use = False


class Counting:
    """One lake, and the operations on it."""

    def __init__(self, folder: Path, tables: int) -> None:
        self.names = [f"t{number}" for number in range(tables)]
        self.store = Remote(open_storage(str(folder), create=True))
        self.catalog = self._opened()
        create(self.catalog, *self.names, files=["old"])
        self.catalog.lake.upkeep.settle()
        self._commit()  # what a first commit to a table reads is remembered by then

    def count(self, run: Callable[[], object]) -> Counted:
        """Run an operation, and count."""
        self.catalog.lake.upkeep.settle()
        self.store.calls.clear()
        run()
        before = Counter(operation for operation, _ in self.store.calls)
        self.catalog.lake.upkeep.settle()
        return Counted(before, Counter(operation for operation, _ in self.store.calls) - before)

    def all(self) -> dict[str, Counted]:
        """Return what each operation asks for."""
        found = {
            "open a lake": self.count(self._opened),
            "`BEGIN` and `ROLLBACK`": self.count(lambda: self.catalog.rollback(self.catalog.begin())),
            "a query outside a transaction": self.count(self._read),
        }
        tx = self.catalog.begin()
        found["the first use of tables in a transaction"] = self.count(
            lambda: self.catalog.look(tx, [named(name) for name in self.names])
        )
        self.catalog.rollback(tx)
        tx = self._staged()
        found["`COMMIT`"] = self.count(lambda: self.catalog.commit(tx))
        tx = self._staged()
        found["`ROLLBACK` of the same"] = self.count(lambda: self.catalog.rollback(tx))
        return found

    def _opened(self) -> TransactionalCatalog:
        return open_catalog(self.store)

    def _read(self) -> None:
        self.catalog.database([named(name) for name in self.names])

    def _commit(self) -> None:
        self.catalog.commit(self._staged())
        self.catalog.lake.upkeep.settle()

    def _staged(self) -> Transaction:
        catalog, tx = self.catalog, self.catalog.begin()
        catalog.look(tx, [named(name) for name in self.names])
        for name in self.names:
            table, actions = tx.table(named(name)), [{"commitInfo": {"operation": "WRITE"}}, add(f"new-{tx.id}")]
            lay(self.store, table.location, actions)
            version = table.version + 1
            self.store.put(staged_path(table.location, tx.id, version), render(actions))
            catalog.stage(tx, table.location, version, render(actions).decode())
        return tx


def counts() -> dict[int, dict[str, Counted]]:
    """Return what each operation asks for, by the number of tables."""
    found = {}
    for tables in TABLES:
        with tempfile.TemporaryDirectory() as folder:
            found[tables] = Counting(Path(folder, "lake"), tables).all()
    return found
