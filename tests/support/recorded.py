"""An arbiter in memory, whose answers are lost when a test says so, and what happens then is the test's, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from lockstep.arbiters import Accept, Arbiter, Decision, FailedError, Mark
from lockstep.retry import REQUEST
from lockstep.storage.failures import Meaning

QUICKLY = replace(REQUEST, base_seconds=0.001, cap_seconds=0.01)


@dataclass(eq=False)
class Server:
    """What the clients of one arbiter share.

    Attributes:
        record: what is recorded of the lake.
        identity: which server it is.
        check: why it may not decide, if it may not.
        reading: for each of the next requests to read, what happens just before and just after it.
        lost: for each of the next requests to decide, what happens once it was carried out and its answer is lost.
    """

    record: Decision | None = None
    identity: str = "one"
    check: Exception | None = None
    reading: list[tuple[Callable[[], object], Callable[[], object]]] = field(default_factory=list)
    lost: list[Callable[[], object]] = field(default_factory=list)

    def forget(self) -> None:
        """Lose the record, as an eviction or a restart without a disk does."""
        self.record = None


class Recorded(Arbiter):
    """A client of such a server."""

    alternative = "another prefix"
    repeat = QUICKLY

    def __init__(self, server: Server, *, kind: str = "valkey", name: str = "lockstep") -> None:
        super().__init__(name, "file:///lake")
        self.server = server
        self.kind = kind  # type: ignore[misc]

    @property
    def place(self) -> str:
        return f"the key {self.key}"

    def _check(self) -> str:
        if self.server.check is not None:
            raise self.server.check
        return self.server.identity

    def _swap(self, before: Mark | None, decision: Decision, accept: Accept) -> bool:
        accept(self._check())
        is_same = (None if self.server.record is None else self.server.record.mark) == before
        if is_same:
            self.server.record = decision
        if self.server.lost:
            self.server.lost.pop(0)()
            raise FailedError(Meaning.UNKNOWN, "the answer was lost")
        return is_same

    def _read(self) -> Decision | None:
        before, after = self.server.reading.pop(0) if self.server.reading else (nothing, nothing)
        before()
        found = self.server.record
        after()
        return found


def nothing() -> None:
    """Do nothing."""
