"""The entries up to the head: those that were used last are in memory, the others are read when somebody asks."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator

from lockstep.storage import Storage
from lockstep.timeline.entry import Entry
from lockstep.timeline.files import Stored, read_known

KEPT_ENTRIES = 10_000
KEPT_BYTES = 64 * 1024 * 1024
"""What is kept in memory of one timeline, in bytes of the entries' files; decoded they take a few times that."""

FEW = 512
"""Who goes through no more entries than these may come again: they are kept."""

AT_ONCE = 64
"""So many entries are read before the first is handed out, where somebody goes through all of them."""


class History:
    """The entries that one timeline knows; safe to share between threads. No lock is held over a request."""

    def __init__(self, *, entries: int = KEPT_ENTRIES, size: int = KEPT_BYTES) -> None:
        """Keep so many entries, and so many bytes of them, at most."""
        self._by_version: OrderedDict[int, Stored] = OrderedDict()
        self._size = 0
        self._most = entries, size
        self._lock = threading.Lock()

    def keep(self, entries: Iterable[Stored]) -> None:
        """Keep entries in memory, instead of those that nobody has asked for the longest."""
        with self._lock:
            for stored in entries:
                self._size += stored.size
                if (old := self._by_version.pop(stored.entry.version, None)) is not None:
                    self._size -= old.size
                self._by_version[stored.entry.version] = stored
            while self._by_version and (len(self._by_version) > self._most[0] or self._size > self._most[1]):
                _, old = self._by_version.popitem(last=False)
                self._size -= old.size

    def read(self, storage: Storage, versions: range, *, last: int, keep: bool = True) -> list[Entry]:
        """Return entries that are known to exist, in the order of the versions.

        Args:
            last: the newest version that is known.
            keep: whether those that are read now are kept in memory.

        Raises:
            UnavailableError, CorruptTimelineError: one that is not in memory cannot be read, or is gone.
        """
        entries: dict[int, Entry] = {}
        with self._lock:
            for version in versions:
                if (stored := self._by_version.get(version)) is not None:
                    entries[version] = stored.entry
                    self._by_version.move_to_end(version)
        new = read_known(storage, [version for version in versions if version not in entries], last)
        if keep:
            self.keep(new)
        entries |= {stored.entry.version: stored.entry for stored in new}
        return [entries[version] for version in versions]

    def scan(self, storage: Storage, versions: range, *, last: int) -> Iterator[Entry]:
        """Yield entries that are known to exist, in the order of the versions, a few in memory at a time.

        Raises:
            UnavailableError, CorruptTimelineError: see `read`.
        """
        for begin in range(0, len(versions), AT_ONCE):
            yield from self.read(storage, versions[begin : begin + AT_ONCE], last=last, keep=len(versions) <= FEW)
