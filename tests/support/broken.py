"""Lockstep with a rule taken out, to see that the histories of such a build are found wrong.

Each defect changes the library of the process that calls it, for good.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import lockstep.commit.commit as committing
from lockstep.catalog import TransactionalCatalog
from lockstep.commit import race
from lockstep.delta.publish import publish
from lockstep.lake.lake import Lake
from lockstep.timeline.entry import Entry, Name, Table
from lockstep.timeline.outcomes import Lost, Ratified, Unknown
from lockstep.timeline.placements import as_ratified
from lockstep.transactions.transaction import Transaction


def _replace(module: ModuleType | TransactionalCatalog, name: str, by: Callable[..., object]) -> None:
    """Put another function in the place of a module's, or a catalog's; were it not there, all would be as it was."""
    assert callable(getattr(module, name)), f"{module} has no {name}"
    setattr(module, name, by)


def no_conflicts(_: TransactionalCatalog) -> None:
    """COMMIT refuses nothing."""
    _replace(race, "first_conflict", lambda *_, **__: None)
    _replace(race, "judge", lambda *_: None)


def reads_unchecked(_: TransactionalCatalog) -> None:
    """COMMIT does not look at what was read: SERIALIZABLE is SNAPSHOT."""
    _replace(race, "judge", lambda *_: None)


def late_snapshot(catalog: TransactionalCatalog) -> None:
    """A table is pinned when it is first used, not at BEGIN."""
    original = Transaction.table
    used: set[tuple[str, Name]] = set()

    def table(self: Transaction, name: Name, *, usable: bool = True) -> Table:
        if (self.id, name) not in used:
            used.add((self.id, name))
            self.names.put(catalog.database([name]).tables[name])
        return original(self, name, usable=usable)

    Transaction.table = table  # type: ignore[method-assign]


def early_publish(catalog: TransactionalCatalog) -> None:
    """COMMIT publishes its first table before it ratifies; a rollback deletes no files, so that they can be read."""
    original = committing._ratify

    def ratify(
        lake: Lake, tx: Transaction, draft: Callable[..., Entry], after: int, *more: Any
    ) -> Ratified | Lost | Unknown:
        for write in draft(after + 1, lake.clock()).writes[:1]:
            publish(lake.storage, write, as_ratified(write))
        time.sleep(0.01)
        return original(lake, tx, draft, after, *more)

    _replace(committing, "_ratify", ratify)
    catalog.lake.delete = lambda *_: None  # type: ignore[method-assign]


def old_snapshot(catalog: TransactionalCatalog) -> None:
    """BEGIN takes the database version before the newest."""
    original = catalog.begin

    def begin(**options: Any) -> Transaction:
        tx = original(**options)
        tx.move_to(catalog.timeline.at(max(tx.base.version - 1, 1)), [])
        return tx

    _replace(catalog, "begin", begin)


DEFECTS: Mapping[str, Callable[[TransactionalCatalog], None]] = {
    "no-conflicts": no_conflicts,
    "reads-unchecked": reads_unchecked,
    "late-snapshot": late_snapshot,
    "early-publish": early_publish,
    "old-snapshot": old_snapshot,
}
