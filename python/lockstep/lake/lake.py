"""A lake as this process sees it: the timeline, and the tables' Delta logs kept in step with it.

The timeline says what is true; a table's log is where others read it. The two meet here:

    publish   what the timeline ratified and a log does not have yet (`lockstep.lake.publisher`)
    take in   what a log has and the timeline does not know: a plain Delta writer's commits (`lockstep.lake.foreign`)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from cachetools import LRUCache
from msgspec import structs

from lockstep.caches import MIB, Cache
from lockstep.delta.log import commit_path, was_published
from lockstep.errors import LockstepError
from lockstep.lake.changes import PastChanges
from lockstep.lake.external import Content, ExternalEntries
from lockstep.lake.foreign import Foreign, outdated
from lockstep.lake.gate import Gate
from lockstep.lake.policy import Policies
from lockstep.lake.publisher import Publisher
from lockstep.lake.turns import Turn, Turns
from lockstep.lake.upkeep import Upkeep
from lockstep.retry import RACE, Backoff, Contention
from lockstep.storage import Storage
from lockstep.timeline.clock import Clock
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Entry, Table
from lockstep.timeline.files import FOLDER
from lockstep.timeline.hint import CHECKPOINTS, HINT
from lockstep.timeline.log import Timeline
from lockstep.timeline.outcomes import AppendOutcome, Behind, MakeEntry, Ratified
from lockstep.timeline.segment import FOLDER as SEGMENTS
from lockstep.workers import Threads, Workers

WORKERS = 320
"""So many tables of one transaction are looked at, and published, side by side."""

WRITERS = 32
"""So many, where a look takes less than a thread: more writes at a time make a disk no faster."""

KEPT_VERSIONS = 10_000
"""Of so many adopted tables it is kept which version was the first."""

T = TypeVar("T")
R = TypeVar("R")

_log = logging.getLogger(__name__)


class Lake:
    """One lake; safe to share between threads.

    Attributes:
        storage, timeline, clock, new_id: what it was made of.
        contention: what is remembered of lost races, from one COMMIT to the next.
        past: what entries changed.
        publisher: brings the tables' logs up to date, and knows which are not.
        gate: lets one transaction go alone that has lost the timeline too often.
        upkeep: what is written behind a commit's answer.
        adopted_versions: by table id, the first version of a log that some database version has, of tables that the
            lake did not make, as far as that is known.
        checkpoint_properties: by table id and version, as far as they are known, see `lockstep.commit.maintenance`.
    """

    def __init__(
        self,
        storage: Storage,
        timeline: Timeline,
        *,
        clock: Clock,
        new_id: Callable[[], str],
        backoff: Backoff = RACE,
        turns: Turns | None = None,
    ) -> None:
        """Meet a timeline and its tables' logs.

        Args:
            backoff: how often an `external` entry is tried.
            turns: lets one process of this host at a time try to commit; nothing does, if None.
        """
        self.storage = storage
        self.timeline = timeline
        self.clock = clock
        self.new_id = new_id
        self.contention = Contention()
        self.past = PastChanges(storage, timeline)
        self._pool = Workers(WRITERS if storage.quick else WORKERS, "lockstep-lake")
        self.gate = Gate()
        self._turns = turns
        self._external = ExternalEntries(timeline, self.gate, new_id=new_id, backoff=backoff)
        policies = Policies(storage)
        self._refreshing = Threads(WORKERS, thread_name_prefix="lockstep-refresh")
        self.upkeep = Upkeep()
        self.adopted_versions: LRUCache[str, int] = LRUCache(KEPT_VERSIONS)
        self.checkpoint_properties = Cache[tuple[str, int], Mapping[str, Any]](2 * MIB)
        self.publisher = Publisher(
            storage, timeline, self.past, self._external, policies, clock=clock, pool=self._pool, upkeep=self.upkeep
        )
        self._foreign = Foreign(
            storage,
            timeline,
            self._external,
            policies,
            clock=clock,
            pool=self._pool,
            overwritten=self.publisher.overwritten,
        )

    @property
    def refusal(self) -> str:
        """Why nothing can be written, as far as that is known before it is tried; empty if nothing is known."""
        if self.timeline.refusal:
            return self.timeline.refusal
        if self.storage.is_writable(FOLDER):
            return ""
        return (
            f"this process may only read the lake {self.storage.url}: it has no permission to write {FOLDER}, or the "
            "file system is mounted to be read. Nothing was written; write where that is allowed"
        )

    def refresh(self) -> Database:
        """Return the newest database version, with all that it ratified published, but for tables set aside.

        Raises:
            UnavailableError, CorruptTimelineError: as the timeline and the store say.
        """
        return self.publisher.publish_all()

    def turn(self, transaction: str, *, ahead: Callable[[], object] = lambda: None) -> Turn:
        """Return what lets a transaction try to commit while no other process of this host does, see `Turns`.

        Each time it begins, it lets another thread pass first that goes alone.

        Args:
            ahead: what can be done before it begins, see `Turn`.
        """
        return Turn(self._turns, before=partial(self.gate.wait, transaction), ahead=ahead)

    def append(self, transaction: str, draft: MakeEntry, after: int, behind: Behind | None) -> AppendOutcome:
        """Try to make a transaction's entry the next version, see `Timeline.append`; if it is ratified, publish it.

        Raises:
            LockstepError: as `Timeline.append` says.
        """
        self.publisher.expect(transaction)
        outcome = None
        try:
            outcome = self.timeline.append(draft, after, behind)
            return outcome
        finally:
            if not isinstance(outcome, Ratified):
                self.publisher.expect_no_more(transaction)

    def check_reaches(self, table: Table, version: int) -> None:
        """Raise if a table's log ends before a version that the timeline has.

        Delta, when it is told that a version is taken, looks in the log for what took it, and tries the same version
        again as long as there is nothing.

        Raises:
            CorruptTimelineError: it does: files are lost, or the folder is an older copy.
        """
        if not was_published(self.storage, table.location, version):
            raise outdated(table, commit_path(table.location, version))

    def caught_up(self, select: Callable[[Database], Iterable[Table]], *, for_write: bool = False) -> Database:
        """Return the newest database version, in which some tables' foreign commits up to now are taken in.

        Args:
            select: which tables to look at, given the newest version before that.
            for_write: whether a commit is to follow; a table whose log is gone is refused then.

        Raises:
            ForeignCommitError, UnavailableError, CorruptTimelineError: one of them is set aside, see `Publisher.check`.
        """
        database = self._caught_up(select, for_write)
        for table in select(database):
            database.refuse_aside(table)
        return database

    def newest(self) -> Database:
        """Return the newest database version, in which all tables' foreign commits up to now are taken in.

        Tables of which that cannot be said are set aside in it, and hold nobody up who does not use them.
        """
        return self._caught_up(lambda database: database.tables.values(), for_write=False)

    def take_in(self, tables: Sequence[Table]) -> bool:
        """Take what plain Delta writers did to tables into the timeline, and tell whether anything was there to see.

        Who may only read the lake sees its tables as the timeline says, until somebody else has taken that in.

        Args:
            tables: as this process last read of them. What another of Lockstep's processes did since is told, too.

        Raises:
            ForeignCommitError: a plain writer wrote over what was published.
            UnavailableError, CorruptTimelineError: as the store and the logs say.
        """
        if self.refusal:
            return False
        if not all(map(self.publisher.has_published, tables)):
            self.refresh()  # what another thread has ratified and is about to publish would look as if it were lost
        looks = self._foreign.look(tables, self.publisher.publish_write)
        if errors := [look for look in looks if isinstance(look, LockstepError)]:
            raise errors[0]
        tables_ahead = [table for table, goes_on in zip(tables, looks, strict=True) if goes_on]
        # What a plain writer does to a table that is set aside waits for whoever decides whose commit is right.
        set_aside = self.refresh().set_aside if tables_ahead else {}
        for table in tables_ahead:
            if table.id not in set_aside:
                self._foreign.take_in(table)
        return bool(tables_ahead)

    def check_past(self, tables: Sequence[Table]) -> None:
        """See that tables of an older database version are what their logs say, at the cost of one look at each.

        Raises:
            ForeignCommitError: another table lies in the folder of one, or a plain writer wrote over its version.
            UnavailableError, CorruptTimelineError: as the store and the timeline say.
        """
        self.side_by_side(self._foreign.check_past, tables)

    def check_written(self, table: Table, entries: Sequence[Entry]) -> None:
        """See that a table's log has what entries committed to it, at the cost of one look at each commit.

        Raises:
            ForeignCommitError: another table lies in the folder, or a plain writer wrote over one of them.
            UnavailableError: the store failed.
        """
        self.side_by_side(partial(self._foreign.check_written, table), entries)

    def accept(self, table: Table, through: int) -> int:
        """Take in what plain Delta writers did to a table that refuses that, since a person says so.

        Args:
            table: as it was when the person looked.
            through: the newest version of its log that the person knew of, with which it has to end.

        Returns:
            The database version that has it.

        Raises:
            InvalidError: the table, or its log, is another one by now.
            ForeignCommitError: a plain writer wrote over what was published, which this does not settle.
            UnavailableError, CorruptTimelineError: as the store and the logs say.
        """
        return self._foreign.accept(table, through)

    def _caught_up(self, select: Callable[[Database], Iterable[Table]], for_write: bool) -> Database:
        if self.refusal:
            return self.refresh()  # see `take_in`
        early_looks: dict[Table, bool | LockstepError] = {}
        if self.storage.quick:
            database = self.publisher.publish_all()
        else:
            # While the timeline is read on, the tables are looked at as they were; those that others wrote, again. What
            # another thread has ratified and is about to publish would look as if it were lost.
            head = self.timeline.head
            before = [table for table in select(head) if self.publisher.has_published(table)]
            # Who is about to write need not know the very last: that there is more, the put tells.
            refreshing = self._refreshing.submit(self.publisher.publish_all, files=1 if for_write else None)
            early_looks = dict(zip(before, self._looks(before, for_write), strict=True))
            database = refreshing.result()
        tables = [table for table in select(database) if table.id not in database.set_aside]
        late = [table for table in tables if table not in early_looks]
        looks = early_looks | dict(zip(late, self._looks(late, for_write), strict=True))
        results = [(table, looks[table]) for table in tables if looks[table]]
        errors = {table.id: look for table, look in results if isinstance(look, LockstepError)}
        for table, look in results:
            if look is True and (error := self._take_in(table)) is not None:
                errors[table.id] = error
        for table, error in ((table, errors[table.id]) for table in tables if table.id in errors):
            # Most errors name the table first, as whoever reads one alone needs it.
            about = "" if error.message.startswith(f"table {table.name}") else f"table {table.name}: "
            _log.warning("%s%s", about, error)
        if len(results) > len(errors):
            database = self.refresh()
        return structs.replace(database, set_aside=errors | database.set_aside) if errors else database

    def _looks(self, tables: Sequence[Table], for_write: bool) -> list[bool | LockstepError]:
        """Tell of each table whether its log goes on after what the timeline knows, or why nobody can tell."""
        return self._foreign.look(tables, self.publisher.publish_write, for_write=for_write)

    def after_commit(self, entry: Entry, *, is_published: bool, checksums: bool, folders: Sequence[str]) -> None:
        """Do behind the answer to a commit what others are saved by.

        Args:
            entry: it is ratified.
            is_published: whether it is published, too; else its staged files are needed yet.
            checksums: whether to write checksums of the tables' versions; Delta itself does after its own statements.
            folders: what nobody needs once it is published.
        """
        tasks: list[Callable[[], object]] = []
        if is_published and checksums:
            tasks.append(partial(self.publisher.write_checksums, entry, entry.writes))
        if is_published and folders:
            tasks.append(partial(self.delete, folders, []))
        self.upkeep.add(*tasks, keys=[write.id for write in entry.writes])
        self.upkeep.add_once(self.timeline.write_hint, HINT)
        if self.timeline.checkpoint_due is not None:
            self.upkeep.add(self.timeline.write_checkpoint, keys=[CHECKPOINTS])
        if self.timeline.segment_due is not None:
            self.upkeep.add(self.timeline.write_due_segment, keys=[SEGMENTS])

    def side_by_side(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Return what the work returns for each item, in order; it may not ask for more of this lake's threads.

        Raises:
            What the work raised for the first item for which it did.
        """
        return self._pool.map(work, items, quick=self.storage.quick)

    def _take_in(self, table: Table) -> LockstepError | None:
        try:
            self._foreign.take_in(table)
        except LockstepError as error:
            return error
        return None

    def occupy(self, version: int) -> None:
        """See that somebody has a database version, so that a write of it that is still under way can only lose.

        Raises:
            UnavailableError: the store failed; nobody may have it yet.
        """
        self.timeline.refresh()
        self._external.append(lambda head: None if head.version >= version else Content())

    def fence(self) -> None:
        """See that whoever puts an entry from now on has read the timeline since now.

        Raises:
            UnavailableError: the store failed.
        """
        self.timeline.refresh()
        self.occupy(self.timeline.head.version + 1)
        self.timeline.refresh()

    def delete(self, folders: Iterable[str], files: Iterable[str]) -> None:
        """Remove what nobody needs of a transaction that ended, or of a part that was undone, at best effort.

        What stays is litter, never data.
        """
        removals = [
            *((self.storage.delete_folder, path) for path in folders),
            *((self.storage.delete, path) for path in files),
        ]
        self._pool.map(lambda removal: _at_best_effort(*removal), removals)

    def delete_empty(self, folders: Iterable[str]) -> None:
        """Remove folders in which nothing is, one after the other, at best effort."""
        for folder in folders:
            _at_best_effort(self.storage.delete_empty_folder, folder)


def _at_best_effort(remove: Callable[[str], None], path: str) -> None:
    try:
        remove(path)
    except LockstepError as error:
        _log.warning("a transaction's %s was not removed: %s", path, error)
    except Exception:  # noqa: BLE001 (logged; also asked for after a commit, which may not fail for it)
        _log.exception("a transaction's %s was not removed", path)
