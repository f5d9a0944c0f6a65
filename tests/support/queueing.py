"""Appends that come while another one is on its way to the store, and wait for it together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from lockstep.timeline.database import Database
from lockstep.timeline.entry import Entry
from lockstep.timeline.log import Timeline
from lockstep.timeline.outcomes import AppendOutcome, Behind, MakeEntry
from tests.support.faulty import FaultyStorage

PATIENCE_S = 60
"""How long a test waits for what happens at once unless something is broken."""


def anyhow(make: MakeEntry) -> Behind:
    """Have a change follow whatever there is."""

    def behind(entries: Sequence[Entry], database: Database) -> MakeEntry:
        assert [entry.version for entry in entries][-1] == database.version
        return make

    return behind


def waiting(timeline: Timeline) -> int:
    """Return how many entries wait for a put or are being put."""
    return sum(len(group.members) for group in timeline._groups)


def until(is_so: Callable[[], object]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.002)


class Queue:
    """Appends in threads, in the order in which they are asked for."""

    def __init__(self, timeline: Timeline, pool: ThreadPoolExecutor) -> None:
        self._timeline, self._pool = timeline, pool
        self.outcomes: list[Future[AppendOutcome]] = []

    def join(self, make: MakeEntry, behind: Behind | None, *, after: int, joins: bool = True) -> None:
        """Append one more; `joins` says whether it is expected to find a place."""
        before = waiting(self._timeline)
        self.outcomes.append(self._pool.submit(self._timeline.append, make, after, behind))
        if joins:
            until(lambda: waiting(self._timeline) == before + 1)

    def results(self) -> list[Any]:
        """Return what became of each: its outcome, or what it raised."""
        return [future.exception(PATIENCE_S) or future.result() for future in self.outcomes]


@contextmanager
def while_putting(
    timeline: Timeline, store: FaultyStorage, path: str, come: Callable[[Queue], object]
) -> Iterator[Queue]:
    """Have others come while the next put of a file is under way, and be done with by the end of the block."""
    with ThreadPoolExecutor(64) as pool:
        queue = Queue(timeline, pool)
        store.interrupt("put_if_absent", lambda: come(queue), path=path)
        yield queue
        queue.results()
