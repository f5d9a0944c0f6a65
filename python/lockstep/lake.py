"""A lake as this process sees it: the timeline, and the tables' Delta logs kept in step with it.

The timeline says what is true; a table's log is where others read it. The two meet here:

    publish   what the timeline ratified and a log does not have yet, before anybody reads past it
    absorb    what a log has and the timeline does not know: a plain Delta writer's commits, as an `external` entry

In between, a foreign commit may take the very version that a ratified commit of ours was meant for. If the two do not
conflict, ours is moved behind it, and an entry says so; if they do, the table is `diverged`: nothing of either is lost,
and whoever touches the table is told.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial

from lockstep import __version__
from lockstep.conflicts import Changes, check
from lockstep.delta.actions import Action, Footprint, footprint, parse
from lockstep.delta.log import commit_path, last_published, read_published
from lockstep.delta.publish import Displaced, content, foreign_footprint, publish, write_checksums
from lockstep.errors import CommitUnknownError, ForeignCommitError, UnavailableError
from lockstep.model import FORMAT, NEW, Database, Entry, Moved, Table, TableWrite, TransactionInfo
from lockstep.storage import Storage
from lockstep.timeline import Clock, Draft, Lost, Ratified, Timeline, Unknown

WORKERS = 8
"""Threads that publish or probe tables of one entry at the same time."""

ABSORB_AT_ONCE = 1000
"""How many tables are probed for foreign commits at BEGIN; a lake with more finds them as its tables are touched."""

CACHED_CHANGES = 256

_log = logging.getLogger(__name__)


class Lake:
    """One lake; safe to share between threads."""

    def __init__(self, storage: Storage, timeline: Timeline, *, clock: Clock, new_id: Callable[[], str]) -> None:
        self.storage = storage
        self.timeline = timeline
        self.clock = clock
        self.new_id = new_id
        self.diverged: dict[str, ForeignCommitError] = {}
        self._cache: OrderedDict[int, Changes] = OrderedDict()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="lockstep-lake")

    # --- the timeline's side ------------------------------------------------------------------------------------------

    def refresh(self) -> Database:
        """Read the timeline on, publish what is ratified but unpublished, and return the head.

        Raises:
            UnavailableError, CorruptTimelineError: as the timeline and the store say.
        """
        self.timeline.refresh()
        pending = self.timeline.entries(self.timeline.published_through)
        published = [self.publish(entry) for entry in pending]  # one that cannot be must not keep the others waiting
        if pending and all(published):
            self.timeline.mark_published(pending[-1].version)
        return self.timeline.head

    def publish(self, entry: Entry, *, checksums: bool = True) -> bool:
        """Publish an entry's commits, all tables in parallel, and tell whether all of them are in their logs now.

        Args:
            checksums: write the versions' checksums too; Delta itself does after an autocommitted statement.

        Raises:
            UnavailableError: the store failed; the entry stays ratified, and the next `refresh` publishes it.
        """
        if entry.kind != "transaction":
            return True
        return all(self._pool.map(lambda write: self._publish(entry, write, checksums), entry.writes))

    def _publish(self, entry: Entry, write: TableWrite, checksums: bool) -> bool:
        for _ in range(3):  # moved behind a foreign commit, another may come before it: each time is another race lost
            outcome = publish(self.storage, write, self.timeline.moved.get((write.id, entry.version)))
            if not isinstance(outcome, Displaced):
                self.diverged.pop(write.id, None)
                if checksums:
                    self._write_checksums(write, outcome.version)
                return True
            if not self._move_behind(entry, write, outcome):
                return False
        return False

    def _write_checksums(self, write: TableWrite, last: int) -> None:
        try:
            write_checksums(self.storage, write, last)
        except UnavailableError as error:
            _log.info("table %s goes without a checksum of version %d: %s", write.name, last, error)

    def _move_behind(self, entry: Entry, write: TableWrite, displaced: Displaced) -> bool:
        """Say in the timeline that a ratified commit comes after the foreign ones that took its version."""
        ours = self._footprint(entry, write)
        mine = Changes(entry.transaction.id, writes={write.id: ours}, names={write.id: write.name})
        theirs = Changes("of a plain Delta writer", writes={write.id: displaced.foreign}, names=mine.names)
        if (conflict := check(mine, theirs, "SNAPSHOT")) is not None:
            self.diverged[write.id] = ForeignCommitError(
                f"table {write.name}: version {displaced.first} was written by a plain Delta writer while database "
                f"version {entry.version} (transaction {entry.transaction.id}), ratified for the same table version, "
                f"was about to be published, and the two conflict ({conflict.rule}). Neither is lost: the foreign "
                f"commit is {commit_path(write.location, displaced.first)}, ours is in timeline entry {entry.version}. "
                "The table cannot be used until a person decides."
            )
            _log.error("%s", self.diverged[write.id])
            return False
        moved = Moved(id=write.id, entry=entry.version, to_version=displaced.last + len(write.commits))
        self._external(lambda: ([], [moved]), lambda: not self._moved_already(moved))
        return True

    def _moved_already(self, wanted: Moved) -> bool:
        return self.timeline.moved.get((wanted.id, wanted.entry), NEW) >= wanted.to_version

    # --- the logs' side -----------------------------------------------------------------------------------------------

    def absorb(self, table: Table) -> Database:
        """Take foreign commits found in a table's log into the timeline, and return the head.

        A file is foreign only if the timeline, read after the file was seen, has no commit of that version: ours are
        ratified before they are published.

        Raises:
            ForeignCommitError: the table has diverged.
        """
        if (error := self.diverged.get(table.id)) is not None:
            raise error
        known: Table | None = table
        while known is not None and self.storage.exists(commit_path(known.location, known.version + 1)):
            current = self.refresh().table_by_id(known.id)
            if current is not None and current.version == known.version:
                self._external(partial(self._foreign_content, current), partial(self._is_at, current))
                current = self.timeline.head.table_by_id(known.id)
            known = current
        return self.timeline.head

    def absorb_all(self) -> Database:
        """Absorb whatever plain Delta writers did to any table, up to `ABSORB_AT_ONCE` tables."""
        database = self.refresh()
        tables = list(database.tables.values())
        if len(tables) > ABSORB_AT_ONCE:
            return database
        ahead = self._pool.map(lambda t: self.storage.exists(commit_path(t.location, t.version + 1)), tables)
        for table in [table for table, found in zip(tables, ahead, strict=True) if found]:
            if table.id not in self.diverged:
                self.absorb(table)
        return self.timeline.head

    def _is_at(self, table: Table) -> bool:
        current = self.timeline.head.table_by_id(table.id)
        return current is not None and current.version == table.version

    def _foreign_content(self, table: Table) -> tuple[list[TableWrite], list[Moved]]:
        return [self._foreign_write(table)], []

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

    def _external(
        self, content: Callable[[], tuple[list[TableWrite], list[Moved]]], needed: Callable[[], bool]
    ) -> None:
        """Append an `external` entry, unless somebody else's makes it needless."""
        while needed():
            draft = self._external_draft(*content())
            match self.timeline.append(draft, after=self.timeline.head.version):
                case Ratified(entry):
                    _log.info("database version %d: took in commits of a plain Delta writer", entry.version)
                case Lost():
                    continue
                case Unknown(entry, cause):
                    raise CommitUnknownError(
                        f"cannot tell whether timeline entry {entry.version} (external commits, transaction "
                        f"{entry.transaction.id}) was written: {cause.message}. Nothing else was changed; the next "
                        "statement looks again."
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
            writes=footprints,
            reads=frozenset(read.id for read in entry.reads),
            names=names,
            database_version=entry.version,
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
        return footprint(actions)

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
        except UnavailableError as error:
            _log.warning(
                "database version %d is committed; publishing it waits for the store: %s", entry.version, error
            )
            return False

    def delete(self, folders: Iterable[str], files: Iterable[str]) -> None:
        """Remove what a rolled back transaction left, at best effort: what stays is litter, never data."""
        for remove, paths in ((self.storage.delete_folder, folders), (self.storage.delete, files)):
            for path in paths:
                try:
                    remove(path)
                except UnavailableError as error:
                    _log.warning("a rolled back transaction's %s was not removed: %s", path, error)
