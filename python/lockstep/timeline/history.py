"""The entries up to the head: those that were used last are in memory, the others are read when somebody asks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lockstep.caches import MIB, Cache
from lockstep.storage import Storage
from lockstep.timeline.entry import Entry
from lockstep.timeline.files import Stored, read_known

KEPT_BYTES = 64 * MIB
"""What is kept in memory of one timeline: the newest ten thousand entries, where they are of small commits."""

FEW = 512
"""Who goes through no more entries than these may come again: they are kept."""

AT_ONCE = 64
"""So many entries are read before the first is handed out, where somebody goes through all of them."""


class History:
    """The entries that one timeline knows; safe to share between threads. No lock is held over a request."""

    def __init__(self, *, size: int = KEPT_BYTES) -> None:
        """Keep so many bytes of entries at most, as they are in memory."""
        self._by_version = Cache[int, Entry](size)

    def keep(self, entries: Iterable[Stored]) -> None:
        """Keep entries in memory, instead of those that nobody has asked for the longest."""
        for stored in entries:
            self._by_version.keep(stored.entry.version, stored.entry, size=stored.size)

    def read(self, storage: Storage, versions: range, *, last: int, keep: bool = True) -> list[Entry]:
        """Return entries that are known to exist, in the order of the versions.

        Args:
            last: the newest version that is known.
            keep: whether those that are read now are kept in memory.

        Raises:
            UnavailableError, CorruptTimelineError: one that is not in memory cannot be read, or is gone.
        """
        entries: dict[int, Entry] = {}
        for version in versions:
            if (entry := self._by_version.get(version)) is not None:
                entries[version] = entry
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
