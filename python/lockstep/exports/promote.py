"""Promoting a clone: what was changed in it becomes one transaction of the lake that it was cloned from, its origin.

    1  read what the clone changed since it was made, and say it in the origin's words (`exports.promotion`)
    2  judge it against what the origin has committed since, as a transaction that began at the clone's version
    3  copy the files that the clone wrote below the origin's tables, reading each back
    4  stage the commits, and COMMIT: judged again, and ratified by one put-if-absent

Until the last step nothing of it is visible. Whoever asks again begins anew, with names of files and ids of tables that
no attempt before had: what a killed one left is litter, and upkeep that deletes it deletes nothing else. The entry
records how far the clone has been promoted, as it does for a micro-batch: the clone's export id is the application, its
database version the number. So a promotion happens once, whatever is killed, asked for twice, or done by two at once.
Version numbers do not tell one copy of a clone's folder from another, so the entry also names the clone's transaction
that made that version; whoever finds the number recorded compares it before they say that it is done.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from urllib.parse import unquote

from msgspec import structs

from lockstep.commit.commit import commit
from lockstep.commit.drafts import changes_of
from lockstep.commit.ending import undo
from lockstep.commit.keeping import KEEPER
from lockstep.commit.outcomes import Committed, DueCheckpoint, Outcome, raised
from lockstep.commit.race import Race
from lockstep.commit.row_merge import RowMerge
from lockstep.conflict.writes import ABORTED, KILLED, Conflict
from lockstep.delta.actions import bodies, render
from lockstep.delta.log import read_published, staged_path
from lockstep.delta.snapshot import Snapshot, read_snapshot
from lockstep.errors import (
    ConflictError,
    ExpiredError,
    InvalidError,
    LockstepError,
    SnapshotTooOldError,
    StaleCloneError,
    UndefinedError,
    UnsupportedError,
)
from lockstep.exports.copying import Stores, check_there, copy
from lockstep.exports.export import AT_ONCE, Counter, Progress, no_progress, open_other
from lockstep.exports.export import OpenTarget as OpenStore
from lockstep.exports.files import Copy
from lockstep.exports.plan import plan_table
from lockstep.exports.promoted import Part, Plan, Promoted
from lockstep.exports.promotion import Home, change_after, change_before, moved, name_changes
from lockstep.exports.target import claimed
from lockstep.lake.changes import is_apart
from lockstep.lake.exports import NO_EXPORT, ExportRecord, application_of, record_path
from lockstep.lake.kept_states import snapshot_of
from lockstep.lake.lake import Lake
from lockstep.retry import RACE, Backoff
from lockstep.storage import Storage
from lockstep.storage.outside import opener_of_files
from lockstep.timeline.database import Database
from lockstep.timeline.entry import NEW, Batch, Entry, Table
from lockstep.transactions.transaction import Transaction
from lockstep.workers import Workers


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
        asked_about: the clone's version that a person was shown, if one was: what was changed since is not promoted
            unseen.
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
    asked_about: int | None = None
    checkpoints: tuple[DueCheckpoint, ...] = ()
    _workers: Workers = field(default_factory=lambda: Workers(AT_ONCE, "lockstep-promote"))

    def run(self, *, dry_run: bool = False) -> Promoted:
        """Promote all that was changed in the clone since it was made, or finish what was interrupted.

        Args:
            dry_run: whether to see whether it can be, and write nothing.

        Raises:
            InvalidError: the lake is no clone; it, or another copy of it, was promoted before, and changed since; or it
                was changed since somebody was asked.
            UnsupportedError: something of it cannot be promoted; the message says what.
            UndefinedError (42704): the origin keeps nothing for this clone any more.
            StaleCloneError: the origin has changed since what the clone changed or read; nothing was committed.
            ConflictError: others were first in too many races; nothing was committed.
            MissingFilesError: files or logs of the clone are gone.
            ExpiredError: what was committed in the origin since the clone was made has expired; no other run can help.
            SnapshotTooOldError: this process has not looked for so long that it has to run it again.
            CommitUnknownError: the store does not say; running the same again finds out.
            CancelledError (57014): a person had it ended, see `lockstep.commit.records.abort`.
            LockstepError: as the stores and the timelines say. Running the same again goes on.
        """
        record = record_of(self.clone.storage)
        self._check_kept(record)
        try:
            return self._run(record, dry_run=dry_run)
        except SnapshotTooOldError as error:
            if self.origin.refresh().expired.first_kept > record.database_version + 1:
                raise _not_known(record, self.clone.storage.url) from error
            raise  # this process had not looked for long

    def _run(self, record: ExportRecord, *, dry_run: bool) -> Promoted:
        clone = self.clone.caught_up(lambda head: head.tables.values())
        if (done := self._done_before(record, clone)) is not None:
            return done
        self._check_as_shown(clone)
        plan = self._plan(record, clone, self.origin.timeline.at(record.database_version))
        if not plan.tx.staged and not plan.tx.changes_names():
            return plan.result(is_done=not dry_run)
        try:
            self._check_free(plan)
            check_there(self._stores(), [each.source for each in plan.copies], self._workers, needed=PROMOTED)
            if dry_run:
                return plan.result(is_done=False)
            with KEEPER.watching(self.origin, plan.tx):  # what is copied is in no version yet
                made = self._carry_out(plan)
        except (ConflictError, StaleCloneError):
            if (done := self._done_before(record, clone)) is not None:
                return done  # another one did the same meanwhile
            raise
        self.checkpoints = made.checkpoints
        return replace(plan.result(is_done=True), database_version=made.version)

    def _carry_out(self, plan: Plan) -> Committed:
        tx = plan.tx
        tx.copied = frozenset(each.path for each in plan.copies)
        try:
            self._copy(plan)
            for table, version, actions in plan.staged:
                self.origin.storage.put(staged_path(table.location, tx.id, version), render(actions))
            return _raised(commit(self.origin, tx, backoff=self.backoff), plan)
        except BaseException:  # a Ctrl-C among them
            if tx.is_open and tx.in_doubt is None:
                undo(self.origin, tx)
            raise

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

    def _check_as_shown(self, clone: Database) -> None:
        """Raise if the clone was changed since a person was shown what of it is to be promoted.

        Raises:
            InvalidError: it was.
        """
        shown = clone.version if self.asked_about is None else self.asked_about
        if any(map(_changes_something, self.clone.timeline.scan(shown, clone.version))):
            raise InvalidError(
                f"{self.clone.storage.url} was changed since you were asked about its database version {shown}: it is "
                f"at {clone.version} by now. Nothing was promoted. Run the same again, and look at what it says"
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
            part = self._changed(*pair, promoted_ms, tx.id)
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
                reads += [(move.id, None) for move in entry.moved]  # ours is behind what a plain writer did
            for id_, predicates in reads:
                if (table := tx.base.table_by_id(id_)) is not None:
                    tx.read_columns(table)
                    for predicate in [None] if predicates is None else predicates:
                        tx.read(table, predicate)
            for name in entry.view_reads:
                tx.read_view(name)

    def _changed(self, home: Table, table: Table, promoted_ms: int, transaction: str) -> Part:
        """Return what was done in the clone to a table of the origin's, as a transaction is to do it."""
        clone, origin = self.clone.storage, self.origin.storage
        commits = [read_published(clone, table.location, version) for version in range(1, table.version + 1)]
        now = read_snapshot(clone, table.location, table.version)
        before = self._snapshot(home)
        found = moved(Home(home, before, origin.url, promoted_ms), table, clone.url, now, commits, into=transaction)
        sizes = {unquote(body["path"]): body["size"] for each in found.commits for body in bodies(each, "add")}
        return Part(home, table, found.commits, found.own, sizes)

    def _snapshot(self, table: Table) -> Snapshot:
        try:
            return snapshot_of(self.origin.storage, table)
        except LockstepError as error:
            raise error.again(f" (table {table.name} cannot be promoted; nothing was written)") from error

    def _created(self, record: ExportRecord, clone: Database, table: Table, tx: Transaction) -> Part:
        """Return a table that was made in the clone, as the first commit of a table of the origin's."""
        exported = structs.replace(record, mode="full", source=self.clone.storage.url)
        snapshot = read_snapshot(self.clone.storage, table.location, table.version)
        # The lake has it from the promotion on; by its in-commit timestamp it is looked for by time.
        now = structs.replace(clone, committed_at=max(clone.committed_at, tx.began_at))
        planned = plan_table(exported, now, table, snapshot)
        creation = tx.reserve(table.name, self.origin.new_id())  # with the clone's id each attempt had one folder
        home = Table(id=creation.id, name=table.name, location=creation.location, version=NEW, since=tx.base.version)
        inside = f"{planned.table.location}/"  # where an export would have it, which is elsewhere if it was adopted
        copies = [
            replace(each, path=f"{creation.location}/{each.path.removeprefix(inside)}") for each in planned.copies
        ]
        return Part(home, table, [list(planned.commit)], {}, {}, copies)

    # --- whether, and how ---------------------------------------------------------------------------------------------

    def _check_free(self, plan: Plan) -> None:
        """Raise if the origin has committed what conflicts, before anything is copied.

        Raises:
            StaleCloneError: it has.
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
        for entry in origin.timeline.scan(tx.base.version, head.version):
            if not is_apart(entry, race.mine) and isinstance(lost := race.lose_to(origin.past.of(entry)), Conflict):
                _raised(lost, plan)

    def _copy(self, plan: Plan) -> None:
        stores, tell = self._stores(), Counter(self.progress, "files", len(plan.copies))

        def copy_one(file: Copy) -> None:
            plan.tx.check_usable()  # else a person had it ended
            copy(stores, self.origin.storage, file, is_new=True)  # each attempt has a folder of its own
            tell.one_more()

        self._workers.map(copy_one, plan.copies)

    def _stores(self) -> Stores:
        storage = self.clone.storage
        return Stores(storage, opener_of_files(storage, lambda url: self.open_store(url, False)))


_ONCE = (
    "A clone is promoted once: what others did in the lake meanwhile is not in it. Make a new clone of the lake, in "
    "another folder, and do there what is missing. Nothing was written"
)


def _raised(outcome: Outcome, plan: Plan) -> Committed:
    """Return what was committed, or raise what became of a promotion, see `raised`.

    What the origin has committed since the clone was made stays committed, so the same promotion loses to it for ever.

    Raises:
        StaleCloneError: it collides with that.
        LockstepError: see `raised`.
    """
    if isinstance(outcome, Conflict) and outcome.happened and outcome.rule not in (KILLED, ABORTED):
        raise StaleCloneError(
            f"{plan.record.target} is a clone of database version {plan.record.database_version} of "
            f"{plan.record.source}, and what was changed in it collides with what was committed there since: "
            f"{outcome.happened} Nothing was committed, and running it again cannot help. Make a new clone, do there "
            "what is missing, and promote that"
        )
    return raised(outcome, plan.tx.id)


def _not_known(record: ExportRecord, url: str) -> ExpiredError:
    """Return the error that nobody can judge a promotion any more, and what can be done instead."""
    return ExpiredError(
        f"{url} is a clone of database version {record.database_version} of {record.source}, and what was committed "
        "there since has expired (retention-age), so nobody can tell whether it collides with what was changed in the "
        "clone. Nothing was committed, and running it again cannot help. Make a new clone, do there what is missing, "
        "and promote that; or write the rows of the clone's tables, which can be read by their paths, into the lake's "
        "in a transaction there (MERGE, or INSERT … SELECT)"
    )


PROMOTED = (
    "the promotion",
    "Nothing was written. Restore them in the clone, or RESTORE the table there to a version that is whole",
)
"""Who needs the files of a clone, and what to do if they are gone."""


def _changes_something(entry: Entry) -> bool:
    """Tell whether a clone's entry changes what a promotion takes along; tags stay in the clone."""
    return bool(entry.namespaces or entry.tables or entry.views or entry.writes or entry.moved or entry.batch)
