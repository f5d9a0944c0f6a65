"""Looks after the open transactions of one driver: tells others of them, and ends those that are to end.

A thread does so while any is open: every half second it looks whether one has been open too long, and every five
seconds whether a person had one ended. What has written something and been open for a second gets a record
(`lockstep.commit.records`); shorter transactions cost nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lockstep.commit.ended import this_process
from lockstep.commit.keeping import TICK, Watched, looking
from lockstep.commit.records import OpenRecord, record_of
from lockstep.lake.lake import Lake
from lockstep.settings import TRANSACTION_TIMEOUT
from lockstep.spark.host.lakehouses import Lakehouse
from lockstep.spark.host.sessions import LostTransaction, Session
from lockstep.transactions.transaction import Transaction

TIMED_OUT = "25P04"
ABORTED = "57014"

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class _Watched(Watched):
    """An open transaction of a session."""

    session: Session


class Keeper:
    """Looks after the transactions of some sessions."""

    def __init__(self, sessions: Callable[[], Iterable[Session]], *, seconds: Callable[[], float] = time.monotonic):
        """Look at these sessions, by a clock that never goes back."""
        self._sessions = sessions
        self._seconds = seconds
        self._process = this_process()
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._watched: dict[str, _Watched] = {}

    def watch(self) -> None:
        """Look from now on, for as long as any transaction is open.

        Where there can be no thread now, as there are too many, the next call begins one.
        """
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                self._thread = looking(self._run, "lockstep-keeper")

    def close(self) -> None:
        """Look no more; the records of what is open are removed."""
        self._closed.set()
        with self._looking:
            for id_ in [*self._watched]:
                self._forget(id_, "its driver ended")

    def _run(self) -> None:
        while not self._closed.wait(TICK):
            try:
                self.look()
            except Exception:  # noqa: BLE001 (logged; what it does is advice, but for timeouts, which come at the next)
                _log.exception("the open transactions were not looked after")
            with self._lock:
                if not self._watched and not any(_open(session) for session in self._sessions()):
                    self._thread = None
                    return

    # --- one look -----------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Look once: end what is to end, and write the records that are due."""
        with self._looking:
            if self._closed.is_set():
                return
            now = self._seconds()
            open_ids = self._find(now)
            for id_, watched in [*self._watched.items()]:
                try:
                    self._look_after(watched, now, is_open=id_ in open_ids)
                except Exception:  # noqa: BLE001 (logged; the others are looked after, and this one at the next look)
                    _log.exception("transaction %s was not looked after", id_)

    def _look_after(self, watched: _Watched, now: float, *, is_open: bool) -> None:
        if not is_open:
            if not _is_busy(watched.session):  # what ends it, as a COMMIT that is refused, notes why when it is done
                self._forget(watched.tx.id)
        elif _is_late(watched, now):
            self._end(watched, f"it was open for longer than {TRANSACTION_TIMEOUT.name}", TIMED_OUT)
        else:
            self._tell(watched, now)

    def look_for_ended(self) -> None:
        """Look at once which transactions a person had ended, whether that is due or not."""
        with self._looking:
            self._find(self._seconds())
            for watched in [*self._watched.values()]:
                self._end_if_asked(watched)

    def _find(self, now: float) -> set[str]:
        """Note what is open, and return the ids."""
        ids = set()
        for session in self._sessions():
            if (found := _open(session)) is not None:
                tx, house = found
                ids.add(tx.id)
                found_now = _Watched(house.catalog.lake, tx, now, tx.base.version, session=session)
                self._watched.setdefault(tx.id, found_now)
        return ids

    def _tell(self, watched: _Watched, now: float) -> None:
        if watched.is_due(now):
            record = self._record(watched.session, watched.tx, watched.lake)
            if record is not None and watched.tell(record, now):  # else a request of it is under way
                self._end_if_asked(watched)

    def _end_if_asked(self, watched: _Watched) -> None:
        """End a transaction that an `abort` entry names."""
        if (why := watched.asked_to_end()) is not None:
            self._end(watched, why, ABORTED)

    def _end(self, watched: _Watched, why: str, sqlstate: str) -> None:
        """End a transaction unasked; if a request of it is under way, that is for a later look.

        Its files stay until its session says COMMIT or ROLLBACK: a statement of it may be reading them. What it has
        announced does not: nobody is to wait for it.
        """
        session, tx, house = watched.session, watched.tx, None
        if not session.lock.acquire(blocking=False):
            return
        try:
            if session.has(tx.id) and tx.is_open:
                _log.warning("transaction %s is rolled back: %s", tx.id, why)
                session.lost_transaction = LostTransaction(tx.id, why, sqlstate=sqlstate)
                house = session.catalog
        finally:
            session.lock.release()
        if house is not None:
            house.catalog.let_pass(tx)
        self._forget(tx.id, why)

    def _forget(self, id_: str, why: str = "") -> None:
        """Take back the record of a transaction, if it has one; why it was rolled back is kept, if it was."""
        watched = self._watched.pop(id_)
        watched.take_back(self._process, why or _reason(watched))

    # --- what is open here --------------------------------------------------------------------------------------------

    def open_in(self, house: Lakehouse) -> list[OpenRecord]:
        """Return what is open in one lake, in this driver, with or without a record, be it busy."""
        found = [(session, each) for session in self._sessions() if (each := _open(session)) is not None]
        lake = house.catalog.lake
        # By root: with other keys of the store it is another object.
        here = [(session, tx) for session, (tx, other) in found if other.catalog.lake.storage.url == lake.storage.url]
        return [self._record(session, tx, lake) or self._busy(tx, lake) for session, tx in here]

    def _busy(self, tx: Transaction, lake: Lake) -> OpenRecord:
        """Return what is sure of a transaction while a request of it is under way: that it is open, and since when."""
        return record_of(tx, now=lake.clock(), process=self._process, is_busy=True)

    def _record(self, session: Session, tx: Transaction, lake: Lake) -> OpenRecord | None:
        """Return the record of a transaction as it is now; None while a request of it is under way."""
        if not session.lock.acquire(blocking=False):
            return None
        try:
            return record_of(tx, now=lake.clock(), process=self._process)
        finally:
            session.lock.release()


def _is_busy(session: Session) -> bool:
    """Tell whether a request of a session is under way."""
    if not session.lock.acquire(blocking=False):
        return True
    session.lock.release()
    return False


def _is_late(watched: _Watched, now: float) -> bool:
    """Whether a transaction has been open too long; of one in doubt a timeout may not say that it is rolled back."""
    deadline = watched.session.deadline
    return deadline is not None and now >= deadline and watched.tx.in_doubt is None


def _reason(watched: _Watched) -> str:
    """Return why a transaction was rolled back that the keeper itself did not end."""
    loss, tx = watched.session.lost_transaction, watched.tx
    if loss is not None and loss.transaction == tx.id:
        return loss.why
    return "ROLLBACK" if tx.failure is None else f"a write of it failed: {tx.failure}"


def _open(session: Session) -> tuple[Transaction, Lakehouse] | None:
    """Return a session's open transaction, and what it is in; None if there is none."""
    tx, house = session.transaction, session.catalog  # read once: the session may end it at any moment
    is_open = tx is not None and tx.is_open and session.lost_transaction is None
    return (tx, house) if is_open and tx is not None and house is not None else None
