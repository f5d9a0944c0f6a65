"""The past: what every database version changed, who did it, when and why, also of versions that expired.

This is what system tables, `lockstep log` and a time in the past ask. It reads segments of the history
(`lockstep.timeline.segment`) where there are any, only those that it touches, and entries elsewhere; so it costs the
same however long the history is.

    for entry in timeline.past(): ...                         # all, as far as anybody goes on
    for entry in timeline.past(after=99, through=200): ...    # some versions
    for entry in timeline.past(since=monday, until=friday):   # some time

Entries come the newest first, and as `lockstep.timeline.segment.bare` has them: without commits, definitions of views,
and reads.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from datetime import datetime
from operator import attrgetter
from typing import TypeVar

from lockstep.caches import MIB, Cache
from lockstep.forks import Lock
from lockstep.storage import Storage
from lockstep.timeline.entry import Entry
from lockstep.timeline.files import encode
from lockstep.timeline.history import History
from lockstep.timeline.parts import UnusableError
from lockstep.timeline.segment import (
    SEGMENT_VERSIONS,
    Segment,
    bare,
    list_segments,
    read_segment,
    read_times,
    write_segment,
)

KEPT_BYTES = 32 * MIB
"""What of segments stays in memory: about sixteen, where they are of small commits."""

BARE = 5
"""What an entry of a segment takes in memory for each byte of its JSON."""

TIME_BYTES = 64
"""What a time takes in memory."""

CAUGHT_UP = 2
"""So many segments that are missing are written behind one commit."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Past:
    """The history of one lake, as far as anybody asks for it; safe to share between threads."""

    def __init__(self, storage: Storage, history: History) -> None:
        """Know of no segment yet; `history` keeps the entries that are read."""
        self._storage = storage
        self._history = history
        self._listing: list[Segment] = []
        self._looked_at: int | None = None
        self._first_kept_then = 0
        self._read = Cache[Segment, list[Entry]](KEPT_BYTES)
        self._times_read = Cache[Segment, list[datetime]](KEPT_BYTES // 8)
        self._bad: set[Segment] = set()
        self._lock = Lock()

    def newest_first(self, first_kept: int, head: int, after: int = -1, through: int | None = None) -> Iterator[Entry]:
        """Yield what there is of `after` < version <= `through`, newest first.

        Args:
            first_kept: the first version of the unbroken run up to the head.
            head: the newest version.

        Raises:
            UnavailableError, CorruptTimelineError: the store failed, or an entry that has not expired is lost.
        """
        self._look(head, first_kept)
        version = head if through is None else min(through, head)
        while version > after:
            if (segment := self._holding(version)) is None:
                low = max(self._end_below(version), after)
                kept = range(max(low + 1, first_kept), version + 1)
                yield from map(bare, self._history.scan(self._storage, kept[::-1], last=head))
            elif (entries := self._entries(segment)) is not None:
                low = max(segment.first - 1, after)
                yield from reversed(entries[low + 1 - segment.first : version + 1 - segment.first])
            else:
                continue  # it is damaged, which is known now
            version = low

    def at_time(self, ts: datetime, head: int) -> tuple[int, int] | None:
        """Return the last version that was committed at a time or before, and the next one, as far as segments tell.

        None if they do not tell: there are none, or the time is after the last one's. The first may be -1, and versions
        may be between the two where a segment is damaged or missing.

        Raises:
            UnavailableError: the store failed.
        """
        self._look(head)
        segments = self._listing
        at = bisect_right(segments, ts, key=attrgetter("committed_at"))
        if at == len(segments):
            return None
        times = self._times(segments[at])
        before = segments[at - 1].last if at else -1
        if times is None or segments[at].first > before + 1:
            return before, segments[at].last
        version = segments[at].first + bisect_right(times, ts) - 1
        return version, version + 1

    # --- segments -----------------------------------------------------------------------------------------------------

    def write(self, through: int, *, first_kept: int, at_most: int = CAUGHT_UP, check: bool = False) -> None:
        """Write the segments that are missing of versions up to one, the newest first.

        Args:
            through: the last version of the last of them.
            first_kept: entries before it are gone.
            at_most: so many segments.
            check: whether those that are there are read, and written again where they are damaged, for their entries
                are about to go.

        Raises:
            UnavailableError, CorruptTimelineError: the store failed, or an entry is lost. No other needs a segment.
        """
        self._look(through, again=True)
        version = through
        for _ in range(at_most):
            while version >= first_kept and (segment := self._holding(version)) is not None:
                if not check or self._is_sound(segment):
                    version = segment.first - 1
            if version < first_kept:
                return
            low = max(version - version % SEGMENT_VERSIONS, self._end_below(version) + 1, first_kept)
            entries = list(self._history.scan(self._storage, range(low, version + 1), last=through))
            self._note(write_segment(self._storage, entries))
            version = low - 1

    def _look(self, head: int, first_kept: int = 0, *, again: bool = False) -> None:
        """Look which segments there are, unless that was done when the head was about the same.

        Where entries have expired since, their segments may have been written just for that, by whoever did it.
        """
        is_new = self._looked_at is None or head - self._looked_at >= SEGMENT_VERSIONS
        if again or is_new or first_kept > self._first_kept_then:
            listing = list_segments(self._storage)
            with self._lock:
                self._listing, self._looked_at = listing, head
                self._first_kept_then = max(first_kept, self._first_kept_then)

    def _note(self, segment: Segment) -> None:
        with self._lock:
            self._listing = sorted({*self._listing, segment})
            self._bad.discard(segment)

    def _holding(self, version: int) -> Segment | None:
        """Return the segment that has a version and begins first; they seldom overlap."""
        segments = self._listing
        at = bisect_right(segments, version, key=attrgetter("first"))
        found = [segment for segment in segments[max(0, at - 2) : at] if version <= segment.last]
        return min((segment for segment in found if segment not in self._bad), default=None)

    def _end_below(self, version: int) -> int:
        """Return the last version below one that a segment has; -1 if none has any."""
        segments = self._listing
        at = bisect_left(segments, version, key=attrgetter("first"))
        ends = [segment.last for segment in segments[max(0, at - 2) : at] if segment.last < version]
        return max(ends, default=-1)

    def _entries(self, segment: Segment) -> list[Entry] | None:
        """Return what is in a segment; None if it is damaged."""
        return self._found(segment, self._read, read_segment, lambda entry: BARE * len(encode(entry)))

    def _times(self, segment: Segment) -> list[datetime] | None:
        """Return when the versions of a segment were committed; None if it is damaged."""
        return self._found(segment, self._times_read, read_times, lambda _: TIME_BYTES)

    def _is_sound(self, segment: Segment) -> bool:
        """Read a segment as it is now, whatever was read of it before."""
        try:
            read_segment(self._storage, segment)
        except UnusableError as error:
            self._pass_over(segment, error)
            return False
        return True

    def _pass_over(self, segment: Segment, error: UnusableError) -> None:
        _log.warning("%s is passed over, and entries are read instead, if they are there: %s", segment.path, error)
        with self._lock:
            self._bad.add(segment)

    def _found(
        self,
        segment: Segment,
        kept: Cache[Segment, list[T]],
        read: Callable[[Storage, Segment], list[T]],
        size_of: Callable[[T], int],
    ) -> list[T] | None:
        """Return what is kept of a segment, or else is read of it now; None if it is damaged."""
        if (found := kept.get(segment)) is not None:
            return found
        try:
            found = read(self._storage, segment)
        except UnusableError as error:
            self._pass_over(segment, error)
            return None
        kept.keep(segment, found, size=sum(map(size_of, found)))
        return found
