"""What a process keeps in memory so that it need not read or work it out again: bounded in bytes, not in entries.

    kept = Cache[int, Entry](64 * MIB)
    kept.keep(entry.version, entry, size=ENTRY_BYTES + 2 * len(data))
    kept.get(entry.version)

Whoever keeps something says how many bytes it takes. That is an estimate, and is to be cheap, and rather too high than
too low: of what is decoded, a factor of the bytes that it was decoded from; of JSON, `size_of`. What two values share
counts for both. What is too large for a cache is not kept, and is read again by the next who asks.

All caches of a process together keep `PROCESS_BYTES`, however many lakes it has open: what has been used least recently
goes first, whichever lake it is of. So a driver that opens a lake anew with each key of its store does not grow.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import wraps
from heapq import heapify, heapreplace
from itertools import count
from math import inf
from sys import getsizeof
from threading import Lock
from typing import Any, Generic, TypeVar
from weakref import WeakSet

MIB = 1024 * 1024

PROCESS_BYTES = 512 * MIB
"""What all caches of a process keep together, by their estimates."""

LOOKS = 64
"""That is looked at whenever a part of it as large as this says has been kept anew: by so much it may be exceeded."""

LEAST = 500
"""What is kept of a short text takes so many bytes, with what keeps it."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
R = TypeVar("R")

_uses = count()


@dataclass(slots=True)
class _Kept(Generic[V]):
    """A value, the bytes that it takes, and when it was used last."""

    value: V
    size: int
    used: int


class Cache(Generic[K, V]):
    """Values by their keys, those that were used last, up to so many bytes; safe to share between threads."""

    def __init__(self, most: int, *, entries: int | None = None) -> None:
        """Keep so many bytes at most, and, if that is said, so many values."""
        self._most = most
        self._entries = entries
        self._kept: OrderedDict[K, _Kept[V]] = OrderedDict()
        self._size = 0
        self._lock = Lock()  # nothing waits under it, and no store is asked
        _process.add(self)

    def begin_anew(self) -> None:
        """Keep nothing, under a lock that nobody holds; see `_Process.begin_anew`."""
        self._kept, self._size, self._lock = OrderedDict(), 0, Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: object) -> bool:
        return key in self._kept

    @property
    def size(self) -> int:
        """The bytes that its values take, as those say who keep them."""
        return self._size

    @property
    def free(self) -> int:
        """So many bytes can be kept yet before anything gives way."""
        return self._most - self._size

    def get(self, key: K) -> V | None:
        """Return the value of a key, which counts as a use of it; None if there is none."""
        with self._lock:
            if (kept := self._kept.get(key)) is None:
                return None
            kept.used = next(_uses)
            self._kept.move_to_end(key)
            return kept.value

    def values(self) -> list[V]:
        """Return all values; that is no use of them."""
        with self._lock:
            return [kept.value for kept in self._kept.values()]

    def keep(self, key: K, value: V, *, size: int) -> None:
        """Keep a value in place of those that nobody has used for the longest; not one that is larger than all may be.

        Args:
            size: about how many bytes it takes in memory.
        """
        with self._lock:
            self._drop(key)
            if size > self._most:
                return
            self._kept[key] = _Kept(value, size, next(_uses))
            self._size += size
            while self._size > self._most or (self._entries is not None and len(self._kept) > self._entries):
                self._drop(next(iter(self._kept)))
        _process.grown(size)  # not under the lock: others make room here, too

    def clear(self) -> None:
        """Keep nothing of what is kept."""
        with self._lock:
            self._kept.clear()
            self._size = 0

    @property
    def oldest(self) -> float:
        """When the value was used that nobody has used for the longest, by the uses of all; infinite if it is empty."""
        with self._lock:
            return next((kept.used for kept in self._kept.values()), inf)

    def drop_oldest(self) -> int:
        """Drop what nobody has used for the longest, if there is anything, and return the bytes that it took."""
        with self._lock:
            return self._drop(next(iter(self._kept))) if self._kept else 0

    def _drop(self, key: K) -> int:
        if (kept := self._kept.pop(key, None)) is None:
            return 0
        self._size -= kept.size
        return kept.size


class _Process:
    """All caches of this process; safe to share between threads."""

    def __init__(self) -> None:
        self._caches: WeakSet[Cache[Any, Any]] = WeakSet()
        self._unseen = 0
        self._lock = Lock()

    def begin_anew(self) -> None:
        """Have locks that nobody holds, and nothing kept, in a process that was forked.

        A thread of its parent may have held one, and be in the middle of what it did under it.
        """
        self._lock, self._unseen = Lock(), 0
        for cache in self.caches:
            cache.begin_anew()

    def add(self, cache: Cache[Any, Any]) -> None:
        with self._lock:
            self._caches.add(cache)

    @property
    def caches(self) -> list[Cache[Any, Any]]:
        with self._lock:
            return list(self._caches)

    def grown(self, size: int) -> None:
        """Note that so many bytes more are kept, and make room if enough have come since that was last looked at."""
        self._unseen += size  # of two threads at once one may count for nothing: it is looked a little later then
        if self._unseen >= PROCESS_BYTES // LOOKS:
            self._unseen = 0
            self._make_room(kept_bytes() - PROCESS_BYTES)

    def _make_room(self, excess: int) -> None:
        """Drop so many bytes of what was used least recently, in whichever cache it is."""
        by_use = [(cache.oldest, number, cache) for number, cache in enumerate(self.caches)]
        heapify(by_use)
        while excess > 0 and by_use[0][0] < inf:
            _, number, cache = by_use[0]
            excess -= cache.drop_oldest()
            heapreplace(by_use, (cache.oldest, number, cache))


_process = _Process()
os.register_at_fork(after_in_child=_process.begin_anew)


def kept_bytes() -> int:
    """Return what all caches of this process keep, by their estimates."""
    return sum(cache.size for cache in _process.caches)


def size_of(value: Any) -> int:
    """Return about how many bytes something takes that was read from JSON: what is in it counts wherever it is."""
    if isinstance(value, dict):
        return getsizeof(value) + sum(getsizeof(key) + size_of(each) for key, each in value.items())
    if isinstance(value, list | tuple):
        return getsizeof(value) + sum(map(size_of, value))
    return getsizeof(value)


def remembered(
    most: int, factor: int, characters: Callable[[Any], int] = len
) -> Callable[[Callable[[K], R]], Callable[[K], R]]:
    """Remember what a function of one argument returns, in so many bytes, whatever texts it is called with.

    Args:
        most: the bytes.
        factor: so many bytes at most takes what is returned, for each character of the argument.
        characters: tells how many characters an argument has.
    """

    def decorate(function: Callable[[K], R]) -> Callable[[K], R]:
        kept = Cache[K, tuple[R]](most)  # in a tuple, for it may return None

        @wraps(function)
        def remembering(argument: K) -> R:
            if (found := kept.get(argument)) is None:
                found = (function(argument),)
                kept.keep(argument, found, size=LEAST + (1 + factor) * characters(argument))
            return found[0]

        return remembering

    return decorate
