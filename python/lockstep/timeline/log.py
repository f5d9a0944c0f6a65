"""The timeline: the numbered files that are the database's history, and the one write that commits a transaction.

    <root>/_lockstep/timeline/00000000000000000000.json     entry 0, an empty database
    <root>/_lockstep/timeline/00000000000000000001.json     entry 1, …
    <root>/_lockstep/timeline/_latest                       a hint: {"version": 1, "published_through": 1}

An entry is immutable and made by put-if-absent, so of all who want to be version n exactly one is. Several that this
process appends at once may share a file (`lockstep.timeline.group`). The hint is written
at best effort and never believed further than a look confirms: without it, opening lists the folder. It is written
after the entry that it names, so one that names an entry that is not there proves that an entry was lost.

The timeline knows entries and how they fold. It knows nothing of what a table's commits say.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import suppress

from immutables import Map
from msgspec import UNSET, structs

from lockstep.arbiters import Arbiter
from lockstep.arguments import takes
from lockstep.errors import (
    CorruptTimelineError,
    ExpiredError,
    InvalidError,
    LockstepError,
    UnavailableError,
)
from lockstep.storage import Mine, Storage, Theirs
from lockstep.storage.proof import prove_or_look
from lockstep.timeline.ahead import Ahead
from lockstep.timeline.arbitration import Arbitration
from lockstep.timeline.base import base_path, write_base
from lockstep.timeline.checkpoint import Checkpoints, proof_of_later, versions
from lockstep.timeline.clock import Clock, far_ahead, to_millisecond, utc_now
from lockstep.timeline.database import Database
from lockstep.timeline.entry import ARBITER_FORMAT, FORMAT, Arbitrated, Entry, Expired, NamespaceDdl, TransactionInfo
from lockstep.timeline.fence import fence, now
from lockstep.timeline.files import FOLDER, RESTORE, Gets, encode, entry_path, find, gone, read, read_known, version_in
from lockstep.timeline.fold import DEFAULT_NAMESPACE, apply, fold
from lockstep.timeline.group import Appending
from lockstep.timeline.hint import Hint, lost_entries, read_hint, write_hint
from lockstep.timeline.history import History
from lockstep.timeline.known import CHECKPOINT_EVERY
from lockstep.timeline.manifest import manifest_path
from lockstep.timeline.parts import UnusableError
from lockstep.timeline.placements import Placements
from lockstep.timeline.segment import SEGMENT_VERSIONS
from lockstep.timeline.state import State

OPENED_AT_ONCE = 512
"""So many entries are read before they are folded, when a timeline is opened."""

OPENINGS = 3
"""So often is it tried to open a timeline whose versions expire meanwhile."""

_log = logging.getLogger(__name__)


class Timeline(Appending):
    """One lake's timeline as far as this process has read it; safe to share between threads.

    Get one from `create` or `open`. `head`, and what is known of published and moved commits, never touch the store.
    Everything else may. `refresh` and `append` always do. The entries and databases of older versions are read when
    somebody asks for them, unless they are still in memory. The lock covers only the state and is never held during a
    request, so a slow store delays only those who ask it.
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
        self._segment_due: int | None = None
        self._checkpoint: int | None = None
        self._hint: Hint | None = None  # as this process wrote it last
        self._published_through = max(published_through, state.database.expired.first_kept - 1)
        self._begin_appending()
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
        arbiter: Arbiter | None = None,
    ) -> Timeline:
        """Write entry 0 and open. A timeline that exists, or that another process makes meanwhile, is only opened.

        Args:
            arbiter: who decides the entries of the lake, now and for ever; None: its store does.

        Raises:
            UnsupportedError: the store lets more than one writer of an object win, see `lockstep.storage.proof`; or the
                arbiter may forget what it decides.
            UnavailableError: the store, or the arbiter, failed; calling again is safe.
            CorruptTimelineError: see `open`; or the arbiter knows another lake at this root.
        """
        # There was one: if its entries are lost, a new one must not hide that.
        was_there = read_hint(storage) is not None or versions(storage) or fence(storage)
        if was_there or (arbiter is not None and storage.exists(entry_path(0))):
            return cls.open(storage, clock=clock, checkpoint_every=checkpoint_every, arbiter=arbiter)
        decided_by = None
        if arbiter is not None:
            decided_by = Arbitrated(kind=arbiter.kind, name=arbiter.name, server=arbiter.check())
        now = to_millisecond(clock())
        entry = Entry(
            format=FORMAT if arbiter is None else ARBITER_FORMAT,
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
            arbiter=decided_by,
        )
        prove_or_look(storage, is_arbitrated=arbiter is not None)
        if arbiter is None or decided_by is None:
            outcome = storage.put_if_absent(entry_path(0), encode(entry))
        else:
            outcome = Arbitration(storage, arbiter, entry.transaction.id, decided_by.server).put(0, 0, encode(entry))
        match outcome:
            case Mine():
                _log.info("made the timeline of %s", storage.url)
            case Theirs():
                _log.debug("%s has a timeline already", storage.url)
        return cls.open(storage, clock=clock, checkpoint_every=checkpoint_every, arbiter=arbiter)

    @classmethod
    @takes(storage=Storage, checkpoint_every=int)
    def open(
        cls,
        storage: Storage,
        *,
        clock: Clock = utc_now,
        checkpoint_every: int = CHECKPOINT_EVERY,
        arbiter: Arbiter | None = None,
    ) -> Timeline:
        """Read the newest checkpoint and the entries since; without checkpoints, read all entries.

        Args:
            checkpoint_every: `write_checkpoint` has something to write at versions that are multiples of this; if it is
                0, never.
            arbiter: who decides the lake's entries, if it has an arbiter. It is not asked before something is appended.
                Without the right arbiter, the timeline can only be read: see `refusal`.

        Raises:
            InvalidError: there is no timeline at this root.
            UnsupportedError: the store lets more than one writer of an object win.
            UnavailableError: the store failed.
            ExpiredError: `OPENINGS` times, entries that are needed expired and were deleted in the meantime.
            CorruptTimelineError: an entry that is needed is missing, cannot be read, or does not fit the others.
        """
        timeline = cls._opened(storage, clock, checkpoint_every, arbiter)
        try:
            timeline.prove_store()
        except UnavailableError as error:
            # Who may only read cannot race, and a store that is full or busy lets nobody: that is no reason not to
            # read. Should this process append or publish after all, it races then.
            _log.info("%s was not raced, for it cannot be written now: %s", storage.url, error)
        return timeline

    @classmethod
    def _opened(cls, storage: Storage, clock: Clock, checkpoint_every: int, arbiter: Arbiter | None) -> Timeline:
        for _ in range(OPENINGS - 1):
            with suppress(ExpiredError):
                return cls._open(storage, clock, checkpoint_every, arbiter)
        return cls._open(storage, clock, checkpoint_every, arbiter)

    @classmethod
    def _open(cls, storage: Storage, clock: Clock, checkpoint_every: int, arbiter: Arbiter | None) -> Timeline:
        began = now()
        hint = read_hint(storage)
        files = Ahead(storage, _needed(hint))
        gone_below = fence(storage)
        if hint is not None and hint.version < gone_below:
            hint, files = None, Ahead(storage, ())  # it has expired: the entries up to it begin with nothing any more
        hint = _end(storage, hint, files)
        history = History()
        checkpoints = Checkpoints(storage, history, every=checkpoint_every or CHECKPOINT_EVERY)
        checkpoints.expire(Expired(first_kept=gone_below))
        candidate = None if hint.checkpoint is UNSET else hint.checkpoint
        state = None
        if candidate is not None or gone_below or hint.version >= CHECKPOINT_EVERY:  # else it is not worth a listing
            state = checkpoints.newest(hint.version, candidate, files, at_least=gone_below)
        if state is None and gone_below:
            state = checkpoints.newest_base(range(gone_below, hint.version + 1))
            if state is None:
                raise CorruptTimelineError(
                    f"entries below {gone_below} have expired, and no checkpoint and no base of a version since then "
                    f"can be used: expected {base_path(gone_below)}. {RESTORE}"
                )
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
        timeline._checkpoint, timeline._sure_at = checkpoint, began
        timeline._arbitrate(first.entry, arbiter)
        history.keep([first])
        new = range(timeline.head.version + 1, hint.version + 1)
        for begin in range(0, len(new), OPENED_AT_ONCE):
            numbers = new[begin : begin + OPENED_AT_ONCE]
            some = files if all(entry_path(n) in files for n in numbers) else Ahead(storage, map(entry_path, numbers))
            timeline._absorb_all(read_known(some, numbers, hint.version, readers=1))
        timeline._head_file = hint.first
        timeline._read_on(files)
        return timeline

    def refresh(self, *, files: int | None = None) -> Iterator[Entry]:
        """Read what was committed since, and return the entries that are new since this call began, oldest first.

        Those are handed out a few at a time, as `scan` does.

        If the entries after the head have expired, the timeline begins anew, as `open` does. No entries lead from the
        old head to the new one then, so nothing is returned.

        Raises:
            UnavailableError, CorruptTimelineError: see `Growing.refresh`, and `open`.
        """
        try:
            new = super().refresh(files=files)
        except ExpiredError as error:
            _log.info("%s", error)
            new = iter(())
            self._begin_anew()
        if self._checkpoints.is_left(self._head):
            self._move_on()
        return new

    def _begin_anew(self) -> None:
        fresh = type(self).open(self.storage, clock=self._clock, checkpoint_every=self._every)
        with self._lock:
            if fresh.head.version > self._head.version:
                self._cache.clear()
                self._anchors.clear()
                self._head_file = fresh.head_file
                self._take(fresh.head, fresh.placements)

    def _move_on(self) -> None:
        """Have the head stand on what does not go: who only reads writes no checkpoint on which it would stand.

        At best effort: until it succeeds, each `refresh` tries it.
        """
        try:
            if (state := self._checkpoints.instead_of(self._head)) is not None:
                self._stand_on(state.database)
        except LockstepError as error:
            _log.info("database version %d stands on a checkpoint that has expired: %s", self._head.version, error)

    @property
    def published_through(self) -> int:
        """Every commit of the entries 0 … this is known to be published.

        It saves looking, and comes from the hint. If a commit turns out to be missing in a table's log, it counts as
        unpublished, whatever this says. No version expires before its commits are published.
        """
        return self._published_through

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

    def look_for_published(self) -> None:
        """Note what the hint says by now of what is published, as others may have written since this was opened.

        Raises:
            UnavailableError: the store failed.
        """
        hint = read_hint(self.storage)
        if hint is not None:
            self.mark_published(min(hint.published_through, self._head.version))

    def write_hint(self) -> None:
        """Write the hint, at best effort, if more is known now than was written."""
        with self._lock:
            hint = Hint(
                version=self._head.version,
                published_through=self._published_through,
                checkpoint=UNSET if self._checkpoint is None else self._checkpoint,
                file=UNSET if self._head_file == self._head.version else self._head_file,
            )
            if hint == self._hint:
                return
        if not self.storage.is_writable(FOLDER):  # of HDFS the name node is asked
            return
        with self._lock:
            self._hint = hint
        try:
            self.secure_through(hint.version)  # one that names an entry which is gone is a proof that it was lost
            write_hint(self.storage, hint)
        except UnavailableError as error:
            with self._lock:
                self._hint = None
            _log.warning("the timeline's hint was not written; opening it will cost more until it is: %s", error)

    def secure_version(self, version: int) -> None:
        """Make sure that a version can be read without the entries before it: by its base, and by its checkpoint too.

        Raises:
            InvalidError, ExpiredError, UnavailableError, CorruptTimelineError: it cannot be read, or not be written.
        """
        state, file = self.state_at(version), find(self.storage, version)
        if file is None:
            raise gone(self.storage, version, self.head.version)
        self._checkpoints.write(state, file)
        try:
            write_base(self.storage, state, file)
        except UnusableError as error:
            raise UnavailableError(f"{base_path(version)} was written, and cannot be read: {error}") from error

    @property
    def segment_due(self) -> int | None:
        """The last version of a segment of the history that this process has seen the end of, and not written."""
        return self._segment_due

    def write_due_segment(self) -> None:
        """Write the segment that is due, if any, and some of the earlier ones that are missing.

        Raises:
            UnavailableError, CorruptTimelineError: see `write_segments`; the next call writes what is missing.
        """
        with self._lock:
            due, self._segment_due = self._segment_due, None
        if due is not None:
            self.write_segments(due)

    @property
    def checkpoint_due(self) -> int | None:
        """The newest version that should have a checkpoint and is not known to have one."""
        state = self._due_state
        return None if state is None else state.database.version

    def write_checkpoint(self) -> None:
        """Write the checkpoint that is due, if any; after a failure, the next checkpoint is of a later version.

        If the version has expired in the meantime, as it may have while the process was stopped, nothing is written.

        Raises:
            UnavailableError: the store failed. The timeline is as good as before.
            CorruptTimelineError: the version's entry is missing and has not expired, or cannot be read.
        """
        with self._lock:
            state, self._due_state = self._due_state, None
        if state is None:
            return
        version = state.database.version
        file = find(self.storage, version)
        if file is None:
            if isinstance(missing := gone(self.storage, version, self.head.version), ExpiredError):
                return
            raise missing
        entry = file.entry(version)
        if entry is None or entry.committed_at != state.database.committed_at:
            raise CorruptTimelineError(f"{entry_path(version)} is not what was read before. {RESTORE}")
        manifest = self._checkpoints.write(state, file)
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
                        self._anchor(base)
                    return

    def _take(self, head: Database, places: Placements | None) -> None:
        super()._take(head, places)
        self._published_through = max(self._published_through, head.expired.first_kept - 1)
        if self._writes_checkpoints and head.version % self._every == 0:
            self._due_state = State(self._head, self._placements)
        if self._writes_checkpoints and (head.version + 1) % SEGMENT_VERSIONS == 0:
            self._segment_due = head.version


def _needed(hint: Hint | None) -> list[str]:
    """Return the files that opening will ask for if the hint is right, and the first entry that it may not know."""
    if hint is None:
        return []
    candidate = None if hint.checkpoint is UNSET else hint.checkpoint
    manifests = [] if candidate is None or not 0 <= candidate <= hint.version else [manifest_path(candidate)]
    begin = candidate if manifests and candidate is not None else 0
    since = range(begin, min(begin + OPENED_AT_ONCE, hint.version + 1))
    return [*manifests, *map(entry_path, (hint.first, 0, *since, hint.version + 1))]


def _end(storage: Storage, hint: Hint | None, files: Gets) -> Hint:
    """Return where a timeline ends, as far as the hint or a listing tells.

    Raises:
        InvalidError: there is none.
        ExpiredError: so many were committed while this looked that some have expired.
        CorruptTimelineError: entries are lost.
    """
    # What a hint names must be there before anything is built on it.
    if hint is not None:
        file = read(files, hint.first)
        if file is None or file.last < hint.version:
            file = find(files, hint.version)
        if file is not None:
            return structs.replace(hint, version=file.last, file=file.first)
    numbers = [number for name in storage.list(FOLDER) if (number := version_in(name)) is not None]
    last_file = read(storage, max(numbers)) if numbers else None
    last = None if last_file is None else last_file.last
    newest = -1 if last is None else last
    if hint is not None and hint.version > newest:
        raise lost_entries(hint.version, last)
    if (later := proof_of_later(storage, newest)) is not None:
        # It was looked for behind the listing of the entries, and what was committed in between is not lost.
        if (file := find(storage, later)) is not None:
            return Hint(version=file.last, file=file.first)
        if isinstance(expired := gone(storage, later, later), ExpiredError):
            raise expired
        raise lost_entries(later, last, manifest_path(later))
    if last_file is None:
        root = storage.url
        raise InvalidError(f"no Lockstep timeline at {root}: make one with `lockstep init {root}`")
    return Hint(version=last_file.last, file=last_file.first)
