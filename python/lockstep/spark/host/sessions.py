"""What the host keeps for one session."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from lockstep.commit.outcomes import Committed
from lockstep.errors import LockstepError, UnsupportedError
from lockstep.spark.host.lakehouses import Lakehouse
from lockstep.spark.host.protocol.transactions import Used
from lockstep.timeline.entry import Batch, Name
from lockstep.transactions.transaction import Transaction

FindOut: TypeAlias = Callable[[], tuple[Lakehouse, Committed | None]]
"""Tells in which catalog a transaction was, and as what it is committed; None once it is sure that it is not."""


@dataclass(frozen=True, slots=True)
class LostTransaction:
    """A transaction that ended without its session's doing.

    Attributes:
        transaction: its id.
        why: what had happened.
        refusal: what COMMIT and ROLLBACK answer, unless it was rolled back: it is committed, or nobody knows.
        find_out: tells what became of a COMMIT that had no answer, and sees that it stays so; None where it is known.
        sqlstate: of what its statements are refused with, where that is more than that it has ended.
    """

    transaction: str
    why: str
    refusal: LockstepError | None = None
    find_out: FindOut | None = None
    sqlstate: str | None = None


@dataclass
class Session:
    """What the host keeps for one SparkSession, or for all that share their transactions.

    Attributes:
        transaction, catalog: the open transaction and the catalog it is in; None outside one.
        reads_newest: whether the transaction has used a view as of a time later than its snapshot: what a view reads is
            asked for by that database version's number, and is the newest there is, too.
        restored: by table id, the version that the transaction takes a table's log back to.
        used_tables: the overlay URIs that the transaction was given, and their tables' names: its end drops caches of
            them.
        next_batch: the micro-batch that the next BEGIN carries out.
        goes_on: whether the open transaction can be committed although a write of it failed.
        lost_transaction: the transaction that ended behind the session's back, until somebody ends it.
        deadline: until when the transaction may be open, in seconds of a clock that never goes back; None is for ever.
        requests: how many are under way or wait; counted under the host's lock.
    """

    lock: threading.RLock = field(default_factory=threading.RLock)
    transaction: Transaction | None = None
    catalog: Lakehouse | None = None
    used_tables: set[tuple[str, Name]] = field(default_factory=set)
    reads_newest: bool = False
    restored: dict[str, int] = field(default_factory=dict)
    next_batch: Batch | None = None
    goes_on: bool = False
    lost_transaction: LostTransaction | None = None
    deadline: float | None = None
    requests: int = 0

    @property
    def is_idle(self) -> bool:
        """Whether it has no request under way, no transaction, and none to hear of or about to begin."""
        is_without = self.transaction is None and self.lost_transaction is None and self.next_batch is None
        return not self.requests and is_without

    def has(self, transaction: str) -> bool:
        """Whether it keeps the transaction of this id."""
        tx = self.transaction  # read once: where no lock is held it may end at any moment
        return tx is not None and tx.id == transaction

    def inside(self, lakehouse: Lakehouse) -> Transaction | None:
        """Return the open transaction, which must be one of this catalog.

        Raises:
            UnsupportedError: it is another catalog's.
        """
        if self.transaction is not None and self.catalog is not None and not self.catalog.is_same(lakehouse):
            raise UnsupportedError(
                f"the open transaction is in catalog {self.catalog.name}; a transaction has one timeline, so tables of "
                f"{lakehouse.name} can be used only outside it"
            )
        return self.transaction

    def forget_used(self) -> Used:
        """Return, for the last time, what is in `used_tables`: the URIs, and the names of the tables in parts."""
        uses, self.used_tables = self.used_tables, set()
        self.restored, self.reads_newest = {}, False
        names = {(*name.namespace, name.table) for _, name in uses}
        catalog = "" if self.catalog is None else self.catalog.name
        return Used(uris=sorted({uri for uri, _ in uses}), tables=[[catalog, *name] for name in sorted(names)])
