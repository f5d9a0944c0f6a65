"""What a process has in memory that is not another's: one that was forked begins anew with it."""

from __future__ import annotations

import os
import threading
from typing import Protocol
from weakref import WeakSet


class BeginsAnew(Protocol):
    """Something with locks, threads, or work under way, which a forked process does not have."""

    def begin_anew(self) -> None:
        """Be as it was when it was made."""


_all: WeakSet[BeginsAnew] = WeakSet()


def anew_in_forks(one: BeginsAnew) -> None:
    """Have something begin anew in each process that is forked from this one, for as long as it is there."""
    _all.add(one)


def _begin_anew() -> None:
    for one in list(_all):
        one.begin_anew()


os.register_at_fork(after_in_child=_begin_anew)


class Lock:
    """A lock that nobody holds in a process that was forked: a thread of its parent may have held it just then.

    For what is short and never half done for long: a state that is put in the place of another, or a cache.
    """

    __slots__ = ("__weakref__", "_inner")

    def __init__(self) -> None:
        self.begin_anew()
        anew_in_forks(self)

    def begin_anew(self) -> None:
        """Be held by nobody."""
        self._inner = threading.Lock()

    def __enter__(self) -> None:
        self._inner.acquire()

    def __exit__(self, *_: object) -> None:
        self._inner.release()
