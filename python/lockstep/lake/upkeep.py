"""Upkeep: what is done behind a commit's answer, and saves others work. Nobody waits for it, and nothing depends on it.

checksums of what was published, by which readers need no replay
the timeline's hint, by which whoever opens it need not look for its end
the removal of staged files that nobody needs any more
the timeline's checkpoint, if one is due
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future

from lockstep.errors import LockstepError
from lockstep.workers import Threads

MOST_WAITING = 100
"""So many commits' upkeep may wait; who commits faster than that does the next one himself, before his answer."""

_log = logging.getLogger(__name__)


class Upkeep:
    """The upkeep of one lake, in a thread of its own, in the order of commits; safe to share between threads."""

    def __init__(self) -> None:
        self._pool = Threads(1, thread_name_prefix="lockstep-upkeep")
        self._waiting = threading.BoundedSemaphore(MOST_WAITING)

    def add(self, *tasks: Callable[[], object]) -> Future[None]:
        """Do something behind the answer, one after the other, and return without waiting. It raises nothing.

        Returns:
            What is done once all of it is, or has failed, which the log then says.
        """
        if not self._waiting.acquire(blocking=False):
            done = Future[None]()
            do(tasks)
            done.set_result(None)
            return done
        future = self._pool.submit(do, tasks)
        future.add_done_callback(lambda _: self._waiting.release())
        return future


def do(tasks: Iterable[Callable[[], object]]) -> None:
    """Do one thing after the other, whatever becomes of each. It raises nothing."""
    for task in tasks:
        try:
            task()
        except LockstepError as error:
            _log.warning("upkeep behind a commit is not done; others will have more work: %s", error)
        except Exception:  # noqa: BLE001 (logged; it is done after a commit, which may not fail for it)
            _log.exception("upkeep behind a commit is not done; others will have more work")
