"""Promoting a clone: what was changed in it becomes one transaction of the lake that it was cloned from, its origin.

    1  read what the clone changed since it was made, and say it in the origin's words (`exports.promotion`)
    2  judge it against what the origin has committed since, as a transaction that began at the clone's version
    3  copy the files that the clone wrote below the origin's tables, reading each back
    4  stage the commits, and COMMIT: judged again, and ratified by one put-if-absent

Until the last step nothing of it is visible, and whoever asks again goes on with the files that are copied. The entry
records how far the clone has been promoted, as it does for a micro-batch: the clone's export id is the application, its
database version the number. So a promotion happens once, whatever is killed, asked for twice, or done by two at once.
Version numbers do not tell one copy of a clone's folder from another, so the entry also names the clone's transaction
that made that version; whoever finds the number recorded compares it before they say that it is done.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from urllib.parse import unquote

from msgspec import structs

from lockstep.commit.commit import commit
from lockstep.commit.drafts import Draft, changes_of, draft_of
from lockstep.commit.outcomes import DueCheckpoint, raised
from lockstep.commit.race import Race
from lockstep.commit.row_merge import RowMerge
from lockstep.conflict.writes import Conflict
from lockstep.delta.actions import Action, bodies, render
from lockstep.delta.combine.deletion_vectors import file_path
from lockstep.delta.log import read_published, staged_path
from lockstep.delta.snapshot import Snapshot, read_snapshot
from lockstep.errors import (
    ConflictError,
    InvalidError,
    LockstepError,
    SnapshotTooOldError,
    UndefinedError,
    UnsupportedError,
)
from lockstep.exports.copying import Stores, check_there, copy
from lockstep.exports.export import AT_ONCE, Counter, Progress, no_progress, open_other
from lockstep.exports.export import OpenTarget as OpenStore
from lockstep.exports.files import Copy, Place, is_absolute
from lockstep.exports.plan import plan_table
from lockstep.exports.promotion import Home, NameChanges, change_after, change_before, moved, name_changes
from lockstep.exports.target import claimed
from lockstep.lake.changes import is_apart
from lockstep.lake.exports import NO_EXPORT, ExportRecord, application_of, record_path
from lockstep.lake.lake import Lake
from lockstep.retry import RACE, Backoff
from lockstep.storage import Storage
from lockstep.timeline.database import Database
from lockstep.timeline.entry import NEW, Batch, Entry, Table
from lockstep.transactions.transaction import Transaction
from lockstep.workers import Workers


@dataclass(frozen=True, slots=True)
class Promoted:
    """What a promotion came to.

    Attributes:
        clone, origin: the URLs of the two lakes.
        clone_version: the clone's database version that is promoted.
        base_version: the origin's version that the clone was made of.
        database_version: the one that it made in the origin; None if it made none, because only that was asked for, or
            nothing was changed.
        tables: how many tables were changed, made, dropped or renamed.
        files, size: how many files were to be copied, and their bytes as far as logs say.
        is_done: False if nothing was written because only that was asked for.
    """

    clone: str
    origin: str
    clone_version: int
    base_version: int
    database_version: int | None
    tables: int
    files: int
    size: int
    is_done: bool


def record_of(storage: Storage) -> ExportRecord:
    """Return what a clone was made of.

    Raises:
        InvalidError: the lake is no clone.
        UnsupportedError: it is a full export.
    """
    record = claimed(storage)
    if record is None:
        raise InvalidError(f"{storage.url} is no clone, so there is no lake that it could be promoted to")
    if record.mode != "partial":
        raise UnsupportedError(
            f"{storage.url} is a {record.mode} export, and only a clone (a partial export) can be promoted"
        )
    return record


def comment_of(record: ExportRecord, url: str, made_by: Entry) -> str:
    """Return what the origin's entry says of a promotion.

    Args:
        record, url: of the clone.
        made_by: the clone's entry that made the version that is promoted.
    """
    return (
        f"promoted from {url}, database version {made_by.version} (export {record.id}, "
        f"transaction {made_by.transaction.id})"
    )


def is_promotion_of(promotion: Entry, made_by: Entry) -> bool:
    """Tell whether the origin's entry of a promotion names this entry of the clone, see `comment_of`."""
    return promotion.transaction.message.endswith(f", transaction {made_by.transaction.id})")


@dataclass(slots=True)
class Promoter:
    """Promotes one clone.

    Attributes:
        clone, origin: the two lakes.
        open_store: how stores are opened that are neither's, of files that a new table of the clone names.
        author, application, statement: for the origin's entry.
        case_sensitive: whether names that differ in case alone are two in the origin.
        backoff: how often COMMIT is tried while others win the race.
        progress: who is told how far it is.
        checkpoints: after `run`, which versions of the origin's tables Delta would write checkpoints of; without Spark
            nobody does.
    """

    clone: Lake
    origin: Lake
    open_store: OpenStore = open_other
    author: str = ""
    application: str = ""
    statement: str = ""
    case_sensitive: bool = False
    backoff: Backoff = RACE
    progress: Progress = no_progress
    checkpoints: tuple[DueCheckpoint, ...] = ()
    _workers: Workers = field(default_factory=lambda: Workers(AT_ONCE, "lockstep-promote"))

    def run(self, *, dry_run: bool = False) -> Promoted:
        """Promote all that was changed in the clone since it was made, or finish what was interrupted.

        Args:
            dry_run: whether to see whether it can be, and write nothing.

        Raises:
            InvalidError: the lake is no clone; it, or another copy of it, was promoted before, and changed since.
            UnsupportedError: something of it cannot be promoted; the message says what.
            UndefinedError (42704): the origin keeps nothing for this clone any more.
            ConflictError: the origin has changed meanwhile what the clone changed or read; nothing was committed.
            MissingFilesError: files or logs of the clone are gone.
            SnapshotTooOldError: what was committed in the origin since the clone was made has expired.
            CommitUnknownError: the store does not say; running the same again finds out.
            LockstepError: as the stores and the timelines say. Running the same again goes on.
        """
        record = record_of(self.clone.storage)
        self._check_kept(record)
        clone = self.clone.caught_up(lambda head: head.tables.values())
        if (done := self._done_before(record, clone)) is not None:
            return done
        plan = self._plan(record, clone, self.origin.timeline.at(record.database_version))
        if not plan.tx.staged and not plan.tx.changes_names():
            return plan.result(is_done=not dry_run)
        try:
            self._check_free(plan)
            check_there(self._stores(), [each.source for each in plan.copies], self._workers, needed=PROMOTED)
            if dry_run:
                return plan.result(is_done=False)
            self._copy(plan)
            for table, version, actions in plan.staged:
                self.origin.storage.put(staged_path(table.location, plan.tx.id, version), render(actions))
            made = raised(commit(self.origin, plan.tx, backoff=self.backoff), plan.tx.id)
        except ConflictError:
            if (done := self._done_before(record, clone)) is not None:
                return done  # another one did the same meanwhile
            raise
        self.checkpoints = made.checkpoints
        return replace(plan.result(is_done=True), database_version=made.version)

    # --- what is there ------------------------------------------------------------------------------------------------

    def _check_kept(self, record: ExportRecord) -> None:
        if record.source != self.origin.storage.url:
            raise InvalidError(f"{self.clone.storage.url} is a clone of {record.source}, not {self.origin.storage.url}")
        if self.origin.storage.get(record_path(record.id)) is None:
            raise UndefinedError(
                f"{record.source} has no record of the clone {self.clone.storage.url} (export {record.id}): it was "
                "dropped, or the lake is another one. What the clone began with may be gone, so it cannot be promoted",
                sqlstate=NO_EXPORT,
            )

    def _done_before(self, record: ExportRecord, clone: Database) -> Promoted | None:
        """Return what an earlier promotion came to; None if there was none.

        Raises:
            InvalidError: something was changed in the clone since; what was promoted is another copy of the clone; or
                nobody can tell.
        """
        promoted = self.origin.refresh().batches.get(application_of(record))
        if promoted is None:
            return None
        url = self.clone.storage.url
        made, made_by = self._entry_of(record), self._clone_entry(promoted, clone)
        if made is None or (made_by is None and promoted <= clone.version):
            raise InvalidError(
                f"clone {record.id} was promoted to {record.source} at database version {promoted}, and the entries "
                f"that say whether {url} is what was promoted have expired. {_ONCE}"
            )
        if made_by is None or not is_promotion_of(made, made_by):
            raise InvalidError(
                f"another copy of {url} was promoted as database version {made.version} of {record.source}: it has the "
                f"same export id, {record.id}, and its database version {promoted} is not one of this copy. {_ONCE}"
            )
        if any(map(_changes_something, self.clone.timeline.scan(promoted))):
            raise InvalidError(
                f"{url} was promoted at its database version {promoted}, which is database version {made.version} of "
                f"{record.source}, and changed since. {_ONCE}"
            )
        tables = len({*(write.id for write in made.writes), *(ddl.id for ddl in made.tables)})
        return Promoted(*(url, record.source, promoted, record.database_version, made.version, tables, 0, 0, True))

    def _entry_of(self, record: ExportRecord) -> Entry | None:
        """Return the entry that promoted the clone; None if it has expired."""
        name, timeline = application_of(record), self.origin.timeline
        since = max(record.database_version, timeline.head.expired.first_kept - 1)
        entries = timeline.newest_first(since, timeline.head.version)
        return next((each for each in entries if each.batch is not None and each.batch.application == name), None)

    def _clone_entry(self, version: int, clone: Database) -> Entry | None:
        """Return the entry of the clone that made a version; None if it has not come to that, or it has expired."""
        if not clone.expired.first_kept <= version <= clone.version:
            return None
        return next(self.clone.timeline.newest_first(version - 1, version))

    # --- what is to be done -------------------------------------------------------------------------------------------

    def _plan(self, record: ExportRecord, clone: Database, then: Database) -> Plan:
        changes = name_changes(then, clone)
        tx = self._begin(record, clone, then)
        plan = Plan(record, clone, tx, changes)
        self._note_reads(tx)
        tx.change_names(partial(change_before, changes=changes, clone=clone))
        before = {table.id: table for table in then.tables.values()}
        both = [(before[t.id], t) for t in clone.tables.values() if t.id in before and t.version > 0]
        tell = Counter(self.progress, "tables", len(both) + len(changes.created))
        promoted_ms = int(tx.began_at.timestamp() * 1000)

        def changed(pair: tuple[Table, Table]) -> Part:
            part = self._changed(*pair, promoted_ms)
            tell.one_more()
            return part

        for part in self._workers.map(changed, sorted(both, key=lambda pair: pair[1].name)):
            plan.take(self.origin, part, self.clone.storage.url)
        for table in changes.created:
            plan.take(self.origin, self._created(record, clone, table, tx), self.clone.storage.url)
            tell.one_more()
        tx.change_names(partial(change_after, changes=changes))
        return plan

    def _begin(self, record: ExportRecord, clone: Database, then: Database) -> Transaction:
        tx = Transaction(
            id=self.origin.new_id(),
            base=then,
            began_at=self.origin.clock(),
            isolation="SERIALIZABLE",
            batch=Batch(application=application_of(record), number=clone.version),
            comment=comment_of(record, self.clone.storage.url, self._last(clone)),
            author=self.author,
            application=self.application,
            case_sensitive=self.case_sensitive,
            keeps_files=True,
        )
        tx.note_statement(self.statement)
        return tx

    def _last(self, clone: Database) -> Entry:
        """Return the entry that made the clone's version: the newest one never expires."""
        return next(self.clone.timeline.newest_first(clone.version - 1, clone.version))

    def _note_reads(self, tx: Transaction) -> None:
        """Note what the clone's transactions have read of the tables and views that it began with."""
        try:
            entries = [*self.clone.timeline.scan(0)]
        except SnapshotTooOldError:  # what they read has expired with them
            for each in tx.base.tables.values():
                tx.read(each)
            for name in tx.base.views:
                tx.read_view(name)
            return
        if entries and all(entry.transaction.isolation == "SNAPSHOT" for entry in entries):
            tx.isolation = "SNAPSHOT"
        for entry in entries:
            reads: list[tuple[str, list[str] | None]] = [(read.id, read.predicates) for read in entry.reads]
            if entry.kind == "external":
                reads += [(write.id, None) for write in entry.writes]
            for id_, predicates in reads:
                if (table := tx.base.table_by_id(id_)) is not None:
                    tx.read_columns(table)
                    for predicate in [None] if predicates is None else predicates:
                        tx.read(table, predicate)
            for name in entry.view_reads:
                tx.read_view(name)

    def _changed(self, home: Table, table: Table, promoted_ms: int) -> Part:
        """Return what was done in the clone to a table of the origin's."""
        clone, origin = self.clone.storage, self.origin.storage
        commits = [read_published(clone, table.location, version) for version in range(1, table.version + 1)]
        now = read_snapshot(clone, table.location, table.version)
        before = self._snapshot(home)
        found = moved(Home(home, before, origin.url, promoted_ms), table, clone.url, now, commits)
        sizes = {unquote(body["path"]): body["size"] for each in found.commits for body in bodies(each, "add")}
        return Part(home, table, found.commits, found.own, sizes)

    def _snapshot(self, table: Table) -> Snapshot:
        try:
            return read_snapshot(self.origin.storage, table.location, table.version)
        except LockstepError as error:
            raise error.again(f" (table {table.name} cannot be promoted; nothing was written)") from error

    def _created(self, record: ExportRecord, clone: Database, table: Table, tx: Transaction) -> Part:
        """Return a table that was made in the clone, as the first commit of a table of the origin's."""
        exported = structs.replace(record, mode="full", source=self.clone.storage.url)
        snapshot = read_snapshot(self.clone.storage, table.location, table.version)
        planned = plan_table(exported, clone, table, snapshot)
        creation = tx.reserve(table.name, table.id)
        home = Table(id=table.id, name=table.name, location=creation.location, version=NEW, since=tx.base.version)
        inside = f"{planned.table.location}/"  # where an export would have it, which is elsewhere if it was adopted
        copies = [
            replace(each, path=f"{creation.location}/{each.path.removeprefix(inside)}") for each in planned.copies
        ]
        return Part(home, table, [list(planned.commit)], set(), {}, copies)

    # --- whether, and how ---------------------------------------------------------------------------------------------

    def _check_free(self, plan: Plan) -> None:
        """Raise if the origin has committed what conflicts, before anything is copied.

        Raises:
            ConflictError: it has.
        """
        tx, origin = plan.tx, self.origin
        tables = {table.id for table, *_ in plan.staged}
        head = origin.caught_up(lambda head: [t for t in map(head.table_by_id, tables) if t is not None])
        sources = {each.path: each.source for each in plan.copies}

        def read(path: str) -> bytes | None:
            there = sources.get(path)
            return origin.storage.get(path) if there is None else self._stores().of(there).get(there.path)

        locations = {draft.table.id: draft.table.location for draft in plan.drafts}
        merge = RowMerge(origin.storage, locations, seed=tx.id, vector_files=set(), read=read)
        race = Race(changes_of(tx, plan.drafts), tx.base.version, merge)
        for entry in origin.timeline.entries(tx.base.version, head.version):
            if not is_apart(entry, race.mine) and isinstance(lost := race.lose_to(origin.past.of(entry)), Conflict):
                raised(lost, tx.id)

    def _copy(self, plan: Plan) -> None:
        stores, tell = self._stores(), Counter(self.progress, "files", len(plan.copies))

        def copy_one(file: Copy) -> None:
            copy(stores, self.origin.storage, file)
            tell.one_more()

        self._workers.map(copy_one, plan.copies)

    def _stores(self) -> Stores:
        return Stores(self.clone.storage, lambda url: self.open_store(url, False))


_ONCE = (
    "A clone is promoted once: what others did in the lake meanwhile is not in it. Make a new clone of the lake, in "
    "another folder, and do there what is missing. Nothing was written"
)

PROMOTED = (
    "the promotion",
    "Nothing was written. Restore them in the clone, or RESTORE the table there to a version that is whole",
)
"""Who needs the files of a clone, and what to do if they are gone."""


def _changes_something(entry: Entry) -> bool:
    """Tell whether a clone's entry changes what a promotion takes along; tags stay in the clone."""
    return bool(entry.namespaces or entry.tables or entry.views or entry.writes or entry.batch)


def named_below(commits: Iterable[Sequence[Action]], location: str, root: str) -> set[str]:
    """Return the files below a table's folder that commits bring or name: data, changes and deletion vectors.

    Returns:
        Paths relative to that folder.
    """
    files: set[str] = set()
    actions = [*itertools.chain.from_iterable(commits)]
    for body in (*bodies(actions, "add"), *bodies(actions, "cdc")):
        if not is_absolute(body["path"]):
            files.add(unquote(body["path"]))
        vector = body.get("deletionVector")
        if vector is not None and vector["storageType"] == "u":
            files.add(file_path(vector, location=location, root=root).removeprefix(f"{location}/"))
    return files


# --- values -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """What is to be promoted of one table.

    Attributes:
        home: the table in the origin; at version `NEW`, if it is made there.
        table: the table in the clone.
        commits: as on top of `home`.
        own: the files of the clone's that they name, below the table's folder.
        sizes: by such a path, what the commits say of data files.
        copies: what is to be copied, of a new table; of others it follows from what is left of the commits.
    """

    home: Table
    table: Table
    commits: Sequence[list[Action]]
    own: set[str]
    sizes: dict[str, int]
    copies: Sequence[Copy] = ()


@dataclass(slots=True)
class Plan:
    """What a promotion is to do.

    Attributes:
        record, clone: what the clone was made of, and its database version.
        tx: the origin's transaction.
        changes: what became of names.
        staged: the commits that are to be staged, with the table as the transaction sees it and the table version.
        drafts: what is left of them, by table.
        copies: the files that are to be copied.
    """

    record: ExportRecord
    clone: Database
    tx: Transaction
    changes: NameChanges
    staged: list[tuple[Table, int, list[Action]]] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)

    def take(self, origin: Lake, part: Part, root: str) -> None:
        """Take what is to be promoted of a table into the transaction.

        Args:
            root: the clone's, as a URL.

        Raises:
            LockstepError: see `draft_of` and `Transaction.stage`.
        """
        table = self.tx.names.table_at(part.home.location) or part.home
        draft = draft_of(origin, self.tx, table, part.commits)
        if draft is None:
            return
        self.drafts.append(draft)
        for actions in part.commits:
            version = self.tx.next_version(table.location)
            self.tx.stage(table.location, version, render(actions).decode())
            self.staged.append((table, version, actions))
        self.copies += part.copies
        # Not `draft.files`: it leaves out what a commit says that the table has, which is true in the clone alone.
        for below in sorted(part.own & named_below(draft.commits, table.location, origin.storage.url)):
            place = Place(root, f"{part.table.location}/{below}")
            self.copies.append(Copy(place, f"{table.location}/{below}", part.sizes.get(below)))

    def result(self, *, is_done: bool) -> Promoted:
        """Return what it comes to, but for the version that it makes."""
        changes = self.changes
        touched = {t.id for t in (*changes.created, *changes.dropped, *changes.renamed)} | {
            draft.table.id for draft in self.drafts
        }
        return Promoted(
            clone=self.record.target,
            origin=self.record.source,
            clone_version=self.clone.version,
            base_version=self.record.database_version,
            database_version=None,
            tables=len(touched),
            files=len(self.copies),
            size=sum(copy.size or 0 for copy in self.copies),
            is_done=is_done,
        )
