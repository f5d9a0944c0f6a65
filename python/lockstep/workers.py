"""Threads that do the same to many things at a time, and whoever asked for it once there can be no threads any more."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar, cast

from lockstep.errors import LockstepError
from lockstep.forks import anew_in_forks

PATIENCE_SECONDS = 0.002
"""After so long of quick work the rest goes to threads: the disk is no quick one, or is asked very often."""

_log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

Progress: TypeAlias = Callable[[int, int], None]
"""Told how many of how many are done."""


def silent(_: int, __: int) -> None:
    """Tell nobody of the progress."""


class Threads(ThreadPoolExecutor):
    """A pool that works in the caller's thread where there can be no new one: Python, or the system, gives nobody any.

    Python does so while the interpreter ends, which is from when the main thread has returned: others may go on for
    long, and commit. A process that was forked has none of its parent's threads, and begins with an empty pool.
    """

    def __init__(self, most: int, *, thread_name_prefix: str, quick: bool = False) -> None:
        """Have so many threads at most.

        Args:
            quick: whether what they are given usually takes some microseconds: to have a thread do it takes longer. So
                the caller's own does it, for `PATIENCE_SECONDS` from now on.
        """
        super().__init__(most, thread_name_prefix=thread_name_prefix)
        self._made_as = most, thread_name_prefix
        self._patient_until = time.monotonic() + PATIENCE_SECONDS if quick else 0.0
        anew_in_forks(self)

    def begin_anew(self) -> None:
        """Have no threads, and nothing to do, in a process that was forked: those that are counted are its parent's."""
        most, prefix = self._made_as
        super().__init__(most, thread_name_prefix=prefix)

    def submit(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        """Have a function called once, by a thread or now."""
        work = partial(fn, *args, **kwargs)
        if self._patient_until and time.monotonic() < self._patient_until:
            return _done(work)
        once = _Once(work)
        try:
            return super().submit(cast("Callable[[], R]", once))
        except RuntimeError:  # no threads any more, or no more; what the function raises goes into the future
            with suppress(Exception):
                once()
            return once.outcome


class _Once(Generic[R]):
    """Work that is done by whoever comes to it first: a pool that gets no thread has put it into its queue by then.

    Its threads that there are take it from there, now or much later, when it may not be done any more.
    """

    def __init__(self, work: Callable[[], R]) -> None:
        self.outcome = Future[R]()
        self._work: Callable[[], R] | None = work
        self._begun = threading.Lock()

    def __call__(self) -> R | None:
        """Do it, unless somebody else has begun to; `outcome` says what it came to."""
        if not self._begun.acquire(blocking=False):
            return None
        work, self._work = self._work, None  # nobody keeps what it is about while this waits in a queue
        assert work is not None, "it is done once"
        try:
            result = work()
        except BaseException as error:
            self.outcome.set_exception(error)
            raise
        self.outcome.set_result(result)
        return result


def thread_of(work: Callable[[], object], name: str) -> threading.Thread | None:
    """Begin something that goes on for long in a thread of its own, which keeps no process from ending.

    Returns:
        The thread; None where there can be none now, as there are too many or the interpreter ends.
    """
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


def begin(work: Callable[[], R], name: str, *, now: bool = False) -> Future[R]:
    """Begin something that nobody waits for yet, in a thread of its own; or do it now, if that takes no longer."""
    if now:
        return _done(work)
    pool = Threads(1, thread_name_prefix=name)
    future = pool.submit(work)
    pool.shutdown(wait=False)
    return future


def _done(work: Callable[[], R]) -> Future[R]:
    """Return the future of what has been done; what it raised goes into it."""
    future = Future[R]()
    try:
        future.set_result(work())
    except Exception as error:  # noqa: BLE001 (whoever asks the future is told, as of a thread's)
        future.set_exception(error)
    return future


class Workers:
    """So many threads at most; made when first needed, and shared by whoever asks.

    One thing alone is done by the caller's own thread, and of quick ones as many as are done in `PATIENCE_SECONDS`: to
    hand something to a thread and to wait for it takes longer than a look at a local file.
    """

    def __init__(self, most: int, name: str) -> None:
        self._pool = Threads(most, thread_name_prefix=name)

    def map(self, work: Callable[[T], R], items: Iterable[T], *, quick: bool = False) -> list[R]:
        """Return what the work returns for each item, in order, once all of it is done, whatever one of them raises.

        Args:
            quick: whether the work for one item usually takes some microseconds.

        Raises:
            What the work raised for the first item for which it did; what it raised for others is logged.
        """
        waiting = deque(items)
        is_one = len(waiting) == 1
        results: list[R] = []
        errors: list[BaseException] = []
        until = time.monotonic() + (PATIENCE_SECONDS if quick else 0.0)
        while waiting and (is_one or time.monotonic() < until):
            try:
                results.append(work(waiting.popleft()))
            except Exception as error:  # noqa: BLE001 (raised below, or logged, once all of it is done)
                errors.append(error)
        futures = [self._pool.submit(work, item) for item in waiting]
        errors += [failure for future in futures if (failure := future.exception()) is not None]
        for other in errors[1:]:
            cause = None if isinstance(other, LockstepError) else other  # where ours come from says nothing more
            _log.warning("beside the error that is told: %s", other, exc_info=cause)
        if errors:
            raise errors[0]
        return results + [future.result() for future in futures]
