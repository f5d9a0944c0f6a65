"""The arbiter of a simulated lake: one record, and the view that one process has of it through a bad network."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lockstep.arbiters import Accept, Arbiter, Decision, FailedError, Mark
from lockstep.errors import UnavailableError
from lockstep.retry import REQUEST
from lockstep.storage.failures import Meaning
from tests.sim.store import SimulatedStorage, backoff

T = TypeVar("T")


class SimulatedArbiter(Arbiter):
    """The arbiter as a process reaches it, with the same faults as its requests to the store."""

    kind = "valkey"
    alternative = "another prefix"

    def __init__(self, storage: SimulatedStorage) -> None:
        super().__init__("lockstep", storage.url)
        self.repeat = backoff(storage.scheduler, REQUEST)
        self._storage = storage

    @property
    def place(self) -> str:
        return f"the key {self.key}"

    def _check(self) -> str:
        """It never forgets."""
        return ""

    def _swap(self, before: Mark | None, decision: Decision, accept: Accept) -> bool:
        disk = self._storage.disk

        def compare_and_replace() -> bool:
            if (None if disk.decided is None else disk.decided.mark) != before:
                return False
            disk.decided = decision
            return True

        return self._reporting(lambda: self._storage.write("swap", "arbiter", compare_and_replace))

    def _read(self) -> Decision | None:
        return self._reporting(lambda: self._storage.read("ask", "arbiter", lambda: self._storage.disk.decided))

    @staticmethod
    def _reporting(request: Callable[[], T]) -> T:
        try:
            return request()
        except UnavailableError as error:
            raise FailedError(Meaning.REFUSED if error.definite else Meaning.UNKNOWN, error.message) from error
