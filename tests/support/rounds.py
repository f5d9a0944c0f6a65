"""A store that counts how many requests come one after the other, whatever goes side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from lockstep.storage import Storage
from tests.support.faulty import FaultyStorage, Operation

T = TypeVar("T")

LOOKS, LOOK_SECONDS = 15, 0.02
"""Once no request has come by so many looks, all that wait are answered at once: they were made side by side.

Many short looks, and not one long one: while this process is not let run, none of them goes by.
"""


class Rounds(FaultyStorage):
    """Answers requests round by round while it is asked to count.

    Attributes:
        rounds: of each round, what was asked.
    """

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.rounds: list[list[tuple[Operation, str]]] = []
        self._waiting: list[tuple[Operation, str, threading.Event]] = []
        self._changed = threading.Condition()
        self._counts = False

    @contextmanager
    def counting(self) -> Iterator[list[list[tuple[Operation, str]]]]:
        """Count from now on, until the block ends; yields the rounds."""
        self.rounds = []
        self._counts = True
        answering = threading.Thread(target=self._answer)
        answering.start()
        try:
            yield self.rounds
        finally:
            with self._changed:
                self._counts = False
                self._changed.notify()
            answering.join()

    def _run(self, operation: Operation, path: str, call: Callable[[], T]) -> T:
        answered = threading.Event()
        with self._changed:
            if self._counts:
                self._waiting.append((operation, path, answered))
                self._changed.notify()
            else:
                answered.set()
        answered.wait()
        return super()._run(operation, path, call)

    def _answer(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or not self._counts)
                quiet = 0
                while quiet < LOOKS:
                    quiet = 0 if self._changed.wait(LOOK_SECONDS) else quiet + 1  # another request has come, or none
                round_, self._waiting = self._waiting, []
                if round_:
                    self.rounds.append([(operation, path) for operation, path, _ in round_])
                done = not self._counts
            for *_, answered in round_:
                answered.set()
            if done:
                return
