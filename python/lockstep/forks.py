"""What a process has in memory that is not another's: one that was forked begins anew with it."""

from __future__ import annotations

import os
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
