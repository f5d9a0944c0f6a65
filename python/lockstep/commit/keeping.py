"""Looks after open transactions: tells others of them by a record, and ends those that are to end.

They are to end when somebody had them ended, or when they have taken longer than they may (`lockstep.commit.timing`).

`Watched` is one of them, whoever looks. `Keeper` looks after those that have no session with a keeper of its own
(`lockstep.spark.host.keeper`): of `lockstep.open`, of the command line, of `promote`. A thread does so while any of
them has written something, or may not be open for ever, one for the process. A transaction that ends within a second
costs it no request.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from lockstep.commit import records
from lockstep.commit.ended import note, this_process
from lockstep.commit.killing import entries_since
from lockstep.commit.records import OpenRecord, record_of
from lockstep.commit.timing import end_if_late
from lockstep.errors import LockstepError
from lockstep.lake.changes import asked_for
from lockstep.lake.lake import Lake
from lockstep.transactions.state import State
from lockstep.transactions.transaction import Transaction
from lockstep.workers import thread_of

TICK = 0.5
"""Seconds between two looks."""
RECORDED_AFTER = 1.0
"""A transaction that has been open for so many seconds, and has written something, gets a record."""
HEARTBEAT = 5.0
"""Seconds between two writes of a record, and between two looks into the timeline."""
LINGERING = 20
"""After so many looks that found no open transaction the thread ends: short ones in a row do not start one each."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Watched:
    """An open transaction, and what was done about it.

    Attributes:
        since: from when on it counts, in seconds of a clock that never goes back.
        looked: up to which database version it was looked whether somebody had it ended.
        told: when its record was last written; None while it has none.
    """

    lake: Lake
    tx: Transaction
    since: float
    looked: int
    told: float | None = None

    def is_due(self, now: float) -> bool:
        """Whether it is time for a record, or for another one; what has written nothing gets none."""
        since, pause = (self.since, RECORDED_AFTER) if self.told is None else (self.told, HEARTBEAT)
        return now - since >= pause and self.tx.state is State.INFLIGHT

    def tell(self, record: OpenRecord, now: float) -> bool:
        """Write a record, at best effort, and return whether it is written."""
        try:
            records.write(self.lake, record)
        except LockstepError as error:
            _log.info("transaction %s has no new record: %s", self.tx.id, error)
            return False
        self.told = now
        return True

    def asked_to_end(self) -> str | None:
        """Return who had it ended, and why, as far as an `abort` entry says so; None if nobody is known to have."""
        timeline = self.lake.timeline
        try:
            timeline.refresh()
            head = timeline.head.version
            for entry in entries_since(self.lake, self.looked, head):
                if self.tx.id in entry.aborts and (asked := asked_for(entry)) is not None:
                    return f"{asked} (database version {entry.version})"
            self.looked = head
        except LockstepError as error:
            _log.info("whether transaction %s was aborted is not known: %s", self.tx.id, error)
        return None

    def take_back(self, process: str, why: str) -> None:
        """Take back its record, if it has one; why it was rolled back is kept, if it was."""
        if self.told is None:
            return
        tx = self.tx
        # Whether one in doubt is committed the timeline says, some day.
        if tx.state is not State.COMPLETED and tx.in_doubt is None and not tx.is_noted:
            tx.is_noted = True
            record = record_of(tx, now=self.lake.clock(), process=process)
            note(self.lake, records.ended(record, why, self.lake.clock()))
        records.remove(self.lake, tx.id)


@dataclass(slots=True)
class _Own(Watched):
    """One that the process' own keeper looks after; `lock` is held while its record is written, or taken back."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    is_over: bool = False


def looking(look: Callable[[], object], name: str) -> threading.Thread | None:
    """Begin the thread that looks after open transactions, or log that there can be none now."""
    if (thread := thread_of(look, name)) is None:
        _log.warning("others are not told of open transactions, and none ends in time: there can be no thread now")
    return thread


class Keeper:
    """Looks after the transactions of one process that are not a Spark session's; safe to share between threads."""

    def __init__(self, *, seconds: Callable[[], float] = time.monotonic) -> None:
        """Look by a clock that never goes back."""
        self.seconds = seconds
        self.forget_all()

    def forget_all(self) -> None:
        """Forget all transactions: in a process that was forked they are its parent's."""
        self._lock = threading.Lock()
        self._watched: dict[str, _Own] = {}
        self._thread: threading.Thread | None = None

    def watch(self, lake: Lake, tx: Transaction) -> None:
        """Look after a transaction from now on, until `ended`.

        Where there can be no thread now, as there are too many or the interpreter ends, the next call begins one.
        """
        if tx.id in self._watched and self._thread is not None:
            return
        with self._lock:
            looked = max(tx.base.version, lake.timeline.head.expired.first_kept - 1)
            self._watched.setdefault(tx.id, _Own(lake, tx, self.seconds(), looked))
            if self._thread is None:
                self._thread = looking(self._run, "lockstep-open")

    def ended(self, tx: Transaction) -> None:
        """Look no more, and take back the record, if there is one; of one that nobody looked after nothing is to do."""
        if tx.id not in self._watched:
            return
        with self._lock:
            found = self._watched.pop(tx.id, None)
        if found is not None:
            self._take_back(found, _reason(tx))

    @contextmanager
    def watching(self, lake: Lake, tx: Transaction) -> Iterator[None]:
        """Look after a transaction until the block ends."""
        self.watch(lake, tx)
        try:
            yield
        finally:
            self.ended(tx)

    def _run(self) -> None:
        idle = 0
        while True:
            time.sleep(TICK)
            self.look()
            with self._lock:
                idle = 0 if self._watched else idle + 1
                if idle > LINGERING:
                    self._thread = None
                    return

    def look(self) -> None:
        """Look once: end what has taken too long, write the records that are due, and find out who was ended."""
        now = self.seconds()
        with self._lock:
            watched = [*self._watched.values()]
        for each in watched:
            end_if_late(each.tx)
            if each.is_due(now):
                try:
                    self._look_after(each, now)
                except Exception:  # noqa: BLE001 (logged; what it does is advice)
                    _log.exception("transaction %s was not looked after", each.tx.id)

    def _look_after(self, own: _Own, now: float) -> None:
        with own.lock:
            if own.is_over or not own.tell(_current(own), now):
                return
        if (why := own.asked_to_end()) is not None:
            own.tx.ended_by = why
            self._take_back(own, why)

    def _take_back(self, own: _Own, why: str) -> None:
        with own.lock:
            if not own.is_over:
                own.is_over = True
                own.take_back(this_process(), why)


def _current(own: _Own) -> OpenRecord:
    """Return what is known of a transaction that another thread may be changing."""
    now, process = own.lake.clock(), this_process()
    try:
        return record_of(own.tx, now=now, process=process)
    except (RuntimeError, KeyError):  # it was just changed
        return record_of(own.tx, now=now, process=process, is_busy=True)


def _reason(tx: Transaction) -> str:
    if tx.timed_out is not None:
        return tx.timed_out.why
    if (failure := tx.failure or tx.failed_statement) is not None:
        return f"a write of it failed: {failure}"
    return "ROLLBACK"


KEEPER = Keeper()
"""That of this process."""

os.register_at_fork(after_in_child=KEEPER.forget_all)
