"""A store whose user dies at one of its calls: nothing of the process goes on, and what it did stays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from lockstep.storage import Found, Names, Storage
from tests.support.around import Around

T = TypeVar("T")


class Killed(BaseException):
    """The process is dead."""


class KilledStorage(Around):
    """Passes calls on to another store until the process is killed; every call after that kills whoever makes it.

    Attributes:
        calls: (operation, path) of every call that changes something or asks, oldest first.
    """

    def __init__(self, inner: Storage, *, at: int | None = None, is_done: bool = False) -> None:
        """Kill at a call, by its number from 0: before it is done, or once it is."""
        self.inner = inner
        self.calls: list[tuple[str, str]] = []
        self._at, self._is_done = at, is_done
        self._lock = threading.Lock()
        self._is_dead = False

    def get(self, path: str) -> bytes | None:
        return self._run("get", path, lambda: self.inner.get(path))

    def try_put(self, path: str, data: bytes) -> bool:
        return self._run("put_if_absent", path, lambda: self.inner.try_put(path, data))

    def put(self, path: str, data: bytes) -> None:
        self._run("put", path, lambda: self.inner.put(path, data))

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

    def _run(self, operation: str, path: str, call: Callable[[], T]) -> T:
        with self._lock:  # one after the other: the number of a call means the same in each run
            number = len(self.calls)
            self.calls.append((operation, path))
            if self._is_dead or (number == self._at and not self._is_done):
                self._is_dead = True
                raise Killed
            result = call()
            if number == self._at:
                self._is_dead = True
                raise Killed
            return result
