"""A store that fails when it is told to, in the ways that real ones do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from lockstep.errors import UnavailableError
from lockstep.retry import CLAIM
from lockstep.storage import Found, Names, Storage
from tests.support.around import Around

T = TypeVar("T")
Operation = Literal["get", "put_if_absent", "put", "list", "walk", "exists", "delete", "delete_folder"]


@dataclass
class _Plan:
    operation: Operation
    path: str
    when: Literal["before", "after"]
    action: Callable[[], object]
    times: int


class TakenError(Exception):
    """What a plan raises to make a write answer that something is there."""


class FaultyStorage(Around):
    """Passes everything on to another store, but for what `fail` and `interrupt` ask for; records every call.

    A fault after the operation is a lost response: it has happened, and the caller is told that it failed. Plans are
    used up in the order they were made, and one call meets at most one before and one after.

    Attributes:
        calls: (operation, path) of every call, oldest first. `put_if_absent` stands for each request that it makes to
            write, without those that it makes to look what is there.
    """

    claim = replace(CLAIM, sleep=lambda seconds: None)

    def __init__(self, inner: Storage) -> None:
        self.inner = inner
        self.calls: list[tuple[str, str]] = []
        self._plans: list[_Plan] = []
        self._dies_at: int | None = None
        self._lock = threading.Lock()

    def fail(
        self,
        operation: Operation,
        *,
        path: str = "",
        when: Literal["before", "after"] = "before",
        times: int = 1,
        definite: bool = False,
    ) -> None:
        """Make the next `times` such calls, on paths that end with `path`, raise `UnavailableError`."""

        def failure() -> None:
            raise UnavailableError(f"injected: {operation} {path} failed {when} it was done", definite=definite)

        self._plans.append(_Plan(operation, path, when, failure, times))

    def interrupt(
        self,
        operation: Operation,
        action: Callable[[], object],
        *,
        path: str = "",
        when: Literal["before", "after"] = "before",
    ) -> None:
        """Run an action just before (or after) the next such call: what another process does in between."""
        self._plans.append(_Plan(operation, path, when, action, 1))

    def go_down(self, path: str, *, landed: bool) -> None:
        """Fail at the next write of a file, done or not, and do not answer for the file after that until it heals."""

        def down() -> None:
            self.fail("get", path=path, times=100)
            if not landed:
                raise UnavailableError(f"injected: the store is down at {path}")

        self.interrupt("put_if_absent", down, path=path)
        if landed:
            self.fail("put_if_absent", path=path, when="after")

    def die_at(self, number: int) -> None:
        """Fail at one call and at each after it, as if whoever uses the store had been killed; `heal` ends that.

        Args:
            number: of the call, counted from now on, beginning with 1.
        """
        self._dies_at = len(self.calls) + number

    def claim_taken(self, path: str = "", *, times: int = 1) -> None:
        """Make the next such writes answer that something is there, though they wrote nothing (S3's 409)."""

        def taken() -> None:
            raise TakenError

        self._plans.append(_Plan("put_if_absent", path, "before", taken, times))

    def heal(self) -> None:
        """Forget all that was asked for: the store works again."""
        with self._lock:
            self._plans.clear()
            self._dies_at = None

    def count(self, operation: Operation, path: str = "") -> int:
        """Return how many such calls there were, on paths that end with `path`."""
        return sum(1 for done, where in self.calls if done == operation and where.endswith(path))

    def get(self, path: str) -> bytes | None:
        return self._run("get", path, lambda: self.inner.get(path))

    def try_put(self, path: str, data: bytes) -> bool:
        try:
            return self._run("put_if_absent", path, lambda: self.inner.try_put(path, data))
        except TakenError:
            return False

    def put(self, path: str, data: bytes) -> None:
        self._run("put", path, lambda: self.inner.put(path, data))

    def chunks(self, path: str) -> Iterator[bytes] | None:
        return self._run("get", path, lambda: self.inner.chunks(path))

    def put_chunks(self, path: str, chunks: Iterable[bytes | memoryview]) -> None:
        self._run("put", path, lambda: self.inner.put_chunks(path, chunks))

    def list(self, folder: str, after: str | None = None) -> Names:
        return self._run("list", folder, lambda: self.inner.list(folder, after))

    def walk(self, folder: str) -> Iterator[Found]:
        return iter(self._run("walk", folder, lambda: [*self.inner.walk(folder)]))

    def exists(self, path: str) -> bool:
        return self._run("exists", path, lambda: self.inner.exists(path))

    def delete(self, path: str) -> None:
        self._run("delete", path, lambda: self.inner.delete(path))

    def delete_folder(self, path: str) -> None:
        self._run("delete_folder", path, lambda: self.inner.delete_folder(path))

    def _run(self, operation: Operation, path: str, call: Callable[[], T]) -> T:
        with self._lock:
            self.calls.append((operation, path))
            is_dead = self._dies_at is not None and len(self.calls) >= self._dies_at
        if is_dead:
            raise UnavailableError("injected: the process is dead")
        self._meet(operation, path, "before")
        result = call()
        self._meet(operation, path, "after")
        return result

    def _meet(self, operation: Operation, path: str, when: Literal["before", "after"]) -> None:
        with self._lock:
            plan = next(
                (
                    p
                    for p in self._plans
                    if p.times > 0 and (p.operation, p.when) == (operation, when) and path.endswith(p.path)
                ),
                None,
            )
            if plan is None:
                return
            plan.times -= 1
        plan.action()
