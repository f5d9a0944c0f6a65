"""What is known of a timeline: the head, and the entries and databases of older versions, read when somebody asks."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from datetime import datetime

from lockstep.arguments import takes
from lockstep.errors import InvalidError
from lockstep.storage import Storage
from lockstep.timeline.checkpoint import Checkpoints, State, state_after
from lockstep.timeline.clock import Clock, far_ahead
from lockstep.timeline.entry import Database, Entry, TableWrite
from lockstep.timeline.fold import (
    Moves,
    Placements,
    amended,
    as_ratified,
    ends,
    fold,
)
from lockstep.timeline.history import FEW, History

CHECKPOINT_EVERY = 100
"""After so many versions a checkpoint is due, unless whoever opens the timeline says otherwise."""

CACHED_VERSIONS = 8
ANCHORS = 16
"""So many of the versions that a checkpoint is due at are kept in memory; they share all that is the same in them."""


class Known:
    """The versions of one timeline up to the newest that is known; safe to share between threads.

    The lock covers the state alone and is never held over a request.
    """

    def __init__(
        self,
        storage: Storage,
        state: State,
        *,
        clock: Clock,
        history: History,
        checkpoints: Checkpoints,
        every: int,
    ) -> None:
        """Begin with what the entries up to a version say; `every` is how far checkpoints are apart, 0 the default."""
        self.storage = storage
        self._clock = clock
        self._lock = threading.Lock()
        self._history = history
        self._checkpoints = checkpoints
        self._every = every or CHECKPOINT_EVERY
        self._head = state.database
        self._head_file = (
            state.database.version
        )  # the version that the file which holds the head's entry has its name by
        self._puts_begun = self._put_landed = 0  # of this process: how many, and which of them is the last that landed
        self._placements: Placements = state.placements
        self._moves: Moves = ends(state.placements)
        self._cache: OrderedDict[int, Database] = OrderedDict()
        self._anchors = OrderedDict({state.database.version: state.database})

    @property
    def head(self) -> Database:
        """The newest database version that is known; ask `refresh` for newer ones."""
        return self._head

    @property
    def moves(self) -> Moves:
        """The amendments of all entries known, see `lockstep.timeline.fold.amendments`."""
        return self._moves

    def versions(self, write: TableWrite, entry: int) -> tuple[int, ...]:
        """Return the table version of each commit of an entry's write, as it is now known: see `Moved`.

        They follow one another, but where a plain Delta writer's commits came in between.
        """
        return self._placements.get((write.id, entry)) or as_ratified(write)

    def entries(self, after: int, through: int | None = None) -> list[Entry]:
        """Return the known entries with `after` < version <= `through` (the head when None), oldest first.

        Whoever wants to go through a long history takes `scan` or `newest_first`, which do not hold all of it.

        Raises:
            InvalidError: one of the two is beyond the head, or below -1.
            UnavailableError, CorruptTimelineError: an entry that is not in memory cannot be read, or is gone.
        """
        head, numbers = self._range(after, through)
        return self._history.read(self.storage, numbers, last=head, keep=len(numbers) <= FEW)

    def scan(self, after: int = -1, through: int | None = None) -> Iterator[Entry]:
        """Yield what `entries` returns, a few in memory at a time.

        Raises:
            InvalidError, UnavailableError, CorruptTimelineError: see `entries`.
        """
        head, numbers = self._range(after, through)
        return self._history.scan(self.storage, numbers, last=head)

    def newest_first(self, after: int = -1, through: int | None = None) -> Iterator[Entry]:
        """Yield what `entries` returns, newest first and a few in memory at a time.

        Raises:
            InvalidError, UnavailableError, CorruptTimelineError: see `entries`.
        """
        head, numbers = self._range(after, through)
        return self._history.scan(self.storage, numbers[::-1], last=head)

    def states(self) -> Iterator[tuple[Entry, State]]:
        """Yield every entry, each with what the entries up to it say: all of them are read, and no checkpoint is.

        Raises:
            UnavailableError, CorruptTimelineError: an entry cannot be read, is gone, or does not fit.
        """
        state: State | None = None
        for entry in self.scan():
            state = state_after(state, [entry], self._history, self.storage)
            yield entry, state

    def _range(self, after: int, through: int | None) -> tuple[int, range]:
        head = self._head.version
        through = head if through is None else through
        for bound in (after, through):
            if not -1 <= bound <= head:
                raise InvalidError(f"database version {bound} does not exist: there are 0 to {head}")
        return head, range(after + 1, through + 1)

    @takes(version=int)
    def at(self, version: int) -> Database:
        """Return a database version as it is now known to have been (see `lockstep.timeline.fold`, amendments).

        Raises:
            InvalidError: there is no such version; the message says which there are.
            UnavailableError, CorruptTimelineError: it is not in memory, and the entries since the checkpoint before it
                cannot be read.
        """
        with self._lock:
            head, moves = self._head, self._moves
            if not 0 <= version <= head.version:
                raise InvalidError(f"database version {version} does not exist: there are 0 to {head.version}")
            if version == head.version:
                return head
            if version in self._cache:
                self._cache.move_to_end(version)
                return self._cache[version]
            databases = [*self._anchors.values(), *self._cache.values()]
        earlier = [database for database in databases if database.version <= version]
        base = max(earlier, key=lambda database: database.version, default=None)
        if base is None or version - base.version >= self._every:
            state = self._checkpoints.newest(version)
            if state is not None and (base is None or state.database.version > base.version):
                base = state.database
        since = range(0 if base is None else base.version + 1, version + 1)
        entries = self._history.scan(self.storage, since, last=head.version)
        result = fold(entries, moves, after=None if base is None else amended(base, moves))
        with self._lock:
            if self._moves is moves:
                self._remember(result)
        return result

    def _remember(self, database: Database) -> None:
        self._cache[database.version] = database
        if len(self._cache) > CACHED_VERSIONS:
            self._cache.popitem(last=False)

    @takes(ts=datetime)
    def at_time(self, ts: datetime) -> Database:
        """Return the database as it was at a time: the latest version committed then or before.

        Raises:
            InvalidError: the time has no zone, or is before version 0; the message says which times there are. Or the
                next version's time is far ahead of this process's clock, and nobody knows whether it was there by then.
            UnavailableError, CorruptTimelineError: see `at`; of n entries about log2(n) are looked at.
        """
        if ts.tzinfo is None:
            raise InvalidError(f"time {ts.isoformat()} has no time zone: give one, the timeline's times are UTC")
        with self._lock:
            last = self._head
            databases = [*self._anchors.values(), *self._cache.values(), last]
        version = max((database.version for database in databases if database.committed_at <= ts), default=-1)
        later = min(
            (database.version for database in databases if database.committed_at > ts), default=last.version + 1
        )
        while later - version > 1:
            middle = (version + later) // 2
            [entry] = self.entries(middle - 1, middle)
            if entry.committed_at <= ts:
                version = middle
            else:
                later = middle
        around = self.entries(version - 1, version + 1) if 0 <= version < last.version else []
        if around and around[0].committed_at < ts and (ahead := far_ahead(around[1], self._clock())):
            raise InvalidError(
                f"whether database version {version} or a later one was there at {ts.isoformat()} cannot be told: "
                + ahead
            )
        if version < 0:
            [first] = self.entries(-1, 0)
            raise InvalidError(
                f"no database at {ts.isoformat()}: its versions 0 to {last.version} were committed from "
                f"{first.committed_at.isoformat()} to {last.committed_at.isoformat()}"
            )
        return self.at(version)

    def _take(self, head: Database, places: Placements | None) -> None:
        """Make a database version the head, and `places`, unless it is None, where commits are; under the lock."""
        self._remember(self._head)  # statements that are under way go on reading it
        self._head = head
        if places is not None:  # last: who reads without the lock may see the new head first, and never the old one
            self._placements = places
            self._moves = ends(places)
            self._cache.clear()
        if head.version % self._every == 0:
            self._anchor(head)

    def _anchor(self, database: Database) -> None:
        self._anchors[database.version] = database
        if len(self._anchors) > ANCHORS:
            self._anchors.popitem(last=False)

    def _after(self, state: State, entry: Entry) -> State:
        """Return the state after one more entry; see `state_after`."""
        return state_after(state, [entry], self._history, self.storage)
