"""Publishing: the tables' Delta logs get what the timeline ratified, before anybody reads past it.

A foreign commit, a plain Delta writer's, may take the very version that a ratified commit of ours was meant for. If the
two do not conflict, ours is moved behind it, and an entry of the timeline says so; if they do, the table has diverged:
nothing of either is lost, and whoever touches the table is told. A table whose log is not up to date, for this or
another reason (its folder cannot be written), is set aside until it is: nobody reads it, nobody writes it, and all
other tables go on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from operator import itemgetter

from msgspec import structs

from lockstep.caches import MIB
from lockstep.delta.log import commit_path, log_files
from lockstep.delta.publish import Displaced, content, publish, write_checksums
from lockstep.errors import LockstepError, UnavailableError
from lockstep.forks import Lock, anew_in_forks
from lockstep.lake.behind import Behind
from lockstep.lake.changes import PastChanges
from lockstep.lake.external import Content, ExternalEntries
from lockstep.lake.foreign import LOOK_EVERY
from lockstep.lake.overwritten import Overwritten
from lockstep.lake.policy import Policies
from lockstep.lake.upkeep import Upkeep
from lockstep.storage import Storage
from lockstep.storage.locations import NOT_REGISTERED
from lockstep.storage.outside import check_reach, reaches
from lockstep.timeline.clock import Clock
from lockstep.timeline.database import Database
from lockstep.timeline.entry import NEW, Entry, Table, TableWrite
from lockstep.timeline.hint import HINT
from lockstep.timeline.log import Timeline
from lockstep.timeline.placements import as_ratified
from lockstep.timeline.settlements import refusal
from lockstep.workers import Workers

OWNER_SECONDS = 5
"""So long whoever reads waits for the thread that ratified an entry to publish it, before he does it himself."""

OWNED = 1_000
"""So many of the newest entries may be another thread's to publish; and so many are looked at together."""

LOOKED_AT_BYTES = 16 * MIB
"""And fewer where their commits are large: an entry may have up to 64 MiB of them."""

BEHIND = 3
"""How often a commit is moved behind a foreign one in one go, before its table is set aside."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Progress:
    """What one process knows to be published: all entries up to a version, but for some tables' commits.

    It knows more than the hint says: a table that is set aside holds that up for all.

    Attributes:
        through: the last version of which that is known.
        failures: (version, table id) of the commits that could not be published.
    """

    through: int = NEW
    failures: frozenset[tuple[int, str]] = frozenset()

    def has(self, commit: tuple[int, str]) -> bool:
        """Tell whether a commit is known to be published."""
        return commit[0] <= self.through and commit not in self.failures

    def has_table(self, table: Table) -> bool:
        """Tell whether a table is known to be published, whichever entry up to the one of its last change wrote it."""
        return table.since <= self.through and not any(
            id_ == table.id and version <= table.since for version, id_ in self.failures
        )

    def union(self, other: Progress) -> Progress:
        """Return what both know together: two threads may have begun from the same and come to different ends."""
        if not (self.failures or other.failures):
            return self if self.through >= other.through else other
        failures = {each for each in self.failures | other.failures if not (self.has(each) or other.has(each))}
        return Progress(max(self.through, other.through), frozenset(failures))


@dataclass(frozen=True, slots=True)
class Finished:
    """What publishing one entry came to: the ids of the tables whose commits are published, and of the others."""

    published: frozenset[str]
    failed: frozenset[str]


class Publisher:
    """Publishes what one timeline ratified; safe to share between threads."""

    def __init__(
        self,
        storage: Storage,
        timeline: Timeline,
        past: PastChanges,
        external: ExternalEntries,
        policies: Policies,
        *,
        clock: Clock,
        pool: Workers,
        upkeep: Upkeep,
    ) -> None:
        """Publish into the logs of a timeline's tables, as many at a time as the pool has threads."""
        self._storage = storage
        self._timeline = timeline
        self._external = external
        self._clock = clock
        self._pool = pool
        self._upkeep = upkeep
        self.overwritten = Overwritten(storage, timeline, self.has_published)
        self._behind = Behind(storage, timeline, past, policies, self.overwritten)
        self._progress = Progress()
        self._finished: dict[int, Finished] = {}
        self._errors: dict[tuple[int, str], LockstepError] = {}
        self._lock = Lock()
        self.begin_anew()
        anew_in_forks(self)

    def begin_anew(self) -> None:
        """Wait for nobody, in a process that was forked: the threads that are about to publish are its parent's."""
        self._owners: dict[str, threading.Event] = {}

    def publish_all(self, *, files: int | None = None) -> Database:
        """Return the newest database version, with all that it ratified published, but for tables set aside.

        Args:
            files: how many files of the timeline are read on at most, see `Timeline.refresh`.

        Raises:
            UnavailableError, CorruptTimelineError: as the timeline and the store say.
        """
        while True:
            self._timeline.refresh(files=files)
            # Other threads may read on, or ratify, at any moment: what is returned is what was published, no later
            # head, which would show tables at versions that their logs may not have yet.
            moves, head = self._timeline.moves, self._timeline.head
            self._wait_for_owners(head)
            progress = self._current_progress()
            set_aside: dict[str, LockstepError] = {}
            failures: set[tuple[int, str]] = set()
            for entry, writes in self._unseen(progress, head):
                # What follows a commit that could not be published waits for it: published first, it could be moved.
                held = {write.id: set_aside[write.id] for write in writes if write.id in set_aside}
                going = [write for write in writes if write.id not in held]
                errors = held | self._publish_entry(entry, going, fresh=False)
                set_aside |= errors
                failures |= {(entry.version, id_) for id_ in errors}
                if published := [write for write in writes if write.id not in errors]:
                    self._upkeep.add(partial(self.write_checksums, entry, published), keys=[w.id for w in published])
            self._note(Progress(head.version, frozenset(failures)))
            if self._timeline.moves is not moves:
                continue  # the head does not say yet where these tables are now
            if not set_aside and self._timeline.published_through < head.version:
                self._timeline.mark_published(head.version)
                self._upkeep.add_once(self._timeline.write_hint, HINT)
            self._forget(head, set_aside)
            # Part of the value, since the next refresh may mend what this head tells of: then the table is elsewhere.
            return structs.replace(head, set_aside=set_aside) if set_aside else head

    def _current_progress(self) -> Progress:
        """Return what this process knows to be published."""
        return self._progress.union(Progress(self._timeline.published_through))

    def _note(self, progress: Progress) -> None:
        with self._lock:
            self._progress = self._current_progress().union(progress)
            self._finished = {v: finished for v, finished in self._finished.items() if v > self._progress.through}

    def _note_entry(self, version: int, finished: Finished) -> None:
        """Note what one entry's publishing came to; those of one group come to their ends in any order."""
        with self._lock:
            self._finished[version] = finished
            progress = self._current_progress()
            while progress.through + 1 in self._finished:
                version = progress.through + 1
                failed = {(version, id_) for id_ in self._finished[version].failed}
                progress = Progress(version, progress.failures | failed)
            all_failures = progress.failures
        self._note(progress)
        if not all_failures and self._timeline.published_through < progress.through:
            self._timeline.mark_published(progress.through)

    def has_published(self, table: Table) -> bool:
        """Tell whether this process knows that a table's log has what the timeline says of it.

        Nobody writes a table before its last commit is published, but it may be renamed, or that commit be moved: so
        that the entry is done with which changed it last means nothing where another one wrote it.
        """
        with self._lock:
            progress, finished = self._current_progress(), self._finished.get(table.since)
        return progress.has_table(table) or (finished is not None and table.id in finished.published)

    def _has(self, commit: tuple[int, str]) -> bool:
        """Tell whether this process knows a commit, (version, table id), to be published."""
        with self._lock:
            progress, finished = self._current_progress(), self._finished.get(commit[0])
        return progress.has(commit) or (finished is not None and commit[1] in finished.published)

    # --- who ratified publishes ---------------------------------------------------------------------------------------

    def expect(self, transaction: str) -> None:
        """Note that the caller is about to ratify a transaction's entry, and to publish it: nobody else needs to."""
        with self._lock:
            self._owners[transaction] = threading.Event()

    def expect_no_more(self, transaction: str) -> None:
        """Note that the caller has published the entry, or has not ratified it."""
        with self._lock:
            owner = self._owners.pop(transaction, None)
        if owner is not None:
            owner.set()

    def _wait_for_owners(self, head: Database) -> None:
        """Let the threads of this process publish what they ratified up to a database version, for some time."""
        if not self._owners:
            return
        deadline = time.monotonic() + OWNER_SECONDS
        after = max(self._current_progress().through, head.version - OWNED, head.expired.first_kept - 1)
        for entry in self._timeline.scan(min(after, head.version), head.version):
            if (owner := self._owners.get(entry.transaction.id)) is not None:
                owner.wait(max(0, deadline - time.monotonic()))

    def _pending(self, progress: Progress, head: Database) -> Iterator[tuple[Entry, list[TableWrite]]]:
        """Yield what is not known to be published up to a database version, in order."""
        for version, writes in groupby(sorted(progress.failures), key=itemgetter(0)):
            if head.expired.first_kept <= version <= head.version:
                ids = {id_ for _, id_ in writes}
                [entry] = self._timeline.entries(version - 1, version)
                yield entry, [write for write in entry.writes if write.id in ids]
        # What has expired was published before that, by whomever.
        through = max(progress.through, head.expired.first_kept - 1)
        for entry in self._timeline.scan(min(through, head.version), head.version):
            yield entry, entry.writes

    def _unseen(self, progress: Progress, head: Database) -> Iterator[tuple[Entry, list[TableWrite]]]:
        """Yield of what is pending what one look at each table does not show to be published.

        Nobody ratifies a table's next version before he has seen the last one published, so where the newest commit is
        in its place, those before it were, too.
        """
        failed = {id_ for _, id_ in progress.failures}
        pending = self._pending(progress, head)
        while some := _some(pending):
            newest = {write.id: (entry, write) for entry, writes in some for write in writes}
            looks = [(entry, write) for id_, (entry, write) in newest.items() if id_ not in failed]
            are_there = self._pool.map(lambda each: self._is_there(*each), looks, quick=self._storage.quick)
            published = {write.id for (_, write), is_there in zip(looks, are_there, strict=True) if is_there}
            for entry, writes in some:
                if unseen := [write for write in writes if write.id not in published]:
                    yield entry, unseen

    def _is_there(self, entry: Entry, write: TableWrite) -> bool:
        """Tell whether a look shows that a write is published; if it does not, that means nothing."""
        versions = self._timeline.versions(write, entry.version)
        if entry.kind != "transaction" or versions != as_ratified(write) or write.commits[-1].inline is None:
            return False
        if not reaches(self._storage, write.location):
            return False  # `publish_write` says so, and only this table is set aside
        try:
            data = self._storage.get(commit_path(write.location, versions[-1]))
        except LockstepError:
            return False  # likewise, be it that a link leads away from there, or a location is not mounted
        return data is not None and data == content(self._storage, write.location, write.commits[-1])

    def _forget(self, head: Database, set_aside: Mapping[str, LockstepError]) -> None:
        """Forget why commits were not published that are by now, or whose tables are in the catalog no more."""
        for commit in self._errors.copy():
            is_dropped = commit[1] not in set_aside and head.table_by_id(commit[1]) is None
            if is_dropped or self._has(commit):
                self._errors.pop(commit, None)

    def refuse_aside(self, table: Table) -> None:
        """Raise why a table is set aside now, if it is: what another thread has published since refuses nobody.

        Raises:
            ForeignCommitError: it has diverged, see above; or was settled since, and its log is another side's there.
            UnavailableError, CorruptTimelineError: what it has ratified could not be published.
        """
        for commit, error in sorted(self._errors.copy().items(), key=itemgetter(0)):
            if commit[1] == table.id and not self._has(commit):
                raise error.again() from error
        if (refused_past := refusal(self._timeline.head, table)) is not None:
            raise refused_past

    def try_publish(self, entry: Entry, *, fresh: bool) -> bool:
        """Publish a ratified entry, and tell whether that is done. It raises nothing.

        The entry is committed: whatever goes wrong now delays its readers, and no more.

        Args:
            fresh: whether the caller has just ratified it. COMMIT may also be asked again, hours later, whether it
                landed: then others may have published it, and Delta's clean-up may have been there. The entry's time
                alone does not tell, for it is that of the writer's clock, or of one before it that was ahead.
        """
        try:
            fresh = fresh and self._clock() - entry.committed_at < LOOK_EVERY
            errors = self._publish_entry(entry, entry.writes, fresh=fresh)
            published = frozenset(write.id for write in entry.writes) - errors.keys()
            self._note_entry(entry.version, Finished(published, frozenset(errors)))
            return not errors
        except Exception:  # noqa: BLE001 (logged; after ratification nothing may fail)
            _log.exception("database version %d is committed; it is not published yet", entry.version)
            return False
        finally:
            self.expect_no_more(entry.transaction.id)

    def is_published(self, entry: Entry, write: TableWrite) -> bool:
        """Tell whether a write of an entry that was tried is in its table's log, as far as is known."""
        return self._has((entry.version, write.id)) and not self._is_dropped(write)

    def _publish_entry(self, entry: Entry, writes: Sequence[TableWrite], *, fresh: bool) -> dict[str, LockstepError]:
        """Publish an entry's commits, its tables in parallel; return by table id why one is not in its log now."""
        if entry.kind != "transaction":
            return {}
        errors = self._pool.map(lambda write: self._publish(entry, write, fresh), writes)
        return {write.id: error for write, error in zip(writes, errors, strict=True) if error is not None}

    def _publish(self, entry: Entry, write: TableWrite, fresh: bool) -> LockstepError | None:
        try:
            self.publish_write(entry, write, fresh=fresh)
        except LockstepError as error:
            return self._set_aside(entry, write, error)
        except Exception as error:  # noqa: BLE001 (logged, and told to whoever uses the table; no other is concerned)
            _log.exception("table %s: database version %d could not be published", write.name, entry.version)
            what = f"table {write.name}: database version {entry.version} cannot be published ({error!r}): report it"
            return self._set_aside(entry, write, LockstepError(what))
        self._errors.pop((entry.version, write.id), None)
        return None

    def publish_write(self, entry: Entry, write: TableWrite, *, fresh: bool = False) -> None:
        """Publish a write, behind foreign commits if need be.

        Raises:
            ForeignCommitError: it conflicts with them, or had been published before they took its version.
            InvalidError (42501): the lake may not have a table there, see `check_reach`.
            UnavailableError, CorruptTimelineError: as the store and the logs say.
        """
        check_reach(self._storage, write.location, f"table {write.name} at ")
        if not fresh and self._is_dropped(write) and log_files(self._storage, write.location).is_empty:
            return  # somebody removed the folder of a dropped table: nobody brings it back
        if not fresh and self._is_anothers(self._timeline.head, write):
            return  # the table was dropped, and its folder taken in as it is: see `lockstep.recovery.settle`
        for _ in range(BEHIND):
            versions = self._timeline.versions(write, entry.version)
            self._behind.refuse_again(entry, write, versions)
            prove = partial(self._prove, entry, write, fresh)
            outcome = publish(self._storage, write, versions, fresh=fresh, prove=prove)
            if outcome is None:
                return
            # Who else found the same may have moved the commit, and published it: what then follows the foreign
            # commits is ours. It said so in the timeline first, so what a refresh does not tell has not happened to
            # any file that was seen before. The hint may say that others published it; a move that it knows of is in
            # the timeline by then, so it is read before that.
            self._timeline.look_for_published()
            self._timeline.refresh()
            if self._is_anothers(self._timeline.head, write):
                return
            write = structs.replace(write, name=self._timeline.head.current_name(write))
            if self._timeline.versions(write, entry.version) == versions:
                if self._was_published(entry, write, versions[-1]):
                    raise self.overwritten.written_over(entry, write, outcome.kept, outcome.first)
                self._move_behind(entry, write, versions, outcome)
        raise UnavailableError(
            f"table {write.name}: database version {entry.version} is committed, but other Delta writers took the next "
            f"table version {BEHIND} times before it could be published; the next statement tries again"
        )

    def _prove(self, entry: Entry, write: TableWrite, fresh: bool, version: int) -> None:
        """See that a commit may be written: into a store to be trusted, and behind what it was ratified behind.

        Whoever has just ratified it has looked at that then. Of what others did it has to be sure that it stays: were a
        part of its commits in the tables' logs after a power cut, and its entry not, they would be a plain writer's.
        """
        self._timeline.prove_store()
        self._timeline.secure_through(entry.version)
        if not fresh:
            self.overwritten.check_base(entry, write, version)

    def _was_published(self, entry: Entry, write: TableWrite, version: int) -> bool:
        """Tell whether a write is known to have been in its table's log, though another commit may be there now.

        Nobody ratifies a table's next version, or takes it in, before he has seen the last one published.
        """
        table = self._timeline.head.table_by_id(write.id)
        is_followed = table is not None and table.version > version
        return is_followed or self._current_progress().has((entry.version, write.id))

    def _is_anothers(self, head: Database, write: TableWrite) -> bool:
        """Tell whether a write's folder is another table's by now, whose log is as it was taken in.

        One that was settled stays so when that other table is dropped or given back: then it is whoever's it is.
        """
        if write.id in head.settled:
            return True
        table = head.table_at(write.location)
        return table is not None and table.id != write.id

    def _is_dropped(self, write: TableWrite) -> bool:
        return self._timeline.head.table_by_id(write.id) is None

    def _set_aside(self, entry: Entry, write: TableWrite, error: LockstepError) -> LockstepError | None:
        """Remember why a write cannot be published, and return it; None if it is published, or as good as that."""
        commit = entry.version, write.id
        if isinstance(error, UnavailableError) and self._has(commit):
            return None  # another thread's request was answered while ours was not
        # What this process may not look at, or cannot now, another may yet have to publish: a hint that says it is
        # published would keep that one from it.
        is_known = not isinstance(error, UnavailableError) and error.sqlstate != NOT_REGISTERED
        if is_known and self._is_dropped(write):
            _log.warning("dropped table %s: database version %d: %s", write.name, entry.version, error)
            return None  # nobody will miss it, and a person who dropped the table has decided
        if commit not in self._errors:
            if not is_known:
                _log.warning(
                    "database version %d is committed, but not in the log of table %s yet; "
                    "the next use tries again: %s",
                    entry.version,
                    write.name,
                    error,
                )
            else:
                _log.error("table %s is set aside; database version %d: %s", write.name, entry.version, error)
        kept = error.again()  # what was raised holds all frames that it came through, and so the transaction
        self._errors[commit] = kept
        return kept

    def write_checksums(self, entry: Entry, writes: Sequence[TableWrite]) -> None:
        """Write the checksums of an entry's published writes, at best effort: readers do without."""
        if entry.kind == "transaction":
            self._pool.map(partial(self._write_checksums, entry), writes)

    def _write_checksums(self, entry: Entry, write: TableWrite) -> None:
        if self._is_anothers(self._timeline.head, write):
            return
        versions = self._timeline.versions(write, entry.version)
        try:
            write_checksums(self._storage, write, versions)
        except LockstepError as error:
            _log.info("table %s goes without a checksum of version %d: %s", write.name, versions[-1], error)
        except Exception:  # noqa: BLE001 (logged; advice that is written after a commit, which may not fail for it)
            _log.exception("table %s goes without a checksum of version %d", write.name, versions[-1])

    def _move_behind(self, entry: Entry, write: TableWrite, versions: Sequence[int], displaced: Displaced) -> None:
        """Say in the timeline that a ratified commit comes after the foreign ones that took its version.

        Raises:
            ForeignCommitError: it cannot, for the two conflict, or the table is to have no foreign commits.
        """
        placed = self._behind.place(entry, write, versions, displaced)
        if placed is None:
            return
        if placed.message:
            _log.warning("%s", placed.message)

        def moved(head: Database) -> Content | None:
            # Moved by another one, it is in the log behind the foreign commits, as one of those that were seen there.
            is_moved = self._timeline.versions(write, entry.version) != versions
            is_needless = is_moved or self._is_anothers(head, write)
            return None if is_needless else Content(moves=[placed.move], message=placed.message)

        self._external.append(moved)


def _some(pending: Iterator[tuple[Entry, list[TableWrite]]]) -> list[tuple[Entry, list[TableWrite]]]:
    """Return the next of what is pending that are looked at together."""
    some: list[tuple[Entry, list[TableWrite]]] = []
    size = 0
    for entry, writes in islice(pending, OWNED):
        some.append((entry, writes))
        size += sum(len(line) for write in writes for commit in write.commits for line in commit.inline or ())
        if size > LOOKED_AT_BYTES:
            break
    return some
