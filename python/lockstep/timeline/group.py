"""Appending to a timeline, THE commit, and group commit: what waits for the same put becomes one file.

While an entry is on its way to the store, other threads of this process come with theirs. Each of them was judged
against the head, and is judged again behind those that it would follow, by its own `Behind` and without a look at the
store. They wait together until the put before theirs has succeeded, and are then put as one file: all of them are
ratified, or none. So a store that takes 30 ms for a request does not bound a process to one commit in 30 ms. What lands
in one file is a part of one serial order like any other (DeWitt et al., Implementation techniques for main memory
database systems, 1984, section 5.2: group commit).

Nothing depends on that there are groups. Other processes are met as ever, by put-if-absent of the next file.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, TypeAlias

from cachetools import LRUCache

from lockstep.arbiters import Arbiter
from lockstep.errors import (
    CorruptTimelineError,
    ExpiredError,
    InvalidError,
    LockstepError,
    SnapshotTooOldError,
    UnavailableError,
    UnsupportedError,
)
from lockstep.forks import anew_in_forks
from lockstep.storage import Mine, Theirs
from lockstep.storage.proof import prove_or_look
from lockstep.timeline.ahead import fetch_for
from lockstep.timeline.arbitration import Arbitration, refusal
from lockstep.timeline.clock import to_millisecond
from lockstep.timeline.entry import FORMAT, MAX_ENTRY_BYTES, NEW, Arbitrated, Entry
from lockstep.timeline.fence import now
from lockstep.timeline.files import MAX_GROUP, RESTORE, File, decode, decode_all, encode, encode_all, entry_path, find
from lockstep.timeline.growth import Growing
from lockstep.timeline.layered_map import LayeredMap
from lockstep.timeline.outcomes import AppendOutcome, Behind, Lost, MakeEntry, Ratified, Unknown
from lockstep.timeline.past import Past
from lockstep.timeline.state import State

ATTEMPTS = 3
"""How often an append is tried, and how often its outcome is read back, before it is `Unknown`."""

PATIENCE_SECONDS = 1
"""After so long, another thread than the one that began a group puts it, if nobody does."""

REMEMBERED = 1_000
"""So many of the transactions that this process appended last are known as its own."""

_TICK = timedelta(milliseconds=1)

_log = logging.getLogger(__name__)


@dataclass(eq=False, frozen=True, slots=True)
class _Member:
    """An entry of a group.

    Attributes:
        entry: as readers will see it.
        data: its bytes.
        state: what the entries up to this one say together.
    """

    entry: Entry
    data: bytes
    state: State


@dataclass(frozen=True, slots=True)
class _Refused:
    """The store said no before it wrote anything."""

    error: LockstepError


@dataclass(frozen=True, slots=True)
class _Doubtful:
    """Nobody knows whether the file was written."""

    error: UnavailableError


_Result: TypeAlias = Literal["landed", "taken", "not put"] | _Refused | _Doubtful
"""What became of a group. `taken`: there is a file of that name, and what is in it has been read."""


@dataclass(eq=False, slots=True)
class _Group:
    """Entries that become one file; all but `ended` and `result` only under the queue's lock.

    Attributes:
        base: what the first of them follows.
        prior: the group whose file must be there first.
        is_open: whether others may still come along.
        leader: stands for the call of `_lead` that puts it, or is about to.
        result: what became of it; to be read once `ended` is set.
    """

    base: State
    prior: _Group | None
    members: list[_Member] = field(default_factory=list)
    is_open: bool = True
    leader: object = None
    result: _Result = "not put"
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def state(self) -> State:
        """What the entries up to the last of these say together."""
        return self.members[-1].state

    @property
    def first(self) -> int:
        """The version of the first entry."""
        return self.base.database.version + 1

    def has_room(self, other: _Member) -> bool:
        """Tell whether an entry may come along; older Locksteps are to know those of a group by its format."""
        members = [*self.members, other]
        size = sum(len(member.data) + 1 for member in members) + 64  # and what is around them
        is_known = all(member.entry.format == FORMAT for member in members)
        return self.is_open and is_known and len(members) <= MAX_GROUP and size <= MAX_ENTRY_BYTES


class Appending(Growing):
    """A timeline that this process appends to; safe to share between threads.

    Attributes:
        arbiter_name: who decides this lake's entries, as its entry 0 says; None: its store does.
        arbitration: how this process has them decided there; None if the store does, or it may not.
        refusal: why this process may not append; empty if it may.
    """

    arbiter_name: Arbitrated | None = None
    arbitration: Arbitration | None = None
    refusal: str = ""

    def _begin_appending(self) -> None:
        """Make the queue."""
        self._last_doubtful = NEW  # the highest name of a file of which nobody knew whether it was written
        self._is_proven = self.storage.is_proven_by_use
        self.begin_anew()
        anew_in_forks(self)

    def begin_anew(self) -> None:
        """Have an empty queue: at most one group that is being put, and one behind it that others join.

        In a process that was forked, what is in it is its parent's to put, and what that appended is another's.
        """
        self._turn = threading.Condition()
        self._groups: list[_Group] = []
        self._own: LRUCache[str, None] = LRUCache(REMEMBERED)

    def _arbitrate(self, first: Entry, arbiter: Arbiter | None) -> None:
        """Have entries decided by the lake's arbiter, which its entry 0 names, if that is the one that is given."""
        self.arbiter_name = first.arbiter
        self.refusal = refusal(first.arbiter, arbiter, self.storage.url)
        if arbiter is not None and first.arbiter is not None and not self.refusal:
            self.arbitration = Arbitration(self.storage, arbiter, first.transaction.id, first.arbiter.server)

    def prove_store(self) -> None:
        """See that of several writers of an object one wins here, once for this timeline.

        Where an arbiter decides, nothing that matters depends on that.

        Raises:
            UnsupportedError, UnavailableError, CorruptTimelineError: see `lockstep.storage.proof.prove`.
        """
        if not self._is_proven:
            prove_or_look(self.storage, is_arbitrated=self.arbiter_name is not None)
            self._is_proven = True

    def append(self, draft: MakeEntry, after: int, behind: Behind | None = None) -> AppendOutcome:
        """Try to make an entry the next version; THE commit.

        Args:
            draft: called with a version, `after` + 1 unless `behind` says more, and the commit time, which follow the
                last entry's; called again if the attempt comes to nothing.
            after: the database version that the change was judged against. Another thread may have read on since: then
                the answer is `Lost`, for the change was not judged against what it read.
            behind: judges the change against what this process itself has appended since, or is about to. None: then
                the change waits for that, and has lost to it.

        Returns:
            Ratified: the entry is stored, by this call or by an earlier one with the same transaction id.
            Lost: it is not, and cannot be at this version any more.
            Unknown: either may be true. Trying again with the same transaction id, and the same `after`, is safe.

        Raises:
            InvalidError: the entry is too large, or does not fit the database; nothing was written.
            UnsupportedError: the store lets more than one writer of an object win, or the lake's arbiter is another one
                than this process was given, or may forget; nothing was written.
            UnavailableError: the store said no before it wrote anything (no space, no permission); nothing was written.
            SnapshotTooOldError: what comes after the head has expired; nothing was committed.
            ArbiterError: the arbiter does not fit the store; nothing of this was committed.
            CorruptTimelineError: what has the version cannot be read.
        """
        if self.refusal:
            raise UnsupportedError(self.refusal)
        self.prove_store()
        if not 0 <= after <= self._head.version:
            raise InvalidError(f"cannot append after database version {after}: there are 0 to {self._head.version}")
        if isinstance(self._head.tables, LayeredMap):
            # What its names need of a checkpoint is read here, and not while others wait for the queue.
            fetch_for(self._head, [draft(after + 1, self._head.committed_at + _TICK)])
        while True:
            with self._turn:
                place = self._place(draft, after, behind)
            match place:
                case None:
                    return self._outcome(draft(after + 1, to_millisecond(self._clock())), after)
                case _Group() as group:
                    self._wait_for(group)
                case group, member:
                    if group.members[0] is member:
                        self._lead(group)
                    self._wait_for(group)
                    if (outcome := self._became(group, member, after)) is not None:
                        return outcome

    def secure(self, entry: Entry) -> None:
        """See that an entry which was read is durable: who wrote it may have failed just before it was.

        Raises:
            UnavailableError: the store failed; nobody knows whether the entry outlives a power cut.
            CorruptTimelineError: it is gone.
        """
        if (file := find(self.storage, entry.version)) is None:
            raise CorruptTimelineError(f"{entry_path(entry.version)} was read a moment ago, and is gone")
        if isinstance(self.storage.put_if_absent(entry_path(file.first), file.data), Theirs):
            raise CorruptTimelineError(f"{entry_path(file.first)} is another file than it was a moment ago")

    # --- the queue, under its lock ------------------------------------------------------------------------------------

    def _place(self, draft: MakeEntry, after: int, behind: Behind | None) -> tuple[_Group, _Member] | _Group | None:
        """Return an entry's place, or a group to wait for before it is asked again; None if another has the version."""
        with self._lock:
            head = State(self._head, self._placements)
        last = self._groups[-1] if self._groups else None
        if last is not None and not self._may_land(last, head):
            return last
        is_ahead = last is not None and last.state.database.version > head.database.version
        base = last.state if last is not None and is_ahead else head
        make = draft if after == base.database.version else self._judged_again(behind, after, base)
        if make is None:
            return last if is_ahead and after == head.database.version else None
        stamp = max(to_millisecond(self._clock()), base.database.committed_at + _TICK)
        member = self._checked(make(base.database.version + 1, stamp), base, stamp)
        self._own[member.entry.transaction.id] = None
        if last is None or not last.is_open:
            last = _Group(base, prior=last, members=[member])
            self._groups.append(last)  # last of all: an interrupt may come behind each call
        elif not last.has_room(member):
            return self._groups[0]
        else:
            last.members.append(member)
        return last, member

    def _may_land(self, group: _Group, head: State) -> bool:
        """Tell whether nothing that has been read says that a group cannot land, or must be judged again."""
        if head.database.version < group.first:
            return group.prior is None or self._may_land(group.prior, head)
        [winner] = self.entries(group.first - 1, group.first)
        return winner.transaction.id == group.members[0].entry.transaction.id

    def _judged_again(self, behind: Behind | None, after: int, base: State) -> MakeEntry | None:
        """Judge a change against what this process has appended, or is about to, since it was judged."""
        if behind is None:
            return None
        entries = self.entries(min(after, self._head.version), self._head.version)
        last = entries[-1].version if entries else after
        waiting = [member.entry for group in self._groups for member in group.members]
        entries += [entry for entry in waiting if entry.version > last]
        if not all(entry.transaction.id in self._own for entry in entries):
            return None  # what others appended has been neither looked at nor published
        return behind(entries, base.database)

    def _checked(self, entry: Entry, state: State, stamp: object) -> _Member:
        """Return an entry as readers will see it, its bytes, and what the entries up to it say together.

        What readers would refuse must never be written.

        Raises:
            InvalidError: readers would refuse it.
            UnavailableError, CorruptTimelineError: what it changes cannot be read; nothing was written.
        """
        version = state.database.version + 1
        if (entry.format, entry.version, entry.committed_at) != (entry.needed_format, version, stamp):
            raise InvalidError(f"entry {version} must have its format, and the version and the time given to its draft")
        try:
            data = encode(entry)
        except UnicodeEncodeError as error:
            raise InvalidError(f"timeline entry {entry.version} holds text that is not Unicode: {error}") from error
        if len(data) > MAX_ENTRY_BYTES:
            raise InvalidError(
                f"timeline entry {entry.version} would have {len(data)} bytes, more than {MAX_ENTRY_BYTES}: "
                "commit fewer tables, or fewer statements, at once"
            )
        fetch_for(state.database, [entry])  # what goes wrong with this is not the entry's fault
        try:
            stored = decode(data, entry.version)
            return _Member(stored, data, self._after(state, stored))
        except CorruptTimelineError as error:
            why = error.message.removesuffix(f". {RESTORE}")  # nothing is stored that could be restored
            raise InvalidError(
                f"refused to write an entry that nobody could read, nothing was committed: {why}. Please report it"
            ) from error

    # --- the put ------------------------------------------------------------------------------------------------------

    def _wait_for(self, group: _Group) -> None:
        """Wait until a group has ended; one that nobody puts, as who began it was interrupted, is put here."""
        while not group.ended.wait(PATIENCE_SECONDS):
            self._lead(group)

    def _lead(self, group: _Group) -> None:
        """Put a group once the one before it has been put, unless somebody else does.

        Whatever happens, nobody waits for it after that.
        """
        me = object()
        try:
            with self._turn:
                if group.leader is not None:
                    return
                group.leader = me
            with self._turn:
                self._turn.wait_for(lambda: self._groups[0] is group)
                group.is_open = False
                follows = group.prior is None or group.prior.result == "landed"
                group.prior = None
            if follows and self._head.version == group.base.database.version:
                group.result = _Doubtful(UnavailableError("the thread that wrote the entry was interrupted"))
                group.result = self._put(group)
        finally:
            if group.leader is me:
                self._end(group)

    def _end(self, group: _Group) -> None:
        """Let the next group be put, and those go on who wait for this one. What interrupts that is raised after it."""
        came: BaseException | None = None
        while not group.ended.is_set():
            try:
                if isinstance(group.result, _Doubtful):
                    self._last_doubtful = max(self._last_doubtful, group.first)
                with self._turn:
                    if group in self._groups:
                        self._groups.remove(group)
                    self._turn.notify_all()
                group.ended.set()
            except (KeyboardInterrupt, SystemExit) as error:
                came = error
        if came is not None:
            raise came

    def _put(self, group: _Group) -> _Result:
        data = encode_all([member.data for member in group.members])
        sent = now()
        self._puts_begun = begun = self._puts_begun + 1  # groups are put one after the other
        put: Mine | Theirs | None = None
        for attempt in range(1, ATTEMPTS + 1):
            try:
                put = self._decide(group, data)
                self._make_sure(group.first - 1)  # the name may be free because what had it has expired
                match put:
                    case Mine():
                        self._sure_at = max(self._sure_at, sent)
                        file = File(group.first, data, [member.entry for member in group.members])
                        self._absorb_file(file, [member.state for member in group.members])
                        if group.first > self._last_doubtful:  # else an earlier put of these bytes may have landed
                            self._put_landed = begun
                        return "landed"
                    case Theirs(content):
                        return self._read_taken(group, File(group.first, content, decode_all(content, group.first)))
            except LockstepError as error:
                if isinstance(error, SnapshotTooOldError) and self._expired_since(group.members[0].entry, group.first):
                    return _Doubtful(UnavailableError(f"entry {group.first} was written, and has expired since"))
                if not isinstance(error, UnavailableError):
                    return _Refused(error)
                # A write before this one might still arrive; and once this one is answered, something else has failed.
                if error.definite and attempt == 1 and put is None:
                    return _Refused(error)
                # A lost response, another's entry, or nothing at all: only a look tells. And even a look that finds
                # nothing proves nothing, while a late request may still arrive: the same write, tried again, is what
                # settles it, for only one of the two can be the first.
                try:
                    answer = self._read_back(group.first)
                except CorruptTimelineError as corrupt:
                    return _Refused(corrupt)
                if isinstance(answer, File):
                    return self._read_taken(group, answer)
                if isinstance(answer, UnavailableError) or attempt == ATTEMPTS:
                    return _Doubtful(error)
        raise AssertionError("the last attempt returns")

    def _decide(self, group: _Group, data: bytes) -> Mine | Theirs:
        """Make the file of a group the one of its versions, unless another is: the store decides, or the arbiter."""
        if self.arbitration is None:
            put = self.storage.put_if_absent(entry_path(group.first), data)
            if isinstance(put, Mine):
                self._durable_through = max(self._durable_through, group.state.database.version)
            return put
        return self.arbitration.put(group.first, group.state.database.version, data)

    def _expired_since(self, entry: Entry, version: int) -> bool:
        """Tell whether an entry landed after all, long ago: who let it expire wrote that into the history first."""
        try:
            past = Past(self.storage, self._history).newest_first(version + 1, version, version - 1)
            return any(each.transaction.id == entry.transaction.id for each in past)
        except LockstepError:
            return True  # nobody knows

    def _read_taken(self, group: _Group, file: File) -> _Result:
        """Take in what has the version that a group was for."""
        try:
            self._make_sure(file.first - 1)
            self._absorb_files([file])
        except UnavailableError as error:
            return _Doubtful(error)
        except (CorruptTimelineError, ExpiredError) as error:
            if isinstance(error, ExpiredError) and self._expired_since(group.members[0].entry, group.first):
                return _Doubtful(UnavailableError(f"entry {group.first} was written, and has expired since"))
            return _Refused(error)
        return "taken"

    def _read_back(self, first: int) -> File | UnavailableError | None:
        """Read what has a version now, or the failure after `ATTEMPTS` tries."""
        failure: UnavailableError | None = None
        for _ in range(ATTEMPTS):
            try:
                return find(self.storage, first)
            except UnavailableError as error:
                failure = error
        return failure

    # --- what became of it --------------------------------------------------------------------------------------------

    def _became(self, group: _Group, member: _Member, after: int) -> AppendOutcome | None:
        """Return what became of an entry whose group has ended; None if it was not put, and nothing is decided."""
        match group.result:
            case "landed":
                return Ratified(member.entry)
            case "taken":
                return self._outcome(member.entry, after)
            case "not put":
                return None
            case _Refused(error):
                raise error.again() from error
            case _Doubtful(error):
                return Unknown(member.entry, error)

    def _outcome(self, entry: Entry, after: int) -> AppendOutcome:
        """Tell the outcome of an entry whose version is known to be taken: the transaction's id says by whom.

        Args:
            entry: what was to be written.
            after: the database version that it was judged against.
        """
        try:
            self.refresh()
        except UnavailableError as error:
            # Who has the version is known; who came later is only good to know.
            _log.info("could not read on after a lost race: %s", error)
        try:
            winners = self.entries(after)
        except UnavailableError as error:
            return Unknown(entry, error)
        except SnapshotTooOldError:
            if self._expired_since(entry, entry.version):
                return Unknown(entry, UnavailableError(f"entry {entry.version} was written, and has expired since"))
            raise
        ours = next((winner for winner in winners if winner.transaction.id == entry.transaction.id), None)
        if ours is None:
            return Lost()
        try:
            self.secure(ours)
        except UnavailableError as error:
            return Unknown(ours, error)
        return Ratified(ours)
