"""Two open transactions on one lake that want the same file, each with a catalog of its own as two processes have."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from lockstep.catalog import TransactionalCatalog
from lockstep.commit.announce import FOLDER
from lockstep.delta.actions import Action
from lockstep.errors import ConflictError, FailedTransactionError
from lockstep.timeline.entry import Entry
from lockstep.transactions.transaction import Transaction
from tests.support.gate import wait_until
from tests.support.lakes import add, remove, stage


@dataclass
class Side:
    """One of the two: a catalog, its open transaction, and a thread in which its statements may wait.

    Attributes:
        lock: what is held by whatever changes the transaction, as a session's is.
    """

    catalog: TransactionalCatalog
    tx: Transaction
    name: str
    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    lock: threading.RLock = field(default_factory=threading.RLock)

    def replace_p(self) -> None:
        stage(self.catalog, self.tx, "a", remove("p"), add(self.name), operation="UPDATE", lock=self.lock)

    def replaces_p(self) -> Future[None]:
        """Do so in the thread, and return once the announcement is out (or it is over)."""
        done = self.thread.submit(self.replace_p)
        wait_until(lambda: done.done() or f"{self.tx.id}.json" in announced(self.catalog), "nothing was announced")
        return done

    def commit(self) -> int:
        with self.lock:
            return self.catalog.commit(self.tx).version

    def rollback(self) -> None:
        with self.lock:
            self.catalog.rollback(self.tx)

    def rollback_to(self, savepoint: str) -> None:
        with self.lock:
            self.catalog.rollback_to(self.tx, savepoint)


def announced(catalog: TransactionalCatalog) -> list[str]:
    [table] = catalog.timeline.head.tables.values()
    return catalog.lake.storage.list(f"{FOLDER}/{table.id}")


def entries(side: Side) -> list[Entry]:
    side.catalog.timeline.refresh()
    return side.catalog.timeline.entries(1)


Begin = Callable[..., tuple[Side, Side]]


def stage_only(side: Side, *actions: Action) -> None:
    stage(side.catalog, side.tx, "a", *actions, operation="DELETE")


def outcome(act: Callable[[], object]) -> bool:
    try:
        act()
    except (ConflictError, FailedTransactionError):
        return False
    return True
