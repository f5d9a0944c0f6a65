"""Upkeep: what is done behind a commit's answer, and saves others work. Nobody waits for it, and nothing depends on it.

checksums of what was published, by which readers need no replay
the timeline's hint, by which whoever opens it need not look for its end
the removal of staged files that nobody needs any more
the timeline's checkpoint, if one is due
the segment of the timeline's history, if one is due
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from functools import partial

from lockstep.errors import LockstepError
from lockstep.forks import anew_in_forks
from lockstep.workers import Threads

MOST_WAITING = 100
"""So many commits' upkeep may wait; who commits faster than that does the next one himself, before his answer."""

WORKERS = 32
"""So many commits' upkeep is done at a time: each takes a few requests, one after the other."""

ONCE_SECONDS = 0.1
"""What is done once for many commits, the hint, is done so seldom: it lies in the folder of all commits."""

_log = logging.getLogger(__name__)


class Upkeep:
    """The upkeep of one lake, in threads of its own; safe to share between threads."""

    def __init__(self) -> None:
        self._pool = Threads(WORKERS, thread_name_prefix="lockstep-upkeep")
        self.begin_anew()
        anew_in_forks(self)

    def begin_anew(self) -> None:
        """Have nothing to do: in a process that was forked, what was asked for is its parent's to do."""
        self._waiting = threading.BoundedSemaphore(MOST_WAITING)
        self._lock = threading.RLock()  # while the interpreter ends, `submit` does what it is given at once
        self._last: dict[str, Future[None]] = {}
        self._once: set[str] = set()
        self._begins: dict[str, float] = {}

    def add(self, *tasks: Callable[[], object], keys: Iterable[str] = (), wait_seconds: float = 0) -> Future[None]:
        """Do something behind the answer, one after the other, and return without waiting. It raises nothing.

        Args:
            tasks: what to do.
            keys: what it is about. What is about the same is done in the order in which it was asked for.
            wait_seconds: so long the thread waits before it begins.

        Returns:
            What is done once all of it is, or has failed, which the log then says.
        """
        if not self._waiting.acquire(blocking=False):
            done = Future[None]()
            do(tasks)
            done.set_result(None)
            return done
        keys = set(keys)
        with self._lock:
            # Threads take what was asked for first, so none waits for what no thread has begun.
            before = {self._last[key] for key in keys if key in self._last}
            future = self._pool.submit(_do_after, before, tasks, wait_seconds)
            self._last |= dict.fromkeys(keys, future)
        future.add_done_callback(lambda _: self._forget(keys, future))
        return future

    def add_once(self, task: Callable[[], object], key: str) -> None:
        """Do something as `add` does, unless the same waits already: then that does what there is to do by then.

        It is done `ONCE_SECONDS` after the last time at the earliest.
        """
        with self._lock:
            if key in self._once:
                return
            self._once.add(key)
            begins = max(time.monotonic(), self._begins.get(key, 0) + ONCE_SECONDS)
            self._begins[key] = begins
        self.add(partial(self._once_more, key), task, keys=[key], wait_seconds=begins - time.monotonic())

    def _once_more(self, key: str) -> None:
        with self._lock:
            self._once.discard(key)

    def settle(self) -> None:
        """Wait for all that has keys and was asked for before."""
        with self._lock:
            futures = set(self._last.values())
        wait(futures)

    def _forget(self, keys: Iterable[str], future: Future[None]) -> None:
        with self._lock:
            for key in keys:
                if self._last.get(key) is future:
                    del self._last[key]
        self._waiting.release()


def _do_after(before: Iterable[Future[None]], tasks: Iterable[Callable[[], object]], wait_seconds: float) -> None:
    time.sleep(max(0, wait_seconds))
    wait(before)
    do(tasks)


def do(tasks: Iterable[Callable[[], object]]) -> None:
    """Do one thing after the other, whatever becomes of each. It raises nothing."""
    for task in tasks:
        try:
            task()
        except LockstepError as error:
            _log.warning("upkeep behind a commit is not done; others will have more work: %s", error)
        except Exception:  # noqa: BLE001 (logged; it is done after a commit, which may not fail for it)
            _log.exception("upkeep behind a commit is not done; others will have more work")
