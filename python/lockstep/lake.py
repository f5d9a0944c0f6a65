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
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TypeAlias

from lockstep import __version__
from lockstep.clock import Clock
from lockstep.conflicts import Changes, check
from lockstep.delta.actions import Action, Footprint, footprint, parse
from lockstep.delta.log import commit_path, last_published, read_published, state_at
from lockstep.delta.publish import Displaced, content, foreign_footprint, publish, write_checksums
from lockstep.errors import ForeignCommitError, LockstepError, UnavailableError
from lockstep.model import FORMAT, NEW, Database, Entry, Moved, Table, TableWrite, TransactionInfo
from lockstep.retry import Contention
from lockstep.rows import EVERY_ROW, NO_ROW, Rows, rows_of
from lockstep.storage import Storage
from lockstep.timeline import Draft, Lost, Ratified, Timeline, Unknown

WORKERS = 8
"""Threads that publish or probe tables of one entry at the same time."""

ABSORB_AT_ONCE = 1000
"""How many tables are probed for foreign commits at BEGIN; a lake with more finds them as its tables are touched."""

BEHIND = 3
"""How often a commit is moved behind a foreign one in one go, before its table is set aside."""

CACHED_CHANGES = 256

_Content: TypeAlias = tuple[list[TableWrite], list[Moved]]

_log = logging.getLogger(__name__)


class Lake:
    """One lake; safe to share between threads."""

    def __init__(self, storage: Storage, timeline: Timeline, *, clock: Clock, new_id: Callable[[], str]) -> None:
        self.storage = storage
        self.timeline = timeline
        self.clock = clock
        self.new_id = new_id
        self.contention = Contention()
        self._aside: dict[str, tuple[int, LockstepError]] = {}
        self._cache: OrderedDict[int, Changes] = OrderedDict()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="lockstep-lake")

    # --- the timeline's side ------------------------------------------------------------------------------------------

    def refresh(self) -> Database:
        """Return the newest database version, with all that it ratified published, save for tables set aside.

        Raises:
            UnavailableError, CorruptTimelineError: as the timeline and the store say.
        """
        while True:
            self.timeline.refresh()
            # Other threads may read on, or ratify, at any moment: what is returned is what was published, no later
            # head, which would show tables at versions that their logs may not have yet.
            moved, head = self.timeline.moved, self.timeline.head
            pending = self.timeline.entries(min(self.timeline.published_through, head.version), head.version)
            published = [self.publish(entry) for entry in pending]
            if self.timeline.moved is not moved:
                continue  # the head does not say yet where these tables are now
            if pending and all(published):
                self.timeline.mark_published(head.version)
            return head

    def check(self, table: Table) -> None:
        """Raise why a table is set aside, if it is.

        Raises:
            ForeignCommitError: it has diverged, see above.
            UnavailableError, CorruptTimelineError: what it has ratified could not be published.
        """
        if (found := self._aside.get(table.id)) is not None:
            raise type(found[1])(found[1].message, sqlstate=found[1].sqlstate)

    def publish(self, entry: Entry, *, checksums: bool = True) -> bool:
        """Publish an entry's commits, all tables in parallel, and tell whether all of them are in their logs now.

        Args:
            checksums: write the versions' checksums too; Delta itself does after an autocommitted statement.
        """
        if entry.kind != "transaction":
            return True
        done = self._pool.map(lambda write: self._publish(entry, write, checksums), entry.writes)
        return all([*done])  # the list: one that cannot be must not keep the others waiting

    def _publish(self, entry: Entry, write: TableWrite, checksums: bool) -> bool:
        try:
            last = self._published(entry, write)
        except LockstepError as error:
            return self._set_aside(entry, write, error)
        if self._aside.get(write.id, (entry.version,))[0] == entry.version:
            self._aside.pop(write.id, None)
        if checksums:
            self._write_checksums(write, last)
        return True

    def _published(self, entry: Entry, write: TableWrite) -> int:
        """Publish a write, behind foreign commits if need be, and return the version of its last commit."""
        for _ in range(BEHIND):
            outcome = publish(self.storage, write, self.timeline.moved.get((write.id, entry.version)))
            if not isinstance(outcome, Displaced):
                return outcome.version
            self._move_behind(entry, write, outcome)
        raise UnavailableError(
            f"table {write.name}: database version {entry.version} is committed, but other Delta writers took the next "
            f"table version {BEHIND} times before it could be published; the next statement tries again"
        )

    def _set_aside(self, entry: Entry, write: TableWrite, error: LockstepError) -> bool:
        """Remember why a write cannot be published, and tell whether that is as good as published."""
        if not isinstance(error, UnavailableError) and self.timeline.head.table_by_id(write.id) is None:
            _log.warning("dropped table %s: database version %d: %s", write.name, entry.version, error)
            return True  # nobody will miss it, and a person who dropped the table has decided
        if self._aside.get(write.id, (NEW,))[0] != entry.version:
            _log.error("table %s is set aside; database version %d: %s", write.name, entry.version, error)
        self._aside[write.id] = entry.version, error
        return False

    def _write_checksums(self, write: TableWrite, last: int) -> None:
        try:
            write_checksums(self.storage, write, last)
        except UnavailableError as error:
            _log.info("table %s goes without a checksum of version %d: %s", write.name, last, error)

    def _move_behind(self, entry: Entry, write: TableWrite, displaced: Displaced) -> None:
        """Say in the timeline that a ratified commit comes after the foreign ones that took its version.

        Raises:
            ForeignCommitError: it cannot, for the two conflict.
        """
        ours = self._footprint(entry, write)
        mine = Changes(entry.transaction.id, writes={write.id: ours}, names={write.id: write.name})
        theirs = Changes("of a plain Delta writer", writes={write.id: displaced.foreign}, names=mine.names)
        if (conflict := check(mine, theirs)) is not None:
            raise ForeignCommitError(
                f"table {write.name}: version {displaced.first} was written by a plain Delta writer while database "
                f"version {entry.version} (transaction {entry.transaction.id}), ratified for the same table version, "
                f"was about to be published, and the two conflict ({conflict.rule}). Neither is lost: the foreign "
                f"commit is {commit_path(write.location, displaced.first)}, ours is in timeline entry {entry.version}. "
                "The table cannot be used until a person decides."
            )
        moved = Moved(id=write.id, entry=entry.version, to_version=displaced.last + len(write.commits))
        self._external(lambda _: None if self._moved_already(moved) else ([], [moved]))

    def _moved_already(self, wanted: Moved) -> bool:
        return self.timeline.moved.get((wanted.id, wanted.entry), NEW) >= wanted.to_version

    # --- the logs' side -----------------------------------------------------------------------------------------------

    def caught_up(self, select: Callable[[Database], Iterable[Table]]) -> Database:
        """Return the newest database version, in which some tables' foreign commits up to now are taken in.

        Args:
            select: which tables to look at, given the newest version before that.

        Raises:
            ForeignCommitError, UnavailableError, CorruptTimelineError: one of them is set aside, see `check`.
        """
        database = self.refresh()
        tables = list(select(database))
        for table in tables:
            self.check(table)
        ahead = self._pool.map(lambda t: self.storage.exists(commit_path(t.location, t.version + 1)), tables)
        found = [table for table, is_ahead in zip(tables, ahead, strict=True) if is_ahead]
        for table in found:
            self._take_in(table)
        if found:
            database = self.refresh()
            for table in tables:
                self.check(table)
        return database

    def all_caught_up(self) -> Database:
        """Return the newest database version, with what plain Delta writers did up to now to any table.

        Tables that are set aside are passed over, and so are all tables of a lake with more than `ABSORB_AT_ONCE`.
        """

        def usable(database: Database) -> list[Table]:
            if len(database.tables) > ABSORB_AT_ONCE:
                return []
            return [table for table in database.tables.values() if table.id not in self._aside]

        return self.caught_up(usable)

    def occupy(self, version: int) -> None:
        """See that somebody has a database version, so that a write of it that is still under way can only lose.

        Raises:
            UnavailableError: the store failed; nobody may have it yet.
        """
        self.timeline.refresh()
        self._external(lambda head: None if head.version >= version else ([], []))

    def _take_in(self, table: Table) -> None:
        """Take a table's foreign commits into the timeline.

        A file is foreign if the timeline has no commit of that version at a moment after the file was seen, for ours
        are ratified before they are published. That the entry can be appended proves it.
        """
        self.timeline.refresh()

        def foreign(head: Database) -> _Content | None:
            current = head.table_by_id(table.id)
            if current is None or not self.storage.exists(commit_path(current.location, current.version + 1)):
                return None
            return [self._foreign_write(current)], []

        self._external(foreign)

    def _foreign_write(self, table: Table) -> TableWrite:
        last = last_published(self.storage, table.location, table.version)
        return TableWrite(
            id=table.id,
            name=table.name,
            location=table.location,
            from_version=table.version,
            to_version=last,
            commits=[],
        )

    def _external(self, content: Callable[[Database], _Content | None]) -> None:
        """Append an `external` entry, unless somebody else's makes it needless.

        Args:
            content: what it is to say, judged against this database version; None if there is no need.

        Raises:
            UnavailableError: the store failed. Whether the entry was written does not matter: the next one to look
                finds it, or writes it.
        """
        while (found := content(head := self.timeline.head)) is not None:
            match self.timeline.append(self._external_draft(*found), after=head.version):
                case Ratified(entry):
                    _log.info("database version %d: took in commits of a plain Delta writer", entry.version)
                case Lost():
                    continue
                case Unknown(entry, cause):
                    raise UnavailableError(
                        f"cannot tell whether timeline entry {entry.version}, which takes in commits of a plain Delta "
                        f"writer, was written: {cause.message}. Nothing else changed; the next statement looks again"
                    ) from cause

    def _external_draft(self, writes: list[TableWrite], moved: list[Moved]) -> Draft:
        id_ = self.new_id()

        def draft(version: int, at: datetime) -> Entry:
            info = TransactionInfo(
                id=id_,
                began_at=at,
                base_version=version - 1,
                isolation="SNAPSHOT",
                application=f"Lockstep {__version__}",
            )
            return Entry(
                format=FORMAT,
                version=version,
                committed_at=at,
                kind="external",
                transaction=info,
                writes=writes,
                moved=moved,
            )

        return draft

    # --- what entries did ---------------------------------------------------------------------------------------------

    def changes(self, entry: Entry) -> Changes:
        """Return what an entry changed, as the conflict check needs it.

        Raises:
            CorruptTimelineError: a commit that the entry names cannot be read.
        """
        with self._lock:
            if entry.version in self._cache:
                return self._cache[entry.version]
        footprints = {write.id: self._footprint(entry, write) for write in entry.writes}
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
            self._cache[entry.version] = found
            if len(self._cache) > CACHED_CHANGES:
                self._cache.popitem(last=False)
        return found

    def _footprint(self, entry: Entry, write: TableWrite) -> Footprint:
        if not write.commits:  # external: published, and nowhere else
            versions = range(write.from_version + 1, write.to_version + 1)
            return foreign_footprint(self.storage, write.location, versions)
        last = self.timeline.moved.get((write.id, entry.version), write.to_version)
        actions: list[Action] = []
        for version, commit in enumerate(write.commits, last - len(write.commits) + 1):
            data = content(self.storage, write.location, commit)
            # A staged file is cleaned up once its commit is published.
            actions += read_published(self.storage, write.location, version) if data is None else parse(data)
        return self.footprint(actions, write.location, before=last - len(write.commits))

    def footprint(self, actions: list[Action], location: str, *, before: int) -> Footprint:
        """Return what a table's commits touch that come after its version `before`, or began from it."""
        return footprint(actions, lambda: state_at(self.storage, location, before))

    def _overtaking(self, move: Moved) -> Footprint:
        """Return what the foreign commits that overtook a ratified one touched."""
        [moved_entry] = self.timeline.entries(move.entry - 1, move.entry)
        write = next(write for write in moved_entry.writes if write.id == move.id)
        versions = range(write.from_version + 1, move.to_version - len(write.commits) + 1)
        return foreign_footprint(self.storage, write.location, versions)

    def try_publish(self, entry: Entry, *, checksums: bool = True) -> bool:
        """Publish a just ratified entry, and tell whether that is done; `checksums` as in `publish`.

        It is committed: a store that fails now delays its readers, and no more.
        """
        try:
            if not self.publish(entry, checksums=checksums):
                return False
            if self.timeline.published_through == entry.version - 1:
                self.timeline.mark_published(entry.version)
            return True
        except LockstepError as error:
            _log.warning("database version %d is committed; it is not published yet: %s", entry.version, error)
            return False

    def delete(self, folders: Iterable[str], files: Iterable[str]) -> None:
        """Remove what a rolled back transaction left, at best effort: what stays is litter, never data."""
        removals = [
            *((self.storage.delete_folder, path) for path in folders),
            *((self.storage.delete, path) for path in files),
        ]
        deque(self._pool.map(lambda removal: _at_best_effort(*removal), removals), maxlen=0)


def _reads(entry: Entry, footprints: Mapping[str, Footprint]) -> dict[str, Rows]:
    """Return what an entry's transaction read; of a plain Delta writer it is only known when it read no row.

    Who wrote a table has read its columns. One that removed rows and does not say which it read may have read any.
    """
    columns = {id_: NO_ROW for id_, footprint in footprints.items() if not footprint.rows_removed}
    if entry.kind == "external":
        return columns | {id_: EVERY_ROW for id_, footprint in footprints.items() if not footprint.blind}
    return columns | {read.id: rows_of(read.predicates) for read in entry.reads}


def _at_best_effort(remove: Callable[[str], None], path: str) -> None:
    try:
        remove(path)
    except LockstepError as error:
        _log.warning("a rolled back transaction's %s was not removed: %s", path, error)
