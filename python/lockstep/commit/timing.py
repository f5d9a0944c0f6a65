"""Ends transactions that take too long, where no Spark session does: at a statement of theirs, or between two."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from lockstep.transactions.transaction import Transaction

_log = logging.getLogger(__name__)


@contextmanager
def ending(tx: Transaction) -> Iterator[None]:
    """Keep others out of a transaction during COMMIT or ROLLBACK; if it has been open too long it ends before."""
    with tx.lock:
        _end_if_late(tx)
        yield


@contextmanager
def executing(tx: Transaction, *, alone: bool = True) -> Iterator[None]:
    """Keep others from ending a transaction while a statement of it runs; if it is late then, it ends afterwards.

    Args:
        alone: whether other threads' statements wait, too. Each write is to see what those before it staged: were rows
            of one file deleted by two at a time, both would write those that stay, and so double them.

    Raises:
        FailedTransactionError (25P04): it is late, and rolled back.
    """
    if tx.timing is None and not alone:
        yield
        return
    with tx.lock:
        if (timing := tx.timing) is None:
            yield
            return
        if not timing.depth:
            _end_if_late(tx)
        timing.depth += 1
        try:
            yield
        finally:
            timing.depth -= 1
            if not timing.depth:
                timing.last = timing.seconds()
                _end_if_late(tx)
        tx.check_in_time()


def end_if_late(tx: Transaction) -> None:
    """End a transaction that has taken too long, unless a statement, COMMIT or ROLLBACK of it runs."""
    if tx.timing is None or not tx.lock.acquire(blocking=False):
        return
    try:
        _end_if_late(tx)
    finally:
        tx.lock.release()


def _end_if_late(tx: Transaction) -> None:
    timing = tx.timing
    # Of one in doubt nobody may say that it is rolled back; one that a person had ended is told who that was.
    if timing is None or not tx.is_open or tx.in_doubt is not None or tx.ended_by is not None:
        return
    if (late := timing.late()) is None:
        return
    _log.warning("transaction %s is rolled back: %s", tx.id, late.why)
    tx.timed_out = late
    try:
        timing.undo()
    except Exception:  # noqa: BLE001 (logged; nothing of it is committed, and what stays is litter)
        _log.exception("transaction %s was not rolled back in good order", tx.id)
