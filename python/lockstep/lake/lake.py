"""A lake as this process sees it: the timeline, and the tables' Delta logs kept in step with it.

The timeline says what is true; a table's log is where others read it. The two meet here:

    publish   what the timeline ratified and a log does not have yet, before anybody reads past it
    absorb    what a log has and the timeline does not know: a plain Delta writer's commits, as an `external` entry

In between, a foreign commit may take the very version that a ratified commit of ours was meant for. If the two do not
conflict, ours is moved behind it, and an entry says so; if they do, the table has diverged: nothing of either is lost,
and whoever touches the table is told. A table whose log is not up to date, for this or another reason (its folder
cannot be written), is set aside until it is: nobody reads it, nobody writes it, and all other tables go on.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter

from msgspec import structs

from lockstep.conflict.serializable import judge
from lockstep.conflict.writes import Changes, Conflict, check
from lockstep.delta.actions import UNKNOWN, Action, Footprint, footprint, overwrites, parse
from lockstep.delta.combine.row_tracking import by_commit, copies_own_rows
from lockstep.delta.log import commit_path, log_files, read_published, state_at, was_published
from lockstep.delta.pruning.row_sets import EVERY_ROW, NO_ROW, Rows, rows_of
from lockstep.delta.publish import Displaced, content, foreign_footprint, publish, write_checksums
from lockstep.errors import ForeignCommitError, LockstepError, UnavailableError
from lockstep.lake.foreign import LOOK_EVERY, Foreign, outdated
from lockstep.retry import RACE, Backoff, Contention
from lockstep.storage import Storage
from lockstep.timeline.clock import Clock
from lockstep.timeline.entry import NEW, Database, Entry, Moved, Table, TableWrite
from lockstep.timeline.log import Timeline
from lockstep.workers import Workers

WORKERS = 8
"""Threads that publish or probe tables of one entry at the same time."""

ABSORB_AT_ONCE = 1000
"""How many tables are probed for foreign commits at BEGIN; a lake with more finds them as its tables are touched."""

BEHIND = 3
"""How often a commit is moved behind a foreign one in one go, before its table is set aside."""

CACHED_CHANGES = 256

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Progress:
    """What one process knows to be published: all entries up to a version, but for some tables' commits.

    It knows more than the hint says: a table that is set aside holds that up for all.

    Attributes:
        through: the last version of which that is known.
        failed: (version, table id) of the commits that could not be published.
    """

    through: int = NEW
    failed: frozenset[tuple[int, str]] = frozenset()

    def has(self, commit: tuple[int, str]) -> bool:
        """Tell whether a commit is known to be published."""
        return commit[0] <= self.through and commit not in self.failed

    def merged(self, other: Progress) -> Progress:
        """Return what both know together: two threads may have begun from the same and come to different ends."""
        failed = {each for each in self.failed | other.failed if not (self.has(each) or other.has(each))}
        return Progress(max(self.through, other.through), frozenset(failed))


class Lake:
    """One lake; safe to share between threads."""

    def __init__(
        self,
        storage: Storage,
        timeline: Timeline,
        *,
        clock: Clock,
        new_id: Callable[[], str],
        backoff: Backoff = RACE,
    ) -> None:
        """Meet a timeline and its tables' logs; `backoff` says how often an `external` entry is tried."""
        self.storage = storage
        self.timeline = timeline
        self.clock = clock
        self.new_id = new_id
        self.contention = Contention()
        self._foreign = Foreign(storage, timeline, clock=clock, new_id=new_id, backoff=backoff)
        self._progress = Progress()
        self._aside: dict[str, tuple[int, LockstepError]] = {}
        self._cache: OrderedDict[int, Changes] = OrderedDict()
        self._lock = threading.Lock()
        self._pool = Workers(WORKERS, "lockstep-lake")

    # --- the timeline's side ------------------------------------------------------------------------------------------

    def refresh(self) -> Database:
        """Return the newest database version, with all that it ratified published, save for what it `set_aside`.

        Raises:
            UnavailableError, CorruptTimelineError: as the timeline and the store say.
        """
        while True:
            self.timeline.refresh()
            # Other threads may read on, or ratify, at any moment: what is returned is what was published, no later
            # head, which would show tables at versions that their logs may not have yet.
            moved, head = self.timeline.moved, self.timeline.head
            known = self._known()
            failed: dict[str, LockstepError] = {}
            unpublished: set[tuple[int, str]] = set()
            for entry, writes in self._pending(known, head):
                errors = self._publish_entry(entry, writes, fresh=False, checksums=True)
                failed |= errors
                unpublished |= {(entry.version, id_) for id_ in errors}
            self._note(Progress(head.version, frozenset(unpublished)))
            if self.timeline.moved is not moved:
                continue  # the head does not say yet where these tables are now
            if not failed and self.timeline.published_through < head.version:
                self.timeline.mark_published(head.version)
            self._forget_dropped(head, failed)
            # Part of the value, since the next refresh may mend what this head tells of: then the table is elsewhere.
            return structs.replace(head, set_aside=failed) if failed else head

    def _known(self) -> Progress:
        """Return what this process knows to be published."""
        return self._progress.merged(Progress(self.timeline.published_through))

    def _note(self, progress: Progress) -> None:
        with self._lock:
            self._progress = self._known().merged(progress)

    def _pending(self, known: Progress, head: Database) -> Iterator[tuple[Entry, list[TableWrite]]]:
        """Yield what is not known to be published up to a database version, in order."""
        for version, writes in groupby(sorted(known.failed), key=itemgetter(0)):
            if version <= head.version:
                ids = {id_ for _, id_ in writes}
                [entry] = self.timeline.entries(version - 1, version)
                yield entry, [write for write in entry.writes if write.id in ids]
        for entry in self.timeline.entries(min(known.through, head.version), head.version):
            yield entry, entry.writes

    def _forget_dropped(self, head: Database, failed: Mapping[str, LockstepError]) -> None:
        """Forget why tables were set aside, and when they were looked at, that are in the catalog no more."""
        for id_ in self._aside.keys() - failed.keys():
            if head.table_by_id(id_) is None:
                self._aside.pop(id_, None)
        self._foreign.forget_dropped(head)

    def check(self, table: Table) -> None:
        """Raise why a table is set aside now, if it is.

        Raises:
            ForeignCommitError: it has diverged, see above.
            UnavailableError, CorruptTimelineError: what it has ratified could not be published.
        """
        if (found := self._aside.get(table.id)) is not None:
            raise found[1].again() from found[1]

    def check_reaches(self, table: Table, version: int) -> None:
        """Raise if a table's log ends before a version that the timeline has.

        Delta, when it is told that a version is taken, looks in the log for what took it, and tries the same version
        again as long as there is nothing.

        Raises:
            CorruptTimelineError: it does: files are lost, or the folder is an older copy.
        """
        if not was_published(self.storage, table.location, version):
            raise outdated(table, commit_path(table.location, version))

    def try_publish(self, entry: Entry, *, fresh: bool, checksums: bool = True) -> bool:
        """Publish a ratified entry, and tell whether that is done. It raises nothing.

        The entry is committed: whatever goes wrong now delays its readers, and no more.

        Args:
            fresh: whether the caller has just ratified it. COMMIT may also be asked again, hours later, whether it
                landed: then others may have published it, and Delta's clean-up may have been there. The entry's time
                alone does not tell, for it is that of the writer's clock, or of one before it that was ahead.
            checksums: write the versions' checksums too; Delta itself does after an autocommitted statement.
        """
        try:
            fresh = fresh and self.clock() - entry.committed_at < LOOK_EVERY
            failed = self._publish_entry(entry, entry.writes, fresh=fresh, checksums=checksums)
            known = self._known()
            if known.through == entry.version - 1:
                self._note(Progress(entry.version, known.failed | {(entry.version, id_) for id_ in failed}))
            if failed:
                return False
            if self.timeline.published_through == entry.version - 1:
                self.timeline.mark_published(entry.version)
            return True
        except Exception:  # noqa: BLE001 (logged; after ratification nothing may fail)
            _log.exception("database version %d is committed; it is not published yet", entry.version)
            return False

    def _publish_entry(
        self, entry: Entry, writes: Sequence[TableWrite], *, fresh: bool, checksums: bool
    ) -> dict[str, LockstepError]:
        """Publish an entry's commits, its tables in parallel; return by table id why one is not in its log now."""
        if entry.kind != "transaction":
            return {}
        done = self._pool.map(lambda write: self._publish(entry, write, fresh, checksums), writes)
        return {write.id: error for write, error in zip(writes, done, strict=True) if error is not None}

    def _publish(self, entry: Entry, write: TableWrite, fresh: bool, checksums: bool) -> LockstepError | None:
        try:
            versions = self._published(entry, write, fresh=fresh)
        except LockstepError as error:
            return self._set_aside(entry, write, error)
        except Exception as error:  # noqa: BLE001 (logged, and told to whoever uses the table; no other is concerned)
            _log.exception("table %s: database version %d could not be published", write.name, entry.version)
            what = f"table {write.name}: database version {entry.version} cannot be published ({error!r}): report it"
            return self._set_aside(entry, write, LockstepError(what))
        if self._aside.get(write.id, (entry.version,))[0] == entry.version:
            self._aside.pop(write.id, None)
        if checksums and versions is not None:
            self._write_checksums(write, versions)
        return None

    def _published(self, entry: Entry, write: TableWrite, *, fresh: bool = False) -> tuple[int, ...] | None:
        """Publish a write, behind foreign commits if need be, and return the version of each of its commits.

        None for a dropped table whose folder somebody removed: nobody brings it back.
        """
        if not fresh and self._is_dropped(write) and log_files(self.storage, write.location).is_empty:
            return None
        for _ in range(BEHIND):
            versions = self.timeline.versions(write, entry.version)
            outcome = publish(self.storage, write, versions, fresh=fresh)
            if not isinstance(outcome, Displaced):
                return versions
            # Who else found the same may have moved the commit, and published it: what then follows the foreign
            # commits is ours. It said so in the timeline first, so what a refresh does not tell has not happened to
            # any file that was seen before.
            self.timeline.refresh()
            if self.timeline.versions(write, entry.version) == versions:
                self._move_behind(entry, write, outcome)
        raise UnavailableError(
            f"table {write.name}: database version {entry.version} is committed, but other Delta writers took the next "
            f"table version {BEHIND} times before it could be published; the next statement tries again"
        )

    def _is_dropped(self, write: TableWrite) -> bool:
        return self.timeline.head.table_by_id(write.id) is None

    def _set_aside(self, entry: Entry, write: TableWrite, error: LockstepError) -> LockstepError | None:
        """Remember why a write cannot be published, and return it; None if that is as good as published."""
        if not isinstance(error, UnavailableError) and self._is_dropped(write):
            _log.warning("dropped table %s: database version %d: %s", write.name, entry.version, error)
            return None  # nobody will miss it, and a person who dropped the table has decided
        if self._aside.get(write.id, (NEW,))[0] != entry.version:
            _log.error("table %s is set aside; database version %d: %s", write.name, entry.version, error)
        self._aside[write.id] = entry.version, error
        return error

    def _write_checksums(self, write: TableWrite, versions: Sequence[int]) -> None:
        try:
            write_checksums(self.storage, write, versions)
        except LockstepError as error:
            _log.info("table %s goes without a checksum of version %d: %s", write.name, versions[-1], error)
        except Exception:  # noqa: BLE001 (logged; advice that is written after a commit, which may not fail for it)
            _log.exception("table %s goes without a checksum of version %d", write.name, versions[-1])

    def _move_behind(self, entry: Entry, write: TableWrite, displaced: Displaced) -> None:
        """Say in the timeline that a ratified commit comes after the foreign ones that took its version.

        Raises:
            ForeignCommitError: it cannot, for the two conflict.
        """
        ours = self._footprint(entry, write)
        mine = Changes(
            entry.transaction.id,
            writes={write.id: ours},
            reads=_reads(entry, {write.id: ours}),
            names={write.id: write.name},
            isolation=entry.transaction.isolation,
        )
        theirs = Changes(
            "of a plain Delta writer",
            writes={write.id: displaced.foreign},
            reads={write.id: NO_ROW if displaced.foreign.blind else EVERY_ROW},
            names=mine.names,
        )
        if (conflict := check(mine, theirs)) is not None:
            raise ForeignCommitError(
                f"table {write.name}: version {displaced.first} was written by a plain Delta writer while database "
                f"version {entry.version} (transaction {entry.transaction.id}), ratified for the same table version, "
                f"was about to be published, and the two conflict ({conflict.rule}). Neither is lost: the foreign "
                f"commit is {commit_path(write.location, displaced.first)}, ours is in timeline entry {entry.version}. "
                "The table cannot be used until a person decides."
            )
        # Ours is committed, theirs never asked, and the table is sound with both: to stop it would undo neither.
        if mine.isolation == "SERIALIZABLE" and isinstance(judge(mine, [theirs]), Conflict):
            _log.warning(
                "table %s: version %d was written by a plain Delta writer while database version %d (transaction %s) "
                "was about to be published. Both stay. Each may have read what the other changed, so there may be no "
                "order of the two that gives the same",
                write.name,
                displaced.first,
                entry.version,
                entry.transaction.id,
            )
        kept = displaced.kept  # these are in the log, and have been read there
        to_version = displaced.last + len(write.commits) - kept
        moved = Moved(id=write.id, entry=entry.version, to_version=to_version, kept=kept)
        self._foreign.append(lambda _: None if self._moved_already(moved) else ([], [moved]))

    def _moved_already(self, wanted: Moved) -> bool:
        return self.timeline.moved.get((wanted.id, wanted.entry), NEW) >= wanted.to_version

    # --- the logs' side -----------------------------------------------------------------------------------------------

    def caught_up(self, select: Callable[[Database], Iterable[Table]], *, for_write: bool = False) -> Database:
        """Return the newest database version, in which some tables' foreign commits up to now are taken in.

        Args:
            select: which tables to look at, given the newest version before that.
            for_write: whether a commit is to follow; a table whose log is gone is refused then.

        Raises:
            ForeignCommitError, UnavailableError, CorruptTimelineError: one of them is set aside, see `check`.
        """
        database = self._caught_up(select, closely=True, for_write=for_write)
        for table in select(database):
            database.check(table)
        return database

    def take_in(self, tables: Sequence[Table]) -> bool:
        """Take what plain Delta writers did to tables into the timeline, and tell whether anything was there to see.

        Args:
            tables: as this process last read of them. What another of Lockstep's processes did since is told, too.

        Raises:
            UnavailableError, CorruptTimelineError: as the store and the logs say.
        """
        looks = self._pool.map(lambda table: self._foreign.look(table, self._published, closely=True), tables)
        found = [table for table, goes_on in zip(tables, looks, strict=True) if goes_on]
        for table in found:
            self._foreign.take_in(table)
        return bool(found)

    def all_caught_up(self) -> Database:
        """Return the newest database version, with what plain Delta writers did up to now to any table.

        A table with which that cannot be done is `set_aside` in what is returned: it keeps nobody from the others. All
        tables of a lake with more than `ABSORB_AT_ONCE` are passed over.
        """
        return self._caught_up(
            lambda database: database.tables.values() if len(database.tables) <= ABSORB_AT_ONCE else [],
            closely=False,
        )

    def _caught_up(
        self, select: Callable[[Database], Iterable[Table]], *, closely: bool, for_write: bool = False
    ) -> Database:
        database = self.refresh()
        tables = [table for table in select(database) if table.id not in database.set_aside]
        looks = self._pool.map(lambda table: self._look(table, closely, for_write), tables)
        found = [(table, look) for table, look in zip(tables, looks, strict=True) if look]
        failed = {table.id: look for table, look in found if isinstance(look, LockstepError)}
        for table, look in found:
            if look is True and (error := self._take_in(table)) is not None:
                failed[table.id] = error
        if len(found) > len(failed):
            database = self.refresh()
        return structs.replace(database, set_aside=failed | database.set_aside) if failed else database

    def _look(self, table: Table, closely: bool, for_write: bool) -> bool | LockstepError:
        """Tell whether a table's log goes on after what the timeline knows, or why nobody can tell."""
        try:
            return self._foreign.look(table, self._published, closely=closely, for_write=for_write)
        except LockstepError as error:
            _log.warning("table %s: %s", table.name, error)
            return error

    def _take_in(self, table: Table) -> LockstepError | None:
        try:
            self._foreign.take_in(table)
        except LockstepError as error:
            _log.warning("table %s: %s", table.name, error)
            return error
        return None

    def occupy(self, version: int) -> None:
        """See that somebody has a database version, so that a write of it that is still under way can only lose.

        Raises:
            UnavailableError: the store failed; nobody may have it yet.
        """
        self.timeline.refresh()
        self._foreign.append(lambda head: None if head.version >= version else ([], []))

    # --- what entries did ---------------------------------------------------------------------------------------------

    def changes(self, entry: Entry) -> Changes:
        """Return what an entry changed, as the conflict check needs it.

        Of a table whose commits cannot be read, Delta's clean-up may have taken them, that is anything: who uses the
        table has a conflict, and nobody else.
        """
        with self._lock:
            if entry.version in self._cache:
                return self._cache[entry.version]
        footprints = {write.id: self._footprint_if_known(entry, write) for write in entry.writes}
        footprints |= {move.id: self._overtaking(move) for move in entry.moved}
        names = {write.id: write.name for write in entry.writes}
        found = Changes(
            transaction=entry.transaction.id,
            namespaces=tuple(entry.namespaces),
            tables=tuple(entry.tables),
            views=tuple(entry.views),
            writes=footprints,
            reads=_reads(entry, footprints),
            view_reads=frozenset(entry.view_reads),
            names=names,
            # A plain Delta writer's own check is a serializable one, of the table that it writes.
            isolation="SERIALIZABLE" if entry.kind == "external" else entry.transaction.isolation,
            base=entry.transaction.base_version,
            batch=entry.batch,
            aborts=frozenset(entry.aborts),
            database_version=entry.version,
            precedes=entry.precedes,
        )
        with self._lock:
            if UNKNOWN not in footprints.values():  # it may be mended
                self._cache[entry.version] = found
            if len(self._cache) > CACHED_CHANGES:
                self._cache.popitem(last=False)
        return found

    def _footprint_if_known(self, entry: Entry, write: TableWrite) -> Footprint:
        """Return what an entry's write touched, UNKNOWN if nobody can tell for good.

        Raises:
            UnavailableError: the store does not say now. It may later: this is no conflict.
        """
        try:
            return self._footprint(entry, write)
        except UnavailableError:
            raise
        except LockstepError as error:
            _log.warning("table %s: what database version %d changed is unknown: %s", write.name, entry.version, error)
            return UNKNOWN

    def _footprint(self, entry: Entry, write: TableWrite) -> Footprint:
        if not write.commits:  # external: published, and nowhere else
            versions = range(write.from_version + 1, write.to_version + 1)
            return foreign_footprint(self.storage, write.location, versions)
        places = self.timeline.versions(write, entry.version)
        actions: list[Action] = []
        for version, commit in zip(places, write.commits, strict=True):
            data = content(self.storage, write.location, commit)
            # A staged file is cleaned up once its commit is published.
            actions += read_published(self.storage, write.location, version) if data is None else parse(data)
        return self.footprint(actions, write.location, before=places[0] - 1)

    def footprint(self, actions: list[Action], location: str, *, before: int) -> Footprint:
        """Return what a table's commits touch that come after its version `before`, or began from it."""
        found = footprint(actions, lambda: state_at(self.storage, location, before))
        commits = by_commit(actions)
        return replace(found, fixed=copies_own_rows(commits, before), overwrites=any(map(overwrites, commits)))

    def _overtaking(self, move: Moved) -> Footprint:
        """Return what the foreign commits that overtook a ratified one touched."""
        [moved_entry] = self.timeline.entries(move.entry - 1, move.entry)
        write = next(write for write in moved_entry.writes if write.id == move.id)
        versions = self.timeline.versions(write, move.entry)
        from_version = versions[move.kept - 1] if move.kept else write.from_version
        to_version = move.to_version - (len(write.commits) - move.kept)
        return self._footprint_if_known(
            moved_entry,
            structs.replace(write, commits=[], from_version=from_version, to_version=to_version),  # as an external one
        )

    def delete(self, folders: Iterable[str], files: Iterable[str]) -> None:
        """Remove what a rolled back transaction left, at best effort: what stays is litter, never data."""
        removals = [
            *((self.storage.delete_folder, path) for path in folders),
            *((self.storage.delete, path) for path in files),
        ]
        self._pool.map(lambda removal: _at_best_effort(*removal), removals)


def _reads(entry: Entry, footprints: Mapping[str, Footprint]) -> dict[str, Rows]:
    """Return what an entry's transaction read; of a plain Delta writer it is only known when it read no row.

    Who wrote a table has read its columns. One that removed rows and does not say which it read may have read any, and
    so may one that overwrote, whatever its entry says: which rows it removed does not follow from those that it read.
    """
    found = {id_: EVERY_ROW if footprint.rows_removed else NO_ROW for id_, footprint in footprints.items()}
    if entry.kind == "external":
        return found | {id_: EVERY_ROW for id_, footprint in footprints.items() if not footprint.blind}
    said = {read.id: rows_of(read.predicates) for read in entry.reads}
    return found | said | {id_: EVERY_ROW for id_, footprint in footprints.items() if footprint.overwrites}


def _at_best_effort(remove: Callable[[str], None], path: str) -> None:
    try:
        remove(path)
    except LockstepError as error:
        _log.warning("a transaction's %s was not removed: %s", path, error)
    except Exception:  # noqa: BLE001 (logged; also asked for after a commit, which may not fail for it)
        _log.exception("a transaction's %s was not removed", path)
