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
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta

from immutables import Map
from msgspec import UNSET

from lockstep.arguments import takes
from lockstep.errors import CorruptTimelineError, InvalidError, UnavailableError
from lockstep.storage import Mine, Storage, Theirs
from lockstep.timeline.ahead import Ahead, fetch_for
from lockstep.timeline.checkpoint import Checkpoints, State, manifest_path, proof_of_later, versions
from lockstep.timeline.clock import Clock, far_ahead, to_millisecond, utc_now
from lockstep.timeline.entry import FORMAT, MAX_ENTRY_BYTES, Database, Entry, NamespaceDdl, TransactionInfo
from lockstep.timeline.files import (
    FOLDER,
    RESTORE,
    Gets,
    Stored,
    decode,
    encode,
    entry_path,
    read,
    read_known,
    version_in,
)
from lockstep.timeline.fold import DEFAULT_NAMESPACE, FETCHED_FOR, apply, fold
from lockstep.timeline.hint import Hint, lost_entries, read_hint, write_hint
from lockstep.timeline.history import History
from lockstep.timeline.known import CHECKPOINT_EVERY, Known
from lockstep.timeline.outcomes import AppendOutcome, Lost, MakeEntry, Ratified, Unknown

ATTEMPTS = 3
"""How often an append is tried, and how often its outcome is read back, before it is `Unknown`."""

OPENED_AT_ONCE = 512
"""So many entries are read before they are folded, when a timeline is opened."""

_TICK = timedelta(milliseconds=1)

_log = logging.getLogger(__name__)


class Timeline(Known):
    """One lake's timeline as far as this process has read it; safe to share between threads.

    Get one from `create` or `open`. `head` and what is known of published and moved commits never touch the store. All
    else may: `refresh` and `append` always do, and the entries and databases of older versions are read when somebody
    asks for them, unless they are still in memory. The lock covers the state alone and is never held over a request, so
    a slow store delays only who asks it.
    """

    def __init__(
        self,
        storage: Storage,
        state: State,
        *,
        clock: Clock,
        history: History,
        checkpoints: Checkpoints,
        checkpoint_every: int,
        published_through: int = 0,
    ) -> None:
        """Begin with what the entries up to a version say."""
        super().__init__(storage, state, clock=clock, history=history, checkpoints=checkpoints, every=checkpoint_every)
        self._writes_checkpoints = checkpoint_every > 0
        self._due_state: State | None = None
        self._checkpoint: int | None = None
        self._hint: Hint | None = None  # as this process wrote it last
        self._published_through = published_through
        if far := far_ahead(self._head, clock()):
            _log.warning("%s", far)

    def __repr__(self) -> str:
        return f"<lockstep.Timeline {self}>"

    def __str__(self) -> str:
        count = len(self.head.tables)
        tables = f"{count} table{'' if count == 1 else 's'}"
        return f"{self.storage.url} at database version {self.head.version}, {tables}"

    @classmethod
    @takes(storage=Storage, author=str, application=str, message=str, checkpoint_every=int)
    def create(
        cls,
        storage: Storage,
        *,
        clock: Clock = utc_now,
        transaction_id: str | None = None,
        author: str = "",
        application: str = "",
        message: str = "",
        checkpoint_every: int = CHECKPOINT_EVERY,
    ) -> Timeline:
        """Write entry 0 and open; a timeline that exists, or that another process makes meanwhile, is just opened.

        Raises:
            UnavailableError: the store failed; calling again is safe.
            CorruptTimelineError: see `open`.
        """
        if read_hint(storage) is not None or versions(storage):
            # There was one: if its entries are lost, a new one must not hide that.
            return cls.open(storage, clock=clock, checkpoint_every=checkpoint_every)
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
        return cls.open(storage, clock=clock, checkpoint_every=checkpoint_every)

    @classmethod
    @takes(storage=Storage, checkpoint_every=int)
    def open(cls, storage: Storage, *, clock: Clock = utc_now, checkpoint_every: int = CHECKPOINT_EVERY) -> Timeline:
        """Read the newest checkpoint and the entries since, of a timeline without checkpoints all entries.

        Args:
            checkpoint_every: `write_checkpoint` has something to write at versions that are multiples of this; never,
                if it is 0.

        Raises:
            InvalidError: there is none at this root.
            UnavailableError: the store failed.
            CorruptTimelineError: an entry that is needed is missing, cannot be read, or does not fit the others.
        """
        hint = read_hint(storage)
        files = Ahead(storage, _needed(hint))
        hint = _end(storage, hint, files)
        history = History()
        checkpoints = Checkpoints(storage, history)
        candidate = None if hint.checkpoint is UNSET else hint.checkpoint
        state = None
        if candidate is not None or hint.version >= CHECKPOINT_EVERY:  # a shorter history is not worth a listing
            state = checkpoints.newest(hint.version, candidate, files)
        checkpoint = None if state is None else state.database.version
        [first] = read_known(files, [0], hint.version)  # who cleans up by age takes the oldest first: that is found
        timeline = cls(
            storage,
            state or State(apply(None, first.entry), Map()),
            clock=clock,
            history=history,
            checkpoints=checkpoints,
            checkpoint_every=checkpoint_every,
            published_through=hint.published_through,
        )
        timeline._checkpoint = checkpoint
        history.keep([first])
        new = range(timeline.head.version + 1, hint.version + 1)
        for begin in range(0, len(new), OPENED_AT_ONCE):
            numbers = new[begin : begin + OPENED_AT_ONCE]
            some = files if all(entry_path(n) in files for n in numbers) else Ahead(storage, map(entry_path, numbers))
            timeline._absorb_all(read_known(some, numbers, hint.version, readers=1))
        timeline._read_on(files)
        return timeline

    @property
    def published_through(self) -> int:
        """Every commit of the entries 0 … this is known to be published.

        It saves looking, and comes from the hint: a commit that turns out to be missing in a table's log is
        unpublished, whatever this says.
        """
        return self._published_through

    def refresh(self) -> list[Entry]:
        """Read what was committed since, and return the entries that are new since this call began, oldest first.

        Raises:
            UnavailableError: the store failed; what was read before that is kept.
            CorruptTimelineError: a new entry cannot be read or does not fit.
        """
        version = self._head.version
        self._read_on(self.storage)
        return self.entries(version)

    def _read_on(self, files: Gets) -> None:
        while (stored := read(files, self._head.version + 1)) is not None:
            self._absorb_all([stored])

    def append(self, draft: MakeEntry, after: int) -> AppendOutcome:
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
        with self._lock:
            state = State(self._head, self._placements)
        head = state.database
        if not 0 <= after <= head.version:
            raise InvalidError(f"cannot append after database version {after}: there are 0 to {head.version}")
        stamp = max(to_millisecond(self._clock()), head.committed_at + _TICK)
        entry = draft(after + 1, stamp)
        if after < head.version:
            return self._outcome(entry)
        entry, data, after_it = self._checked(entry, state, stamp)
        stored: Stored | None = None
        attempt = 0
        while stored is None:
            attempt += 1
            try:
                match self.storage.put_if_absent(entry_path(entry.version), data):
                    case Mine():
                        self._absorb(Stored(entry, len(data)), after_it)
                        return Ratified(entry)
                    case Theirs(content):
                        stored = Stored(decode(content, entry.version), len(content))
            except UnavailableError as error:
                if error.definite and attempt == 1:  # a write before this one might still arrive
                    raise
                # A lost response, another's entry, or nothing at all: only a look tells. And even a look that finds
                # nothing proves nothing, while a late request may still arrive: the same write, tried again, is what
                # settles it, for only one of the two can be the first.
                answer = self._read_back(entry.version)
                if isinstance(answer, UnavailableError) or (answer is None and attempt == ATTEMPTS):
                    return Unknown(entry, error)
                stored = answer
        try:
            self._absorb_all([stored])
        except UnavailableError as error:
            return Unknown(entry, error)
        return self._outcome(entry)

    def secure(self, entry: Entry) -> None:
        """See that an entry which was read is durable: who wrote it may have failed just before it was.

        Raises:
            UnavailableError: the store failed; nobody knows whether the entry outlives a power cut.
        """
        if isinstance(self.storage.put_if_absent(entry_path(entry.version), encode(entry)), Theirs):
            _log.debug("timeline entry %d is stored in other bytes than this Lockstep writes", entry.version)

    def mark_published(self, version: int) -> None:
        """Note that every commit of the entries 0 … `version` is published; `write_hint` tells others.

        Raises:
            InvalidError: the version is beyond the known head.
        """
        with self._lock:
            head = self._head.version
            if version > head:
                raise InvalidError(f"cannot mark database version {version} published: the newest known is {head}")
            self._published_through = max(self._published_through, version)

    def write_hint(self) -> None:
        """Write what is known now, if that is more than was written, at best effort."""
        with self._lock:
            hint = Hint(
                version=self._head.version,
                published_through=self._published_through,
                checkpoint=UNSET if self._checkpoint is None else self._checkpoint,
            )
            if hint == self._hint:
                return
            self._hint = hint
        try:
            write_hint(self.storage, hint)
        except UnavailableError as error:
            with self._lock:
                self._hint = None
            _log.warning("the timeline's hint was not written; opening it will cost more until it is: %s", error)

    @property
    def checkpoint_due(self) -> int | None:
        """The newest version that a checkpoint should be of and that is not known to have one."""
        state = self._due_state
        return None if state is None else state.database.version

    def write_checkpoint(self) -> None:
        """Write the checkpoint that is due, if one is; after a failure, the next one is that of a later version.

        Raises:
            UnavailableError: the store failed. The timeline is as good as before.
            CorruptTimelineError: the version's entry is not there any more, or cannot be read.
        """
        with self._lock:
            state, self._due_state = self._due_state, None
        if state is None:
            return
        version = state.database.version
        data = self.storage.get(entry_path(version))
        if data is None or decode(data, version).committed_at != state.database.committed_at:
            raise CorruptTimelineError(f"{entry_path(version)} is gone, or is not what was read before. {RESTORE}")
        manifest = self._checkpoints.write(state, data)
        with self._lock:
            self._checkpoint = max(version, self._checkpoint or 0)
        self.write_hint()
        self._stand_on(self._checkpoints.state(manifest).database)

    def _stand_on(self, base: Database) -> None:
        """Make the head stand on a checkpoint, with what changed since in memory, and no more what changed before."""
        while (head := self._head).version >= base.version:
            known = range(base.version + 1, head.version + 1)
            again = fold(self._history.scan(self.storage, known, last=head.version), after=base)
            with self._lock:
                if self._head is head:
                    self._head = again
                    if base.version in self._anchors:
                        self._anchors[base.version] = base
                    return

    def _absorb_all(self, new: Sequence[Stored]) -> None:
        """Make the last of some entries that follow the head the head; see `_absorb`."""
        for begin in range(0, len(new), FETCHED_FOR):
            some = new[begin : begin + FETCHED_FOR]
            fetch_for(self._head, [stored.entry for stored in some])
            for stored in some:
                self._absorb(stored)

    def _absorb(self, stored: Stored, after_it: State | None = None) -> None:
        """Make an entry the head, unless another thread already has.

        Args:
            after_it: what the entries up to this one say together, if that is known already: then nothing can go wrong.

        Raises:
            CorruptTimelineError: it does not fit.
            UnavailableError, CorruptTimelineError: what it changes cannot be read, or entries whose commits it moves.
        """
        entry = stored.entry
        now = self._clock()
        while True:
            with self._lock:
                before = State(self._head, self._placements)
            old_head = before.database
            if entry.version <= old_head.version:
                return
            state = after_it or self._after(before, entry)
            with self._lock:
                if self._head is not old_head:
                    continue
                self._history.keep([stored])
                self._take(state.database, state.placements if entry.moved else None)
                if self._writes_checkpoints and entry.version % self._every == 0:
                    self._due_state = State(self._head, self._placements)
            if (far := far_ahead(state.database, now)) and not far_ahead(old_head, now):
                _log.warning("%s", far)

    def _checked(self, entry: Entry, state: State, stamp: datetime) -> tuple[Entry, bytes, State]:
        """Return an entry as readers will see it, its bytes, and what the entries up to it say together.

        What readers would refuse must never be written.

        Raises:
            InvalidError: readers would refuse it.
            UnavailableError, CorruptTimelineError: what it changes cannot be read; nothing was written.
        """
        head = state.database
        if (entry.format, entry.version, entry.committed_at) != (FORMAT, head.version + 1, stamp):
            raise InvalidError(f"entry {head.version + 1} must have the version and the time given to its draft")
        try:
            data = encode(entry)
        except UnicodeEncodeError as error:
            raise InvalidError(f"timeline entry {entry.version} holds text that is not Unicode: {error}") from error
        if len(data) > MAX_ENTRY_BYTES:
            raise InvalidError(
                f"timeline entry {entry.version} would have {len(data)} bytes, more than {MAX_ENTRY_BYTES}: "
                "commit fewer tables, or fewer statements, at once"
            )
        fetch_for(head, [entry])  # what goes wrong with this is not the entry's fault
        try:
            stored = decode(data, entry.version)
            after_it = self._after(state, stored)
        except CorruptTimelineError as error:
            why = error.message.removesuffix(f". {RESTORE}")  # nothing is stored that could be restored
            raise InvalidError(
                f"refused to write an entry that nobody could read, nothing was committed: {why}. Please report it"
            ) from error
        return stored, data, after_it

    def _read_back(self, version: int) -> Stored | UnavailableError | None:
        """Read what has a version now, or the failure after `ATTEMPTS` tries."""
        failure: UnavailableError | None = None
        for _ in range(ATTEMPTS):
            try:
                return read(self.storage, version)
            except UnavailableError as error:
                failure = error
        return failure

    def _outcome(self, entry: Entry) -> AppendOutcome:
        """Tell the outcome of an entry whose version is known to be taken: the transaction's id says by whom."""
        try:
            self.refresh()
        except UnavailableError as error:
            # Who has the version is known; who came later is only good to know.
            _log.info("could not read on after a lost race: %s", error)
        try:
            winners = self.entries(entry.version - 1)
        except UnavailableError as error:
            return Unknown(entry, error)
        ours = next((winner for winner in winners if winner.transaction.id == entry.transaction.id), None)
        if ours is None:
            return Lost()
        try:
            self.secure(ours)
        except UnavailableError as error:
            return Unknown(ours, error)
        return Ratified(ours)


def _needed(hint: Hint | None) -> list[str]:
    """Return the files that opening will ask for if the hint is right, and the first entry that it may not know."""
    if hint is None:
        return []
    candidate = None if hint.checkpoint is UNSET else hint.checkpoint
    manifests = [] if candidate is None or not 0 <= candidate <= hint.version else [manifest_path(candidate)]
    begin = candidate if manifests and candidate is not None else 0
    since = range(begin, min(begin + OPENED_AT_ONCE, hint.version + 1))
    return [*manifests, *map(entry_path, (hint.version, 0, *since, hint.version + 1))]


def _end(storage: Storage, hint: Hint | None, files: Gets) -> Hint:
    """Return where a timeline ends, as far as the hint or a listing tells.

    Raises:
        InvalidError: there is none.
        CorruptTimelineError: entries are lost.
    """
    # What a hint names must be there before anything is built on it.
    if hint is not None and read(files, hint.version) is not None:
        return hint
    numbers = [number for name in storage.list(FOLDER) if (number := version_in(name)) is not None]
    last = max(numbers, default=None)
    if hint is not None and hint.version > max(numbers, default=-1):
        raise lost_entries(hint.version, last)
    if (later := proof_of_later(storage, max(numbers, default=-1))) is not None:
        raise lost_entries(later, last, manifest_path(later))
    if last is None:
        root = storage.url
        raise InvalidError(f"no Lockstep timeline at {root}: make one with `lockstep init {root}`")
    return Hint(version=last)
