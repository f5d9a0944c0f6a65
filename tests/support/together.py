"""A store in which requests that are to be made side by side have to be: each waits until all of them are there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from lockstep.storage import Storage
from tests.support.faulty import FaultyStorage, Operation

T = TypeVar("T")

PATIENCE_SECONDS = 60


class Together(FaultyStorage):
    """Once it is told what to expect, answers none of the next requests before all of them are there.

    Attributes:
        met: of each time that requests were all there, how many.
    """

    def __init__(self, inner: Storage, count: int) -> None:
        super().__init__(inner)
        self.met: list[int] = []
        self._count = count
        self._barrier: threading.Barrier | None = None

    def expect(self) -> None:
        """Have each of the next requests wait for the others."""
        self._barrier = threading.Barrier(self._count, action=lambda: self.met.append(self._count))

    def _run(self, operation: Operation, path: str, call: Callable[[], T]) -> T:
        if self._barrier is not None:
            self._barrier.wait(PATIENCE_SECONDS)  # BrokenBarrierError: they come one after the other
        return super()._run(operation, path, call)
