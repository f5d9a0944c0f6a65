"""Whether a ratified commit may come after plain Delta writers' that took its table version, and where it is then.

They are judged one after the other, as the entries that would take them in: one that conflicts is enough, and of the
others nothing stays in memory. Why a commit cannot come after them is remembered as long as the log has what said so.
Publishing is tried again by each statement of each process, about whichever table; it must cost them no more the
longer the log goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from cachetools import LRUCache

from lockstep.conflict.serializable import Antidependency, judge
from lockstep.conflict.writes import Changes, Conflict, first_conflict
from lockstep.delta.actions import parse
from lockstep.delta.footprint import Footprint, footprint
from lockstep.delta.log import commit_path, digest, last_published, parsed, state_at
from lockstep.delta.pruning.row_sets import EVERY_ROW, NO_ROW
from lockstep.delta.publish import Displaced, content, contents
from lockstep.errors import ForeignCommitError, LockstepError, UnavailableError
from lockstep.forks import Lock
from lockstep.lake.changes import PastChanges, reads_of
from lockstep.lake.overwritten import Overwritten
from lockstep.lake.policy import Policies, Policy, refused, settled_policy, undecided, warning
from lockstep.storage import Storage
from lockstep.timeline.entry import Entry, Moved, Name, TableWrite
from lockstep.timeline.log import Timeline

REMEMBERED = 10_000
"""Of so many commits it is remembered why they cannot come after foreign ones."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a ratified commit is behind foreign ones.

    Attributes:
        move: what the timeline is to say.
        message: what people are told, if anything.
    """

    move: Moved
    message: str = ""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a commit cannot come after foreign ones.

    Attributes:
        versions: the table versions that it was to have.
        name: what its table was called.
        digests: by path, those of the foreign commits that said so.
        error: what they said.
    """

    versions: tuple[int, ...]
    name: Name
    digests: dict[str, str]
    error: LockstepError


class Behind:
    """Finds places behind foreign commits; safe to share between threads."""

    def __init__(
        self, storage: Storage, timeline: Timeline, past: PastChanges, policies: Policies, overwritten: Overwritten
    ) -> None:
        """Find places in the logs of one timeline's tables."""
        self._storage = storage
        self._timeline = timeline
        self._past = past
        self._policies = policies
        self._overwritten = overwritten
        self._refusals: LRUCache[tuple[int, str], _Refusal] = LRUCache(REMEMBERED)
        self._lock = Lock()

    def refuse_again(self, entry: Entry, write: TableWrite, versions: Sequence[int]) -> None:
        """Raise why a commit could not come after foreign ones, if that was found before and they are still there.

        Args:
            versions: the table versions that it is to have.

        Raises:
            LockstepError: what `place` raised.
            UnavailableError: the store failed.
        """
        with self._lock:
            refusal = self._refusals.get((entry.version, write.id))
        if refusal is None or (refusal.versions, refusal.name) != (tuple(versions), self._name(write)):
            return
        for path, known in refusal.digests.items():
            data = self._storage.get(path)
            if data is None or digest(data) != known:
                return
        raise refusal.error.again() from refusal.error

    def place(self, entry: Entry, write: TableWrite, versions: Sequence[int], displaced: Displaced) -> Placed | None:
        """Return where a ratified commit is once it comes after the foreign ones that took its version.

        Args:
            entry, write: the commit.
            versions: the table versions that it was to have.
            displaced: which of them is taken.

        Returns:
            None if what took it is gone, or somebody has published the commit, or moved it, meanwhile.

        Raises:
            ForeignCommitError: it cannot come after them, for they conflict, or the table is to have no foreign
                commits; or what is before them is not what it was ratified behind.
            UnavailableError, CorruptTimelineError: as the store and the log say.
        """
        first, path = displaced.first, commit_path(write.location, displaced.first)
        data = self._storage.get(path)
        last = last_published(self._storage, write.location, first - 1)
        if data is None or last < first or data == contents(self._storage, write, versions)[displaced.kept]:
            return None
        # Who moved the commit said so before it published it there: if the timeline does not say so after a look at the
        # log, nothing that was seen in it is ours.
        self._timeline.refresh()
        if self._timeline.versions(write, entry.version) != tuple(versions):
            return None
        policy = self._settled_policy(write) or self._policies.at(write.id, write.location, first - 1, last)
        if policy == "refuse":
            where = f", and ours, which was ratified for that version, is in entry {entry.version}"
            error = refused(write.name, path, where)
            self._remember(entry, write, versions, {path: data}, error)
            raise error
        self._overwritten.check_base(entry, write, first)
        self._judge(entry, write, versions, range(first, last + 1), data)
        # Those that are kept are in the log, and have been read there.
        kept = displaced.kept
        move = Moved(id=write.id, entry=entry.version, to_version=last + len(write.commits) - kept, kept=kept)
        return Placed(move, warning(write.name, path) if policy == "warn" else "")

    def _settled_policy(self, write: TableWrite) -> Policy | None:
        """Return the policy that counts behind what settles a table; None if a write does not settle one."""
        data = content(self._storage, write.location, write.commits[0])
        return None if data is None else settled_policy(parse(data))

    def _judge(self, entry: Entry, write: TableWrite, versions: Sequence[int], foreign: range, first: bytes) -> None:
        """See that a ratified commit does not conflict with foreign ones, of which the first says what `first` does.

        Raises:
            ForeignCommitError: it does, with one of them.
            UnavailableError, CorruptTimelineError: one cannot be read.
        """
        judged = _Judged(entry, write, foreign.start, self._past.of_write(entry, write))
        for version in foreign:
            path = commit_path(write.location, version)
            data = first if version == foreign.start else self._storage.get(path)
            try:
                before = partial(state_at, self._storage, write.location, version - 1)
                judged.take(version, footprint(parsed(path, data), before))
            except UnavailableError:
                raise
            except LockstepError as error:
                said = {commit_path(write.location, foreign.start): first, path: data}
                self._remember(entry, write, versions, said, error)
                raise
        judged.warn()

    def _remember(
        self,
        entry: Entry,
        write: TableWrite,
        versions: Sequence[int],
        said: Mapping[str, bytes | None],
        error: LockstepError,
    ) -> None:
        """Remember why a commit cannot come after foreign ones, by the files that said so, if all are there."""
        digests = {path: digest(data) for path, data in said.items() if data is not None}
        if len(digests) == len(said):
            with self._lock:
                # What was raised holds all frames that it came through.
                refusal = _Refusal(tuple(versions), self._name(write), digests, error.again())
                self._refusals[entry.version, write.id] = refusal

    def _name(self, write: TableWrite) -> Name:
        """Return what a table is called now; a message that says another name helps nobody to settle it."""
        return self._timeline.head.current_name(write)


class _Judged:
    """A ratified commit, judged against one foreign commit after the other."""

    def __init__(self, entry: Entry, write: TableWrite, first: int, ours: Footprint) -> None:
        """Judge a commit that was ratified for the version `first`, and touched what `ours` says."""
        self._entry = entry
        self._write = write
        self._first = first
        self._mine = Changes(
            entry.transaction.id,
            writes={write.id: ours},
            reads=reads_of(entry, {write.id: ours}),
            names={write.id: write.name},
            isolation=entry.transaction.isolation,
        )
        self._overtaken: Antidependency | None = None
        self._has_no_order = False

    def take(self, version: int, foreign: Footprint) -> None:
        """Judge it against the next one.

        Raises:
            ForeignCommitError: the two conflict.
        """
        entry, write = self._entry, self._write
        theirs = Changes(
            "of a plain Delta writer",
            writes={write.id: foreign},
            reads={write.id: NO_ROW if foreign.blind else EVERY_ROW},
            names=self._mine.names,
        )
        if (conflict := first_conflict(self._mine, theirs)) is not None:
            raise ForeignCommitError(
                f"table {write.name}: version {self._first} was written by a plain Delta writer while database "
                f"version {entry.version} (transaction {entry.transaction.id}), ratified for the same table version, "
                f"was about to be published, and the two conflict ({conflict.rule}). Neither is lost: the foreign "
                f"commit is {commit_path(write.location, version)}, ours is in timeline entry {entry.version}. "
                f"{undecided(write.name)}"
            )
        if self._mine.isolation == "SERIALIZABLE" and not self._has_no_order:
            found = judge(self._mine, [theirs], self._overtaken)
            self._has_no_order = isinstance(found, Conflict)
            self._overtaken = None if isinstance(found, Conflict) else found

    def warn(self) -> None:
        """Say so if both stay and each may have read what the other changed.

        Ours is committed, theirs never asked, and the table is sound with both: to stop it would undo neither.
        """
        if self._has_no_order:
            _log.warning(
                "table %s: version %d was written by a plain Delta writer while database version %d (transaction %s) "
                "was about to be published. Both stay. Each may have read what the other changed, so there may be no "
                "order of the two that gives the same",
                self._write.name,
                self._first,
                self._entry.version,
                self._entry.transaction.id,
            )
