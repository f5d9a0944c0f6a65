"""Who has lost the timeline too often goes alone: the other threads of this process let it pass first."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from lockstep.forks import anew_in_forks

HELD_SECONDS = 5
"""So long at most others wait for whoever goes alone: it is a courtesy, and nothing depends on it."""


class Gate:
    """Lets all transactions of one process through to the timeline, or one alone; safe to share between threads."""

    def __init__(self) -> None:
        self.begin_anew()
        anew_in_forks(self)

    def begin_anew(self) -> None:
        """Be open, in a process that was forked: who goes alone is a thread of its parent."""
        self._changed = threading.Condition()
        self._holder: str | None = None

    @contextmanager
    def held_by(self, transaction: str) -> Iterator[None]:
        """Have the others wait until the block ends, or their patience; one after the other does so."""
        try:
            with self._changed:
                if self._changed.wait_for(lambda: self._holder is None, HELD_SECONDS):
                    self._holder = transaction
            yield
        finally:
            with self._changed:
                if self._holder == transaction:
                    self._holder = None
                    self._changed.notify_all()

    def wait(self, transaction: str) -> None:
        """Wait while another transaction goes alone."""
        if self._holder in (None, transaction):
            return
        with self._changed:
            self._changed.wait_for(lambda: self._holder in (None, transaction), HELD_SECONDS)
