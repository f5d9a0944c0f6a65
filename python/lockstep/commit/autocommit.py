"""One statement on its own: what Delta wants to write as one version of one table becomes one entry of the timeline."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from msgspec import structs

from lockstep.adoption.making import hold_new
from lockstep.commit.elsewhere import give_back, remove_made, surrounded, taken
from lockstep.commit.ended import ended_by_conflict, note
from lockstep.commit.ending import staging_folders
from lockstep.commit.files import Gone, added_files, missing_files
from lockstep.commit.going import check, old_files
from lockstep.commit.outcomes import Committed, Contended, InDoubt, Taken
from lockstep.commit.scans import NO_VIEWS, Scan, judge_statement, table_reads
from lockstep.commit.staging import store
from lockstep.conflict.serializable import Antidependency
from lockstep.conflict.writes import Changes, Conflict
from lockstep.delta.actions import Action, bodies, operation_on, render, size_of_added, traced
from lockstep.delta.counts import total
from lockstep.delta.log import staging_folder
from lockstep.delta.real_paths import assert_real, real_paths
from lockstep.errors import DuplicateError, InvalidError, UnavailableError, UndefinedError
from lockstep.lake.changes import is_light
from lockstep.lake.deletions import OLD, Wanted
from lockstep.lake.lake import Lake
from lockstep.lake.policy import check_policy
from lockstep.retry import RACE, Backoff
from lockstep.timeline.append import Exhausted, Proposal, Settled, append_until
from lockstep.timeline.database import Database
from lockstep.timeline.entry import FORMAT, NEW, Entry, Name, Table, TableDdl, TableRead, TableWrite, TransactionInfo
from lockstep.timeline.outcomes import MakeEntry, Ratified, Unknown
from lockstep.timeline.places import folders_above, overlap
from lockstep.transactions.creations import Creation
from lockstep.transactions.ddl import check_name, holder


def commit_statement(
    lake: Lake,
    info: TransactionInfo,
    location: str,
    version: int,
    actions: list[Action],
    *,
    creation: Creation | None = None,
    scans: Sequence[Scan] = (),
    views: Mapping[Name, int] = NO_VIEWS,
    older: bool = False,
    backoff: Backoff = RACE,
) -> Committed | Conflict | Taken | Contended | Gone | InDoubt:
    """Commit what Delta wants to write as one version of one table: an autocommitted statement.

    Losing the timeline to transactions on other tables is retried here; losing the table version is Delta's to judge.
    What the statement read from other tables is judged here too, see `lockstep.commit.scans`.

    Args:
        info: the statement's transaction; its id must be new.
        location: the table's folder, relative to the root.
        version: the table version to be.
        actions: the commit.
        creation: given for the first version of a new table.
        scans: what the statement read.
        views: the views whose definitions it used, and in which database version each had it.
        older: see `lockstep.commit.scans.table_reads`.
        backoff: how often, and how soon, it is tried again after a lost race.

    Raises:
        UndefinedError: the table, or a new table's namespace, was dropped meanwhile.
        DuplicateError: a new table's name was taken meanwhile.
        InvalidError: a property of Lockstep's has a value that it cannot have.
        UnavailableError, CorruptTimelineError, ForeignCommitError: nothing was committed.
    """
    undo = partial(_undo, lake, info, location, actions, creation)
    try:
        if creation is not None and creation.elsewhere:
            hold_new(lake, info.id, location)
        actions = traced(real_paths(actions), info.id)
        assert_real(actions)
        statement = _Statement(lake, info, location, version, actions, creation, scans, views, older)
        outcome = statement.commit(backoff)
    except (InvalidError, UnavailableError):  # of all errors, those after which nothing is or will be committed
        undo()
        raise
    if isinstance(outcome, Conflict | Taken | Contended | Gone):
        undo()
    if isinstance(outcome, Conflict):
        table = lake.timeline.head.table_at(location)
        tables, size = [] if table is None else [table.name], size_of_added(render(actions).decode())
        note(lake, ended_by_conflict(info, outcome, lake.clock(), tables=tables, bytes_staged=size))
    return outcome


def _undo(lake: Lake, info: TransactionInfo, location: str, actions: list[Action], creation: Creation | None) -> None:
    """Remove, at best effort, what a statement has written that is not committed and never will be."""
    if creation is None:
        lake.delete([staging_folder(location, info.id)], [])
    elif creation.elsewhere:
        give_back(lake, info.id, location, remove_made(lake, info.id, location, [real_paths(actions)]))
    else:
        lake.delete([location], [])


@dataclass(slots=True)
class _Statement:
    """What Delta wants to write: see `commit_statement`.

    Attributes:
        actions: the commit, as it is ratified.
        wanted: the old files among those that it adds, and the folder of a new table, which may be going.
        looked_at: when the others were last looked for.
        around: the conflict with who has made a table around the new one, see `lockstep.commit.elsewhere.surrounded`.
    """

    lake: Lake
    info: TransactionInfo
    location: str
    version: int
    actions: list[Action]
    creation: Creation | None
    scans: Sequence[Scan]
    views: Mapping[Name, int]
    older: bool
    wanted: Wanted = field(default_factory=Wanted)
    looked_at: datetime | None = None
    around: Conflict | None = None

    @property
    def made_elsewhere(self) -> list[Creation]:
        """The new table, if the statement said where it is to lie."""
        return [] if self.creation is None or not self.creation.elsewhere else [self.creation]

    def commit(self, backoff: Backoff) -> Committed | Conflict | Taken | Contended | Gone | InDoubt:
        """Propose it until it is ratified or settled, and publish it."""
        lake = self.lake
        self.around = surrounded(lake, self.made_elsewhere)
        with lake.turn(self.info.id) as turn:
            match append_until(
                partial(lake.append, self.info.id),
                self.propose,
                backoff=backoff,
                contention=lake.contention,
                alone=partial(lake.gate.held_by, self.info.id),
                turn=turn,
            ):
                case Ratified(entry):
                    is_staged = any(commit.staged for write in entry.writes for commit in write.commits)
                    is_published = lake.publisher.try_publish(entry, fresh=True)
                    turn.end()
                    folders = staging_folders(lake, entry) if is_staged else []
                    lake.after_commit(entry, is_published=is_published, checksums=False, folders=folders)
                    return Committed(entry.version, entry)
                case Settled(why):
                    return why
                case Unknown(entry, cause):
                    return InDoubt(entry.version, cause)
                case Exhausted(attempts):
                    return Contended(attempts)

    def propose(self) -> Proposal | Settled[Conflict | Taken | Gone]:
        """Return the entry as it would follow the newest version, or why there is none."""
        lake, location = self.lake, self.location
        head = lake.caught_up(
            lambda database: [t for t in (database.table_at(location),) if t is not None], for_write=True
        )
        if (table := _target(lake, head, location, self.version, self.creation)) is None:
            return Settled(Taken())
        check_policy(table.name, [self.actions])
        writes = {table.id: lake.past.footprint(self.actions, location, before=self.version - 1)}
        mine = Changes(self.info.id, writes=writes, isolation=self.info.isolation)
        read_version = next((info.get("readVersion", NEW) for info in bodies(self.actions, "commitInfo")), NEW)
        verdict = (
            self.around
            or taken(lake, self.info.id, self.made_elsewhere)
            or judge_statement(lake, head, mine, self.scans, read_version, views=self.views)
        )
        if isinstance(verdict, Conflict):
            return Settled(verdict)
        if (gone := self._missing(head)) is not None:
            return Settled(gone)
        draft = _entry(
            self.info,
            self.creation,
            self._write(table),
            table_reads(self.scans, head, writes, older=self.older),
            verdict,
            views=self.views,
            operation=operation_on(table.name, self.actions),
        )
        concerned = {table.id, *(scan.table for scan in self.scans)}
        is_alone = self.creation is None and verdict is None and not self.views and not self.wanted
        return Proposal(draft, head.version, partial(_unchanged, concerned, draft) if is_alone else None)

    def _missing(self, head: Database) -> Gone | None:
        """Look for the files that it adds; None if they are there.

        The old ones are looked for each time. The others are too young to be deleted, and looked for once, unless this
        process stood still since, for so long that they are old.
        """
        now, who = self.lake.clock(), f"the statement (transaction {self.info.id})"
        if self.looked_at is None or now - self.looked_at >= OLD:
            self.looked_at = now
            self.wanted = self._old(now)
            files = added_files([self.actions], self.location, self.lake.storage.url)
            if (failure := missing_files(self.lake.storage, files - self.wanted.files, who)) is not None:
                return failure
            self.lake.storage.flush(files)
        return check(self.lake, self.wanted, head, who)

    def _old(self, now: datetime) -> Wanted:
        """Return what it needs that is old enough to be deleted."""
        url, began_at, creation = self.lake.storage.url, self.info.began_at, self.creation
        wanted = old_files([self.actions], self.location, url, now, began_at=began_at)
        is_new = creation is not None and (creation.elsewhere or began_at < now - OLD)
        return replace(wanted, locations=frozenset({self.location})) if is_new else wanted

    def _write(self, table: Table) -> TableWrite:
        return TableWrite(
            id=table.id,
            name=table.name,
            location=self.location,
            from_version=table.version,
            to_version=self.version,
            commits=[store(self.lake, self.location, self.info.id, self.version, self.actions)],
            counts=total([self.actions]),
        )


def _unchanged(tables: Collection[str], draft: MakeEntry, entries: Sequence[Entry], _: Database) -> MakeEntry | None:
    """Return a statement's entry as it is, unless what this process appends meanwhile concerns its tables."""
    others = {write.id for entry in entries for write in entry.writes}
    return draft if all(map(is_light, entries)) and others.isdisjoint(tables) else None


def _target(lake: Lake, head: Database, location: str, version: int, creation: Creation | None) -> Table | None:
    """Return the table that is to get a version; None if it has that already.

    Raises:
        UndefinedError, DuplicateError, InvalidError, CorruptTimelineError: it cannot get it.
    """
    table = new_table(head, creation) if creation is not None else head.table_at(location)
    if table is None:
        raise UndefinedError(
            f"the table at {location} was dropped while the statement ran; nothing was written, and `lockstep log` "
            "shows who dropped it"
        )
    if table.version >= version:
        lake.check_reaches(table, version)
        return None
    if table.version != version - 1:
        raise InvalidError(f"table {table.name} is at version {table.version}: version {version} cannot follow")
    return table


def new_table(head: Database, creation: Creation) -> Table:
    """Return the table that a creation makes of this database.

    Raises:
        UndefinedError (3F000), DuplicateError: its namespace is gone; its name is taken.
    """
    check_name(creation.name.table)
    if creation.name.namespace not in head.namespaces:
        raise UndefinedError(
            f"there is no namespace {'.'.join(creation.name.namespace)} for table {creation.name}; nothing was "
            "written. CREATE NAMESPACE makes it",
            sqlstate="3F000",
        )
    if kind := holder(creation.name, head, case_sensitive=creation.case_sensitive):
        raise DuplicateError(
            f"{kind} {creation.name} exists; nothing was written. Choose another name, DROP it first, or CREATE … IF "
            "NOT EXISTS"
        )
    if (other := _in_the_way(head, creation)) is not None:
        raise DuplicateError(
            f"table {creation.name} cannot lie at {creation.location}, where table {other.name} is by now, at "
            f"{other.location}; nothing was written. Choose another folder"
        )
    return Table(id=creation.id, name=creation.name, location=creation.location, version=NEW, since=head.version)


def _in_the_way(head: Database, creation: Creation) -> Table | None:
    """Return a table in whose folder a new one would lie, or in whose place or around which a statement put it."""
    if creation.elsewhere:
        return next((each for each in head.tables.values() if overlap(each.location, creation.location)), None)
    above = map(head.table_at, folders_above(creation.location))
    return next((table for table in above if table is not None), None)


def _entry(
    info: TransactionInfo,
    creation: Creation | None,
    write: TableWrite,
    reads: list[TableRead],
    first: Antidependency | None,
    *,
    views: Mapping[Name, int],
    operation: str,
) -> MakeEntry:
    """Return what makes the statement's entry; `operation` stands in where its text is not known."""
    precedes = None if first is None else first.winner.database_version

    def draft(version: int, committed_at: datetime) -> Entry:
        entry = Entry(
            format=FORMAT,
            version=version,
            committed_at=committed_at,
            kind="transaction",
            transaction=structs.replace(
                info, base_version=(precedes or version) - 1, statements=info.statements or [operation]
            ),
            tables=[] if creation is None else [_ddl(creation)],
            writes=[write],
            reads=reads,
            view_reads=sorted(views),
            precedes=precedes,
        )
        return structs.replace(entry, format=entry.needed_format)

    return draft


def _ddl(creation: Creation) -> TableDdl:
    return TableDdl(
        action="create",
        id=creation.id,
        name=creation.name,
        location=creation.location,
        adopted=creation.elsewhere,
    )
