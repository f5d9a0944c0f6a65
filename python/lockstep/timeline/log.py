"""The timeline: the numbered files that are the database's history, and the one write that commits a transaction.

    <root>/_lockstep/timeline/00000000000000000000.json     entry 0, an empty database
    <root>/_lockstep/timeline/00000000000000000001.json     entry 1, …
    <root>/_lockstep/timeline/_latest                       a hint: {"version": 1, "published_through": 1}

An entry is immutable and made by put-if-absent, so of all who want to be version n exactly one is. The hint is written
at best effort and never believed further than a look confirms: without it, opening lists the folder. It is written
after the entry that it names, so one that names an entry that is not there proves that an entry was lost.

The timeline knows entries and how they fold. It knows nothing of what a table's commits say.
"""

from __future__ import annotations

import logging
import threading
import uuid
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from lockstep.errors import CorruptTimelineError, InvalidError, UnavailableError
from lockstep.storage import Mine, Storage, Theirs
from lockstep.timeline.clock import Clock, far_ahead, to_millisecond, utc_now
from lockstep.timeline.entry import FORMAT, MAX_ENTRY_BYTES, Database, Entry, NamespaceDdl, TableWrite, TransactionInfo
from lockstep.timeline.files import FOLDER, decode, encode, entry_path, read, read_known, version_in
from lockstep.timeline.fold import (
    DEFAULT_NAMESPACE,
    Moves,
    Placements,
    amendments,
    apply,
    as_ratified,
    fold,
    placements,
)
from lockstep.timeline.hint import Hint, lost, read_hint, write_hint

Draft: TypeAlias = Callable[[int, datetime], Entry]
"""Makes an entry out of the version and the commit time that it is to have."""

ATTEMPTS = 3
"""How often an append is tried, and how often its outcome is read back, before it is `Unknown`."""

CACHED_VERSIONS = 8
_TICK = timedelta(milliseconds=1)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ratified:
    """The entry is in the timeline, as stored."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Lost:
    """Another transaction has the version; nothing of ours was written.

    Attributes:
        winners: the entries after the version that ours was made for, oldest first; at least one.
    """

    winners: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Unknown:
    """The store neither confirmed nor denied the write, and could not be read back.

    Attributes:
        entry: what we tried to write. Its version and its transaction's id are where and what to look for.
        cause: the store's last failure.
    """

    entry: Entry
    cause: UnavailableError


Outcome: TypeAlias = Ratified | Lost | Unknown


class Timeline:
    """One lake's timeline as far as this process has read it; safe to share between threads.

    Get one from `create` or `open`. Reading (`head`, `at`, `entries`) never touches the store; `refresh` and `append`
    do. The lock covers the state alone and is never held over a request, so a slow store delays only who asks it.
    """

    def __init__(self, storage: Storage, entries: Iterable[Entry], *, clock: Clock, published_through: int = 0) -> None:
        """Begin with the entries 0 … n, which are folded and so checked."""
        self.storage = storage
        self._clock = clock
        self._lock = threading.Lock()
        self._entries = list(entries)
        self._head = fold(self._entries)
        self._placements: Placements = placements(self._entries)
        self._moved: Moves = amendments(self._entries)
        self._cache: OrderedDict[int, Database] = OrderedDict()
        self._published_through = published_through
        self._warn_of_clocks(-1)

    def __repr__(self) -> str:
        return f"<lockstep.Timeline {self}>"

    def __str__(self) -> str:
        count = len(self.head.tables)
        tables = f"{count} table{'' if count == 1 else 's'}"
        return f"{self.storage.url} at database version {self.head.version}, {tables}"

    @classmethod
    def create(
        cls,
        storage: Storage,
        *,
        clock: Clock = utc_now,
        transaction_id: str | None = None,
        author: str = "",
        application: str = "",
        message: str = "",
    ) -> Timeline:
        """Write entry 0 and open; a timeline that exists, or that another process makes meanwhile, is just opened.

        Raises:
            UnavailableError: the store failed; calling again is safe.
            CorruptTimelineError: see `open`.
        """
        if read_hint(storage) is not None:  # there was one: if its entries are lost, a new one must not hide that
            return cls.open(storage, clock=clock)
        now = to_millisecond(clock())
        entry = Entry(
            format=FORMAT,
            version=0,
            committed_at=now,
            kind="create",
            transaction=TransactionInfo(
                id=transaction_id or str(uuid.uuid4()),
                began_at=now,
                base_version=-1,
                isolation="SERIALIZABLE",
                author=author,
                application=application,
                message=message,
            ),
            namespaces=[NamespaceDdl(action="create", name=DEFAULT_NAMESPACE)],
        )
        match storage.put_if_absent(entry_path(0), encode(entry)):
            case Mine():
                _log.info("made the timeline of %s", storage.url)
            case Theirs():
                _log.debug("%s has a timeline already", storage.url)
        return cls.open(storage, clock=clock)

    @classmethod
    def open(cls, storage: Storage, *, clock: Clock = utc_now) -> Timeline:
        """Read the whole timeline.

        Raises:
            InvalidError: there is none at this root.
            UnavailableError: the store failed.
            CorruptTimelineError: an entry is missing, cannot be read, or does not fit the others.
        """
        hint = read_hint(storage)
        # What a hint names must be there before anything is built on it.
        if hint is None or read(storage, hint.version) is None:
            versions = [found for name in storage.list(FOLDER) if (found := version_in(name)) is not None]
            if hint is not None and hint.version > max(versions, default=-1):
                raise lost(hint.version, max(versions, default=None))
            if not versions:
                root = storage.url
                raise InvalidError(f"no Lockstep timeline at {root}: make one with `lockstep init {root}`")
            hint = Hint(version=max(versions))
        timeline = cls(
            storage,
            [stored.entry for stored in read_known(storage, range(hint.version + 1), hint.version)],
            clock=clock,
            published_through=hint.published_through,
        )
        timeline.refresh()
        return timeline

    @property
    def head(self) -> Database:
        """The newest database version that is known; ask `refresh` for newer ones."""
        return self._head

    @property
    def published_through(self) -> int:
        """Every commit of the entries 0 … this is known to be published.

        It saves looking, and comes from the hint: a commit that turns out to be missing in a table's log is
        unpublished, whatever this says.
        """
        return self._published_through

    @property
    def moved(self) -> Moves:
        """The amendments of all entries known, see `lockstep.timeline.fold.amendments`."""
        return self._moved

    def versions(self, write: TableWrite, entry: int) -> tuple[int, ...]:
        """Return the table version of each commit of an entry's write, as it is now known: see `Moved`.

        They follow one another, but where a plain Delta writer's commits came in between.
        """
        return self._placements.get((write.id, entry)) or as_ratified(write)

    def refresh(self) -> list[Entry]:
        """Read what was committed since, and return the entries that are new since this call began, oldest first.

        Raises:
            UnavailableError: the store failed; what was read before that is kept.
            CorruptTimelineError: a new entry cannot be read or does not fit.
        """
        known = self._head.version
        while (stored := read(self.storage, self._head.version + 1)) is not None:
            self._absorb(stored.entry)
        return self.entries(known)

    def entries(self, after: int, through: int | None = None) -> list[Entry]:
        """Return the known entries with `after` < version <= `through` (the head when None), oldest first.

        Raises:
            InvalidError: one of the two is beyond the head, or below -1.
        """
        with self._lock:
            head = self._head.version
            through = head if through is None else through
            for bound in (after, through):
                if not -1 <= bound <= head:
                    raise InvalidError(f"database version {bound} does not exist: there are 0 to {head}")
            return self._entries[after + 1 : through + 1]

    def at(self, version: int) -> Database:
        """Return a database version as it is now known to have been (see `lockstep.timeline.fold`, amendments).

        Raises:
            InvalidError: there is no such version; the message says which there are.
        """
        with self._lock:
            head = self._head
            if not 0 <= version <= head.version:
                raise InvalidError(f"database version {version} does not exist: there are 0 to {head.version}")
            if version == head.version:
                return head
            if version not in self._cache:
                self._remember(fold(self._entries[: version + 1], self._moved))
            self._cache.move_to_end(version)
            return self._cache[version]

    def _remember(self, database: Database) -> None:
        self._cache[database.version] = database
        if len(self._cache) > CACHED_VERSIONS:
            self._cache.popitem(last=False)

    def at_time(self, ts: datetime) -> Database:
        """Return the database as it was at a time: the latest version committed then or before.

        Raises:
            InvalidError: the time has no zone, or is before version 0; the message says which times there are. Or the
                next version's time is far ahead of this process's clock, and nobody knows whether it was there by then.
        """
        if ts.tzinfo is None:
            raise InvalidError(f"time {ts.isoformat()} has no time zone: give one, the timeline's times are UTC")
        with self._lock:
            version = bisect_right(self._entries, ts, key=lambda entry: entry.committed_at) - 1
            first = self._entries[0].committed_at
            around = self._entries[max(0, version) : version + 2]
        if len(around) == 2 and around[0].committed_at < ts and (ahead := far_ahead(around[1], self._clock())):
            raise InvalidError(
                f"whether database version {version} or a later one was there at {ts.isoformat()} cannot be told: "
                + ahead
            )
        if version < 0:
            last = self._head
            raise InvalidError(
                f"no database at {ts.isoformat()}: its versions 0 to {last.version} were committed from "
                f"{first.isoformat()} to {last.committed_at.isoformat()}"
            )
        return self.at(version)

    def append(self, draft: Draft, *, after: int) -> Outcome:
        """Try to make an entry the next version; THE commit.

        Args:
            draft: called once with the version (`after` + 1) and the commit time, which follow the head's.
            after: the database version that the change was judged against. Another thread may have read on since: then
                the answer is `Lost`, for the change was not judged against what it read.

        Returns:
            Ratified: the entry is stored, by this call or by an earlier one with the same transaction id.
            Lost: it is not, and cannot be at this version any more.
            Unknown: either may be true. Trying again with the same transaction id, and the same `after`, is safe.

        Raises:
            InvalidError: the entry is too large, or does not fit the database; nothing was written.
            UnavailableError: the store said no before it wrote anything (no space, no permission); nothing was written.
            CorruptTimelineError: what has the version cannot be read.
        """
        head = self._head
        if not 0 <= after <= head.version:
            raise InvalidError(f"cannot append after database version {after}: there are 0 to {head.version}")
        stamp = max(to_millisecond(self._clock()), self._entries[after].committed_at + _TICK)
        entry = draft(after + 1, stamp)
        if after < head.version:
            return self._settled(entry)
        entry, data = self._checked(entry, head, stamp)
        stored: Entry | None = None
        attempt = 0
        while stored is None:
            attempt += 1
            try:
                match self.storage.put_if_absent(entry_path(entry.version), data):
                    case Mine():
                        self._absorb(entry)
                        return Ratified(entry)
                    case Theirs(found):
                        stored = decode(found, entry.version)
            except UnavailableError as error:
                if error.definite and attempt == 1:  # a write before this one might still arrive
                    raise
                # A lost response, another's entry, or nothing at all: only a look tells. And even a look that finds
                # nothing proves nothing, while a late request may still arrive: the same write, tried again, is what
                # settles it, for only one of the two can be the first.
                looked = self._read_back(entry.version)
                if isinstance(looked, UnavailableError) or (looked is None and attempt == ATTEMPTS):
                    return Unknown(entry, error)
                stored = looked
        self._absorb(stored)
        return self._settled(entry)

    def secure(self, entry: Entry) -> None:
        """See that an entry which was read is durable: who wrote it may have failed just before it was.

        Raises:
            UnavailableError: the store failed; nobody knows whether the entry outlives a power cut.
        """
        if isinstance(self.storage.put_if_absent(entry_path(entry.version), encode(entry)), Theirs):
            _log.debug("timeline entry %d is stored in other bytes than this Lockstep writes", entry.version)

    def mark_published(self, version: int) -> None:
        """Note that every commit of the entries 0 … `version` is published, here and, at best effort, in the hint.

        Raises:
            InvalidError: the version is beyond the known head.
        """
        with self._lock:
            head = self._head.version
            if version > head:
                raise InvalidError(f"cannot mark database version {version} published: the newest known is {head}")
            self._published_through = max(self._published_through, version)
            hint = Hint(version=head, published_through=self._published_through)
        try:
            write_hint(self.storage, hint)
        except UnavailableError as error:
            _log.warning("the timeline's hint was not written; opening it will cost more until it is: %s", error)

    def _absorb(self, entry: Entry) -> None:
        """Make an entry the head, unless another thread already has."""
        with self._lock:
            if entry.version <= self._head.version:
                return
            head = apply(self._head, entry)
            self._remember(self._head)  # statements that are under way go on reading it
            self._entries.append(entry)
            self._head = head
            self._warn_of_clocks(entry.version - 1)
            if entry.moved:  # last: who reads without the lock may see the new head first, and never the old one after
                self._placements = placements(self._entries)
                self._moved = amendments(self._entries)
                self._cache.clear()

    def _warn_of_clocks(self, known: int) -> None:
        """Say so in the log where the entries after this version begin to be far ahead of this process's clock."""
        now = self._clock()
        before, new = self._entries[max(0, known) : known + 1], self._entries[known + 1 :]
        if far_ahead(new[-1], now) and not any(far_ahead(entry, now) for entry in before):
            _log.warning("%s", next(filter(None, (far_ahead(entry, now) for entry in new))))

    def _checked(self, entry: Entry, head: Database, stamp: datetime) -> tuple[Entry, bytes]:
        """Return an entry as readers will see it, and its bytes; what they would refuse must never be written."""
        if (entry.format, entry.version, entry.committed_at) != (FORMAT, head.version + 1, stamp):
            raise InvalidError(f"entry {head.version + 1} must have the version and the time given to its draft")
        try:
            data = encode(entry)
        except UnicodeEncodeError as error:
            raise InvalidError(f"timeline entry {entry.version} holds text that is not Unicode: {error}") from error
        if len(data) > MAX_ENTRY_BYTES:
            raise InvalidError(
                f"timeline entry {entry.version} would have {len(data)} bytes, more than {MAX_ENTRY_BYTES}: stage its "
                "commits in files, or commit fewer tables at once"
            )
        try:
            stored = decode(data, entry.version)
            apply(head, stored)
            if stored.moved:
                amendments([*self.entries(-1, head.version), stored])
        except CorruptTimelineError as error:
            raise InvalidError(f"refused to write an entry that nobody could read: {error.message}") from error
        return stored, data

    def _read_back(self, version: int) -> Entry | UnavailableError | None:
        """Read what has a version now, or the failure after `ATTEMPTS` tries."""
        failure: UnavailableError | None = None
        for _ in range(ATTEMPTS):
            try:
                stored = read(self.storage, version)
                return None if stored is None else stored.entry
            except UnavailableError as error:
                failure = error
        return failure

    def _settled(self, entry: Entry) -> Outcome:
        """Tell the outcome of an entry whose version is known to be taken: the transaction's id says by whom."""
        try:
            self.refresh()
        except UnavailableError as error:
            # Who has the version is known; who came later is only good to know.
            _log.info("could not read on after a lost race: %s", error)
        winners = self.entries(entry.version - 1)
        ours = next((winner for winner in winners if winner.transaction.id == entry.transaction.id), None)
        if ours is None:
            return Lost(tuple(winners))
        try:
            self.secure(ours)
        except UnavailableError as error:
            return Unknown(ours, error)
        return Ratified(ours)
