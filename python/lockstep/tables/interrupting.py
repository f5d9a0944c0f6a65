"""Statements without Spark that run for too long, or are stopped by Ctrl-C: what DuckDB computes is interrupted.

What Arrow and the store do meanwhile is not interrupted; a statement that was late is refused when it comes to its end.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, TypeVar

from lockstep.errors import CancelledError
from lockstep.settings import STATEMENT_TIMEOUT
from lockstep.transactions.transaction import Transaction
from lockstep.workers import thread_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_AGAIN_SECONDS = 0.1
"""DuckDB forgets an interrupt that comes just before a query begins, so it is interrupted again after so long.

And Python's main thread, once it waits, does not see a signal that came just before: it looks again after so long.
"""

_STOPPED = re.compile(r"Invalid Input Error: [^']+ registered as '.*' failed: KeyboardInterrupt\b", re.DOTALL)
"""What DuckDB says where Ctrl-C came while it asked for rows; its words are all that is left of the exception."""

T = TypeVar("T")


class _Running:
    """A statement that runs, and the connections that compute for it."""

    def __init__(self, seconds: float) -> None:
        """Have it end within so many seconds."""
        self._seconds = seconds
        self._late_from = time.monotonic() + seconds
        self._connections: list[DuckDBPyConnection] = []
        self._lock = threading.Lock()
        self._over = threading.Event()

    def watch(self) -> None:
        """Interrupt it once it is late, unless it is `over` by then, and if there can be a thread for that."""
        thread_of(self._watch, "lockstep-statement")

    @property
    def is_late(self) -> bool:
        """Whether it has run for longer."""
        return time.monotonic() >= self._late_from

    def _watch(self) -> None:
        if self._over.wait(self._seconds):
            return
        while not self._over.wait(_AGAIN_SECONDS):
            with self._lock:
                for connection in self._connections:
                    connection.interrupt()

    @contextmanager
    def using(self, connection: DuckDBPyConnection) -> Iterator[None]:
        """Interrupt a connection, too, until the block ends: then it may be closed."""
        with self._lock:
            self._connections.append(connection)
        try:
            yield
        finally:
            with self._lock:
                self._connections.remove(connection)

    def over(self) -> None:
        """Note that it has ended."""
        self._over.set()


_RUNNING: ContextVar[_Running | None] = ContextVar("running", default=None)


@contextmanager
def limited(tx: Transaction) -> Iterator[None]:
    """Limit a statement of a transaction to what may be taken for one; one inside of another is part of that.

    Raises:
        CancelledError (57014): it ran for longer.
    """
    seconds = 0 if tx.timing is None else tx.timing.limits.statement
    if not seconds or _RUNNING.get() is not None:
        yield
        return
    running = _Running(seconds)
    token = _RUNNING.set(running)
    try:
        running.watch()
        yield
    except Exception as error:
        if running.is_late:
            raise _cancelled(tx, seconds) from error
        raise
    finally:
        _RUNNING.reset(token)
        running.over()
    if running.is_late:
        raise _cancelled(tx, seconds)


@contextmanager
def interrupted(connection: DuckDBPyConnection) -> Iterator[None]:
    """Let a connection be interrupted while the block runs, if the statement that runs in this thread is limited."""
    running = _RUNNING.get()
    with nullcontext() if running is None else running.using(connection):
        yield


def stoppable(connection: DuckDBPyConnection, compute: Callable[[], T]) -> T:
    """Have a connection compute something, and stop it when a signal's handler raises: Ctrl-C, or a caller's own alarm.

    DuckDB itself looks for signals at the beginning alone, and raises errors of its own in place of what their handlers
    raise. Python handles them in the main thread, so that one waits while another computes.

    Raises:
        What the function, or the handler of a signal, raises.
    """
    if threading.current_thread() is not threading.main_thread():
        return compute()
    computed, is_given_up = Future[T](), threading.Event()
    context = copy_context()

    def work() -> None:
        if is_given_up.is_set():  # a signal came before the thread did anything
            return
        try:
            computed.set_result(context.run(compute))
        except BaseException as error:  # noqa: BLE001 (whoever waits is told)
            computed.set_exception(error)

    thread = threading.Thread(target=work, name="lockstep-query", daemon=True)
    try:
        try:
            thread.start()
        except RuntimeError:  # no more threads
            return compute()
        while not computed.done():  # a signal that comes as Python begins to wait is seen when it has waited
            wait([computed], _AGAIN_SECONDS)
        return computed.result()
    except BaseException:
        is_given_up.set()
        while thread.is_alive():
            connection.interrupt()
            thread.join(_AGAIN_SECONDS)
        raise


def was_stopped(error: Exception) -> bool:
    """Tell whether what DuckDB fails with is Ctrl-C, which came while it asked for the schema of rows, or for them."""
    return _STOPPED.match(str(error)) is not None


def _cancelled(tx: Transaction, seconds: float) -> CancelledError:
    return CancelledError(
        f"a statement of transaction {tx.id} ran for longer than {STATEMENT_TIMEOUT.name} "
        f"(statement_timeout={seconds:g}), and was cancelled. Nothing of it is in any table. If it wrote, COMMIT rolls "
        "back, unless rollback_to goes back to a savepoint before it."
    )
