"""What is known of a timeline: the head, and the entries and databases of older versions, read when somebody asks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import dropwhile, takewhile

from msgspec import structs

from lockstep.arguments import takes
from lockstep.caches import MIB, Cache
from lockstep.errors import ExpiredError, InvalidError, SnapshotTooOldError
from lockstep.forks import Lock
from lockstep.storage import Storage
from lockstep.timeline.checkpoint import Checkpoints
from lockstep.timeline.clock import Clock, far_ahead
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Entry, Expired, TableWrite
from lockstep.timeline.fold import amended, fold
from lockstep.timeline.history import FEW, History
from lockstep.timeline.past import CAUGHT_UP, Past
from lockstep.timeline.placements import Moves, Placements, as_ratified, ends
from lockstep.timeline.segment import SEGMENT_VERSIONS
from lockstep.timeline.settlements import set_aside_in
from lockstep.timeline.state import State, state_after

CHECKPOINT_EVERY = 100
"""After so many versions a checkpoint is due, unless whoever opens the timeline says otherwise."""

CACHED_VERSIONS = 8
ANCHORS = 16
"""So many of the versions that a checkpoint is due at are kept in memory; they share all that is the same in them."""

DATABASE_BYTES = 64 * MIB
"""So much of each of the two at most, as if they shared nothing: two versions of a catalog of a million tables."""


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
        self._lock = Lock()
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
        self._cache = Cache[int, Database](DATABASE_BYTES, entries=CACHED_VERSIONS)
        self._past = Past(storage, history)
        self._anchors = Cache[int, Database](DATABASE_BYTES, entries=ANCHORS)
        self._anchor(state.database)
        checkpoints.expire(state.database.expired)

    @property
    def head(self) -> Database:
        """The newest database version that is known; ask `refresh` for newer ones."""
        return self._head

    @property
    def head_file(self) -> int:
        """The version by which the file has its name that holds the head's entry."""
        return self._head_file

    @property
    def moves(self) -> Moves:
        """The amendments of all entries known, see `lockstep.timeline.placements.amendments`."""
        return self._moves

    @property
    def placements(self) -> Placements:
        """Where the commits of all entries known are that were moved, see `lockstep.timeline.placements`."""
        return self._placements

    @property
    def clock(self) -> Clock:
        """What tells the time."""
        return self._clock

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
            SnapshotTooOldError: one of them has expired.
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
            SnapshotTooOldError: the next one has expired; raised behind the last that has not.
        """
        head, numbers = self._range(after, through, checked=False)
        return self._newest_first(head, numbers, self._head.expired)

    def _newest_first(self, head: int, numbers: range, expired: Expired) -> Iterator[Entry]:
        kept = range(min(max(numbers.start, expired.first_kept), numbers.stop), numbers.stop)
        yield from self._history.scan(self.storage, kept[::-1], last=head)
        if kept.start > numbers.start:
            raise too_old(kept.start - 1, expired, head)

    @takes(after=int, through=int | None, since=datetime | None, until=datetime | None)
    def past(
        self,
        *,
        after: int = -1,
        through: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Iterator[Entry]:
        """Yield what every version changed, the newest first, also of those that expired (`lockstep.timeline.past`).

        Args:
            after: only of versions that are later.
            through: only of versions up to this one.
            since: only what was committed at this time or later; with a zone.
            until: only what was committed at this time or before; with a zone.

        Raises:
            UnavailableError, CorruptTimelineError: the store failed, or an entry that has not expired is lost.
        """
        head = self._head
        if until is not None and (found := self._past.at_time(until, head.version)) is not None:
            through = min(found[1], head.version if through is None else through)
        entries = self._past.newest_first(head.expired.first_kept, head.version, after, through)
        if until is not None:
            entries = dropwhile(lambda entry: entry.committed_at > until, entries)
        return entries if since is None else takewhile(lambda entry: entry.committed_at >= since, entries)

    def write_segments(self, through: int, *, at_most: int = CAUGHT_UP, check: bool = False) -> None:
        """Write segments of the history that are missing up to a version.

        Raises:
            UnavailableError, CorruptTimelineError: see `lockstep.timeline.past.Past.write`; the timeline is as before.
        """
        self._past.write(through, first_kept=self._head.expired.first_kept, at_most=at_most, check=check)

    def kept(self) -> Iterator[Entry]:
        """Yield every entry of the unbroken run up to the head, oldest first: all, if nothing has expired.

        Raises:
            UnavailableError, CorruptTimelineError: an entry cannot be read, or is gone.
        """
        return self.scan(self._head.expired.first_kept - 1)

    def states(self) -> Iterator[tuple[Entry, State]]:
        """Yield what `kept` does, each with what the entries up to it say: all are read, and no checkpoint is.

        Raises:
            UnavailableError, CorruptTimelineError: an entry, or the base before them, cannot be read, is gone, or does
                not fit.
        """
        state = self._checkpoints.begin(self._head.version)
        for entry in self.kept():
            if state is None or state.database.version < entry.version:
                state = state_after(state, [entry], self._history, self.storage)
            yield entry, state

    def state_at(self, version: int) -> State:
        """Return what the entries up to a version say, without what later ones say of it.

        Raises:
            InvalidError: there is no such version. ExpiredError: there is none any more.
            UnavailableError, CorruptTimelineError: see `at`.
        """
        self._check(version)
        return self._checkpoints.state_at(version)

    def _check(self, version: int) -> None:
        head = self._head
        there = head.expired.readable(head.version)
        if not 0 <= version <= head.version:
            raise InvalidError(f"database version {version} does not exist: there are {there}")
        if head.expired.has(version):
            raise ExpiredError(
                f"database version {version} has expired, and nobody can read it any more: there are {there}"
            )

    def _range(self, after: int, through: int | None, *, checked: bool = True) -> tuple[int, range]:
        head, expired = self._head.version, self._head.expired
        through = head if through is None else through
        for bound in (after, through):
            if not -1 <= bound <= head:
                raise InvalidError(f"database version {bound} does not exist: there are {expired.readable(head)}")
        numbers = range(after + 1, through + 1)
        gone = next(filter(expired.has, numbers[: expired.first_kept]), None) if checked else None
        if gone is not None:
            raise too_old(gone, expired, head)
        return head, numbers

    @takes(version=int)
    def at(self, version: int) -> Database:
        """Return a database version as it is now known to have been (see `lockstep.timeline.fold`, amendments).

        Tables of it that were settled since are set aside in it, where their logs do not say any more what it says.

        Raises:
            InvalidError: there is no such version; the message says which there are.
            ExpiredError: there is none any more; the message says which there are.
            UnavailableError, CorruptTimelineError: it is not in memory, and the entries since the checkpoint before it
                cannot be read.
        """
        self._check(version)
        with self._lock:
            head, moves = self._head, self._moves
            if version == head.version:
                return head
            if (cached := self._cache.get(version)) is not None and not self._checkpoints.is_left(cached):
                return cached
            databases = [*self._anchors.values(), *self._cache.values()]
        earlier = [each for each in databases if each.version <= version and not self._checkpoints.is_left(each)]
        base = max(earlier, key=lambda database: database.version, default=None)
        floor = self._checkpoints.expired.floor(version)
        if base is not None and base.version < floor:
            base = None
        if base is None or version - base.version >= self._every:
            state = self._checkpoints.newest(version, at_least=floor) or self._checkpoints.begin(version)
            if state is not None and (base is None or state.database.version > base.version):
                base = state.database
        since = range(0 if base is None else base.version + 1, version + 1)
        entries = self._history.scan(self.storage, since, last=head.version)
        result = fold(entries, moves, after=None if base is None else amended(base, moves))
        if set_aside := set_aside_in(result, head):
            result = structs.replace(result, set_aside=set_aside)
        with self._lock:
            if self._moves is moves and self._head.settled == head.settled:
                self._remember(result)
        return result

    def _remember(self, database: Database) -> None:
        self._cache.keep(database.version, database, size=database.size)

    @takes(ts=datetime)
    def at_time(self, ts: datetime) -> Database:
        """Return the database as it was at a time: the latest version committed then or before.

        Raises:
            InvalidError: the time has no zone, or is before version 0; the message says which times there are. Or the
                next version's time is far ahead of this process's clock, and nobody knows whether it was there by then.
            ExpiredError: the version of that time has expired, or may have.
            UnavailableError, CorruptTimelineError: see `at`; of n entries about log2(n) are looked at.
        """
        if ts.tzinfo is None:
            raise InvalidError(f"time {ts.isoformat()} has no time zone: give one, the timeline's times are UTC")
        with self._lock:
            last = self._head
            databases = [*self._anchors.values(), *self._cache.values(), last]
        first_kept = last.expired.first_kept
        version = max((d.version for d in databases if d.committed_at <= ts), default=-1)
        later = min(
            (database.version for database in databases if database.committed_at > ts), default=last.version + 1
        )
        is_long = later - version > SEGMENT_VERSIONS or version + 1 < first_kept
        if is_long and (found := self._past.at_time(ts, last.version)) is not None:
            version, later = max(version, found[0]), min(later, found[1])
        while later - version > 1 and later > first_kept:
            middle = max((version + later) // 2, first_kept)
            [entry] = self.entries(middle - 1, middle)
            if entry.committed_at <= ts:
                version = middle
            else:
                later = middle
        if later - version > 1 or last.expired.has(max(version, 0)):
            raise ExpiredError(
                f"the database as it was at {ts.isoformat()} has expired, and nobody can read it any more: there are "
                f"the versions {last.expired.readable(last.version)}"
            )
        around = self.entries(version - 1, version + 1) if first_kept <= version < last.version and version >= 0 else []
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
        if head.settled != self._head.settled:
            self._cache.clear()
        self._head = head
        if places is not None:  # last: who reads without the lock may see the new head first, and never the old one
            self._placements = places
            self._moves = ends(places)
            self._cache.clear()
        self._checkpoints.expire(head.expired)
        if head.version % self._every == 0:
            self._anchor(head)

    def _anchor(self, database: Database) -> None:
        self._anchors.keep(database.version, database, size=database.size)

    def _after(self, state: State, entry: Entry) -> State:
        """Return the state after one more entry; see `state_after`."""
        return state_after(state, [entry], self._history, self.storage)


def too_old(version: int, expired: Expired, head: int) -> SnapshotTooOldError:
    """Return what to say to who needs an entry that has expired."""
    return SnapshotTooOldError(
        f"what database version {version} changed is not known any more, for it has expired: there are "
        f"{expired.readable(head)}. Nothing of this was committed; run a transaction that began before that again"
    )
