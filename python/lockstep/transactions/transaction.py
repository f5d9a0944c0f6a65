"""A transaction before it commits: the database as it sees it, and what it did so far. Values only, no storage.

    REQUESTED ──first staged write──▶ INFLIGHT ──▶ COMPLETED | ROLLED_BACK
        └──────────────────────────────────────────▶

What it sees is its snapshot with its own changes on top. The snapshot is the database version at BEGIN, or a later one
in which all that the transaction has seen is the same (`lockstep.transactions.seen`). What it staged is kept as table
versions only; the commits themselves lie in the tables' staging folders.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from lockstep.delta.pruning.row_sets import NO_ROW, RowsRead, predicates_of, with_older
from lockstep.errors import (
    CancelledError,
    FailedTransactionError,
    InvalidError,
    NoTransactionError,
    ReadOnlyError,
    TransactionStateError,
)
from lockstep.timeline.database import Database
from lockstep.timeline.entry import (
    NEW,
    Batch,
    Entry,
    Isolation,
    Name,
    Namespace,
    Table,
    TableRead,
    TransactionInfo,
    View,
)
from lockstep.transactions.contents import Contents
from lockstep.transactions.creations import Creation, Creations
from lockstep.transactions.folders import new_location
from lockstep.transactions.limits import TimedOut, Timing
from lockstep.transactions.names import Names
from lockstep.transactions.savepoint import Savepoint, Savepoints, Undone
from lockstep.transactions.seen import Seen
from lockstep.transactions.state import State
from lockstep.transactions.statements import note

T = TypeVar("T")


@dataclass
class Transaction:
    """One transaction's view and changes; not for use by two threads at once: who uses it has a lock.

    Attributes:
        id: unique for ever.
        base: its snapshot.
        began_at: when, UTC.
        refusal: why it may not write though nobody said READ ONLY; empty if it may.
        dry_run: whether it only looks what something would come to: names may be changed, be the lake only to be read,
            and nothing is staged or committed.
        record_reads: whether what it read is judged, and goes into the timeline, even if it changes nothing.
        batch: the micro-batch that it carries out, if it is one: its entry records it.
        epoch: how often it went back to a savepoint; its URIs differ from one to the next.
        staged: by table id, the versions that Delta staged, in order; they follow the pin without a gap.
        names: what the names of tables, views and namespaces mean to it; `changing` is how to change that. Who looks
            there has to note what it was told in `seen`.
        seen: what it has seen of its snapshot.
        creations: the tables that it made, or began to make.
        failure: what the first failed write said, once one failed, after which only a rollback is left.
        failed_statement: what a statement said that failed and left nothing behind; going back to a savepoint from
            before it makes that good.
        in_doubt: the database version that a COMMIT tried to write without learning whether it did; None once that is
            settled. Until then the transaction is neither changed nor cleaned up: it may be committed.
        vectors: files of deletion vectors that COMMIT wrote for it, relative to the lake's root.
        written_vectors: those that its own statements wrote without Spark, which a rollback removes.
        copied: the files that a promotion copied for it, relative to the lake's root: all that a rollback removes of
            tables that it did not make. None for any other transaction, whose staged commits say what it wrote.
        claimed: the locations of tables that it claimed for its lake, or found claimed, see `lockstep.lake.claims`.
        notes_guests: whether it may have written down folders that are not its lake's, see `lockstep.commit.guests`.
        is_noted: whether it is kept that and why it was rolled back, see `lockstep.commit.ended`.
        ended_by: who had it ended, and why, once that is known; it can only be rolled back then. That it cannot commit
            the timeline says.
        timing: what is known of how long it takes, if it may not take for ever and no session looks after it.
        timed_out: why it was rolled back, if it took too long.
        lock: without Spark it is held while a write, COMMIT or ROLLBACK of it runs, of one that has a `timing` any
            statement, and while somebody rolls it back unasked; a session's host has one of its own.
        state, version: see `State`; the database version that it committed, the snapshot's if that changed nothing.
    """

    id: str
    base: Database
    began_at: datetime
    isolation: Isolation = "SERIALIZABLE"
    read_only: bool = False
    refusal: str = ""
    dry_run: bool = False
    record_reads: bool = False
    batch: Batch | None = None
    comment: str = ""
    author: str = ""
    application: str = ""
    epoch: int = 0
    staged: dict[str, list[int]] = field(default_factory=dict)
    case_sensitive: bool = True
    failure: str | None = None
    failed_statement: str | None = None
    in_doubt: int | None = None
    vectors: set[str] = field(default_factory=set)
    written_vectors: set[str] = field(default_factory=set)
    copied: frozenset[str] | None = None
    claimed: set[str] = field(default_factory=set)
    notes_guests: bool = False
    is_noted: bool = False
    ended_by: str | None = None
    timing: Timing | None = None
    timed_out: TimedOut | None = None
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False, compare=False)
    state: State = State.REQUESTED
    version: int | None = None
    statements: list[str] = field(default_factory=list)
    names: Names = field(init=False)
    seen: Seen = field(init=False)
    creations: Creations = field(init=False, default_factory=Creations)
    _reads: RowsRead = field(init=False, default_factory=RowsRead)
    _view_reads: set[Name] = field(init=False, default_factory=set)
    _older_reads: set[str] = field(init=False, default_factory=set)
    _contents: Contents = field(init=False, default_factory=Contents)
    _looked_at: set[str] = field(init=False, default_factory=set)
    _savepoints: Savepoints = field(init=False)

    def __post_init__(self) -> None:
        self.names = Names(self.base, case_sensitive=self.case_sensitive)
        self.seen = Seen(self.id, None if self.batch is None else self.batch.application)
        self._savepoints = Savepoints(self.id)

    def __repr__(self) -> str:
        done = f", {len(self.staged)} tables written" if self.staged else ""
        return f"<Transaction {self.id} {self.state} {self.isolation} from database version {self.base.version}{done}>"

    # --- what it sees -------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether it can still do anything."""
        return self.state in (State.REQUESTED, State.INFLIGHT)

    @property
    def is_replay(self) -> bool:
        """Whether its micro-batch was done before it began: whatever it does, COMMIT changes nothing."""
        return self.batch is not None and self.base.has_batch(self.batch)

    @property
    def tables(self) -> Mapping[Name, Table]:
        """The tables that it sees. A table's `version` is its pin: that of the snapshot, `NEW` for one of its own.

        Whoever looks through all of them has seen every name; `table` and `see` are for one.
        """
        self.seen.every_name = True
        return self.names.tables

    @property
    def views(self) -> Mapping[Name, View]:
        """The views that it sees, as `tables`; of one that it made itself, `since` is the snapshot's version then."""
        self.seen.every_name = True
        return self.names.views

    def like(self, key: Name) -> list[Name]:
        """Return the names of tables and views that it sees that are `key` where case does not count."""
        self.seen.every_name = True
        return self.names.like(key)

    @property
    def namespaces(self) -> Mapping[Namespace, Mapping[str, str]]:
        """The namespaces that it sees, with their properties."""
        self.seen.namespaces = True
        return self.names.namespaces

    def see(self, name: Name) -> Name:
        """Note that it is told what a name means, and return the name."""
        self.seen.add_name(name)
        return name

    def table(self, name: Name, *, usable: bool = True) -> Table:
        """Return a table that it sees, and is about to use.

        Raises:
            UndefinedError: it sees none of that name.
            ForeignCommitError, UnavailableError, CorruptTimelineError: it is set aside in the snapshot. If that is
                mended, it may be at another version than the snapshot says; to drop or rename it needs no `usable`
                table.
        """
        table = self.names.table(self.see(name))
        self.seen.tables.add(table.id)
        if usable:
            self.base.refuse_aside(table, f" (so it was when transaction {self.id} began: ROLLBACK, and begin again)")
        return table

    @property
    def is_fixed(self) -> bool:
        """Whether what it sees stays as it is, for it knows which database version that is."""
        return self.seen.last_version

    def to_look_at(self, names: Iterable[Name]) -> list[Table]:
        """Return those of these tables of the snapshot whose logs nobody has looked at for this transaction."""
        if not self.is_open or self.in_doubt is not None:
            return []
        tables = [self.names.tables.get(name) for name in names]
        return [
            table
            for table in tables
            if table is not None
            and table.version != NEW
            and not self.names.is_returned(table)
            and table.id not in self._looked_at | self.seen.tables
            and table.id not in self.base.set_aside
        ]

    def looked_at(self, tables: Iterable[Table]) -> None:
        """Note that the logs of tables were looked at: what plain Delta writers do from now on, it does not see."""
        self._looked_at |= {table.id for table in tables}

    def move_to(self, base: Database, entries: Iterable[Entry]) -> None:
        """Go on with a later snapshot, which `seen` does not tell from the one before.

        Args:
            base: the database version.
            entries: those that made it of the snapshot before.
        """
        written: set[str] = set()
        for entry in entries:
            written |= {write.id for write in entry.writes} | {move.id for move in entry.moved}
        for names in (self.names, *(point.names for point in self._savepoints)):
            names.move_to(base, written)
        self.base = base

    def has_written(self, table: Table) -> bool:
        """Whether reads of the table must see staged commits."""
        return table.id in self.staged

    def touch(self, table: Table, number: int | None = None) -> None:
        """Note that a statement loads the table: it may read any row, unless this very use of it is settled."""
        self.seen.tables.add(table.id)
        self._reads.touch(table.id, number)

    def settle(self, numbers: Iterable[int], unused: Iterable[int] = ()) -> None:
        """Note of which uses of tables all is known: they read columns, and the rows that `read` notes.

        Args:
            unused: the uses that did not come about. What was seen stays seen.
        """
        self._reads.settle(numbers)
        self._reads.forget(unused)

    def read(self, table: Table, predicate: str | None = None) -> None:
        """Note that rows of the table were read: those that satisfy the predicate, or any."""
        self.seen.tables.add(table.id)
        self._reads.add(table.id, predicate)

    def read_older(self, id: str) -> None:
        """Note that rows of a table were read, perhaps as it had been before, or what had changed in it.

        It conflicts with nobody, and is recorded of the tables alone that the transaction writes: `lockstep revert`
        does not leave rows in a table that were made of those which it takes away.
        """
        self._older_reads.add(id)

    def read_columns(self, table: Table) -> None:
        """Note that it was asked which columns the table has."""
        self.seen.tables.add(table.id)
        self._reads.add_columns(table.id)

    def read_view(self, name: Name) -> None:
        """Note that a query used the definition of the view; one that it made or replaced itself is nobody else's."""
        self.see(name)
        if name in self.base.views and self.names.views.get(name) == self.base.views[name]:
            self._view_reads.add(name)

    def note_statement(self, text: str) -> None:
        """Keep a statement's text for the entry, bounded; an analysis that runs twice says it once."""
        note(self.statements, text)

    # --- what it does -------------------------------------------------------------------------------------------------

    def complete(self, version: int) -> None:
        """Note that it is committed as this database version; the snapshot's if it changed nothing."""
        self.state, self.version = State.COMPLETED, version

    def check_usable(self) -> None:
        """Raise unless it is open, and not in doubt.

        Raises:
            NoTransactionError: it has ended.
            FailedTransactionError (25P03, 25P04): it took too long, and was rolled back.
            CancelledError (57014): a person had it ended.
            TransactionStateError: nobody knows whether its COMMIT landed.
        """
        self.check_in_time()
        if not self.is_open:
            raise NoTransactionError(f"transaction {self.id} has ended ({self.state}); begin another")
        if self.ended_by is not None:
            raise CancelledError(
                f"transaction {self.id} was ended: {self.ended_by}. Nothing of it is committed; roll it back, and ask "
                "why before you run it again"
            )
        if self.in_doubt is not None:
            raise TransactionStateError(
                f"the store did not say whether transaction {self.id} was committed as database version "
                f"{self.in_doubt}, so nothing can be added to it; COMMIT again to find out, or ROLLBACK"
            )

    def check_in_time(self) -> None:
        """Raise FailedTransactionError (25P03, 25P04) if it was rolled back for it took too long."""
        if self.timed_out is not None:
            raise FailedTransactionError(
                f"transaction {self.id} was rolled back: {self.timed_out.why}. Begin another",
                sqlstate=self.timed_out.sqlstate,
            )

    def check_writable(self) -> None:
        """Raise unless it may change something.

        Raises:
            NoTransactionError, TransactionStateError: see `check_usable`.
            ReadOnlyError: it was begun READ ONLY, or the lake can only be read.
            FailedTransactionError: a write of it failed; only ROLLBACK helps.
        """
        self.check_usable()
        if self.read_only:
            raise ReadOnlyError(
                "this transaction was begun READ ONLY; COMMIT or ROLLBACK it and begin one that may write"
            )
        if self.refusal and not self.dry_run:
            raise ReadOnlyError(self.refusal)
        self.check_sound()

    def check_not_dry(self) -> None:
        """Raise ReadOnlyError if it only looks."""
        if self.dry_run:
            raise ReadOnlyError(f"transaction {self.id} only looks what would become of what: it can be rolled back")

    def check_sound(self) -> None:
        """Raise if a write of this transaction failed."""
        self._check_not_lost()
        if self.failed_statement is not None:
            raise FailedTransactionError(
                "a write of this transaction failed, so nothing is left but to roll it back, or to go back to a "
                f"savepoint from before. The failure was: {self.failed_statement}"
            )

    def _check_not_lost(self) -> None:
        if self.failure is not None:
            raise FailedTransactionError(
                f"a write of this transaction failed, so it can only be rolled back. The failure was: {self.failure}"
            )

    def next_version(self, location: str) -> int:
        """Return which version of a table Delta may stage next: one more than it sees, the first of a reserved one.

        Raises:
            InvalidError, DuplicateError (42P07): no table of this transaction; the name of a reserved one was taken.
        """
        self.check_writable()
        table = self._table_at(location)
        return [table.version, *self.staged.get(table.id, [])][-1] + 1

    def stage(self, location: str, version: int, content: str | None = None) -> Table:
        """Note a commit that Delta staged, of the `next_version`, and return the table; a reserved one is real now.

        Args:
            content: what it says, kept for `staged_content` as long as there is room.
        """
        self.check_not_dry()
        if version != (expected := self.next_version(location)):
            raise InvalidError(f"table folder {location}: version {version} was staged where {expected} was expected")
        table = self._table_at(location)
        (self.names.create_elsewhere if self.creations.is_elsewhere(table) else self.names.put)(table)
        self.staged.setdefault(table.id, []).append(version)
        self._contents.keep(table.id, version, content)
        self.state = State.INFLIGHT
        return table

    def staged_content(self, table: Table, version: int) -> str | None:
        """Return what a staged commit says; None if that is not in memory."""
        return self._contents.of(table.id, version)

    def staged_bytes(self) -> int:
        """Return how large the data files are that it has written, as far as its staged commits are in memory."""
        return self._contents.bytes_added()

    def _table_at(self, location: str) -> Table:
        if (table := self.names.table_at(location)) is not None:
            return table
        if (creation := self.creations.at(location)) is None:
            raise InvalidError(f"nothing at {location} belongs to transaction {self.id}")
        self.names.check_free(creation.name)
        return Table(id=creation.id, name=creation.name, location=location, version=NEW, since=self.base.version)

    def reserve(self, name: Name, id: str, elsewhere: str | None = None) -> Creation:
        """Choose where a new table of this name will lie; `stage` of its first version makes it real.

        Args:
            elsewhere: where, if a statement says so, see `lockstep.adoption.making`.

        Raises:
            UndefinedError (3F000), DuplicateError (42P07): no such namespace; the name is taken, or see `check_place`.
        """
        self.check_writable()
        self.seen.every_name = True
        self.names.check_free(name)
        if elsewhere is not None:
            self.check_place(name, elsewhere)
        location = elsewhere or new_location(name, id, self._is_taken)
        creation = Creation(id=id, name=name, location=location, elsewhere=elsewhere is not None)
        self.creations.add(creation)
        return creation

    def _is_taken(self, folder: str) -> bool:
        return self.creations.at(folder) is not None or self.names.table_at(folder) is not None

    def check_place(self, name: Name, location: str) -> None:
        """Raise unless a new table may lie where a statement says, see `Creations.check_place`."""
        self.creations.check_place(name, location, staged=self.staged, dropped=self.dropped_tables)

    def changing(self) -> Names:
        """Return the names that it sees, to be changed.

        Raises:
            NoTransactionError, TransactionStateError, ReadOnlyError, FailedTransactionError: see `check_writable`.
        """
        self.check_writable()
        self.state = State.INFLIGHT
        self.seen.every_name = True
        return self.names

    def change_names(self, change: Callable[[Names], T]) -> T:
        """Make several changes of names, all or none; return what the last one says.

        Raises:
            LockstepError: as `change` says, or see `changing`; the names are as they were.
        """
        names = self.changing().copied()
        answer = change(names)
        self.names = names
        return answer

    @contextmanager
    def looking(self) -> Iterator[None]:
        """See what changes of names would come to: those that `change_names` makes inside are taken back behind it."""
        names, state, dry_run = self.names, self.state, self.dry_run
        self.dry_run = True
        try:
            yield
        finally:
            self.names, self.state, self.dry_run = names, state, dry_run

    # --- savepoints ---------------------------------------------------------------------------------------------------

    def savepoint(self, name: str) -> None:
        """Remember what it has done so far. A name that is taken hides the older savepoint until it is released.

        Raises:
            FailedTransactionError: a write failed: go back to an older savepoint first.
            InvalidError: there are `MAX_SAVEPOINTS`.
        """
        self.check_usable()
        self.check_sound()
        self._savepoints.add(
            Savepoint(
                name=name.casefold(),
                staged={id: tuple(versions) for id, versions in self.staged.items()},
                names=self.names.copied(),
                creations=self.creations.copied(),
                vectors=frozenset(self.written_vectors),
                statements=tuple(self.statements),
            )
        )

    def go_back_to(self, name: str) -> Undone:
        """Go back to a savepoint, which stays; those after it are gone. What was read since stays read.

        Raises:
            UndefinedError (3B001): it has no such savepoint.
            FailedTransactionError: another transaction ended this one, or an earlier undo failed.
        """
        self.check_usable()
        self._check_not_lost()
        point = self._savepoints.go_back_to(name)
        self.failed_statement = None  # each savepoint that there is, is from before: none is set after a failure
        by_id = {table.id: table for table in self.dropped_tables}
        for names in (self.names, point.names):
            by_id |= {id: table for id in self.staged if (table := names.table_by_id(id)) is not None}
        undone = point.undone(
            self.staged, by_id, since=self.creations.since(point.creations), vectors=self.written_vectors
        )
        self.epoch += 1
        self.staged = {id: list(versions) for id, versions in point.staged.items()}
        self.statements, self.creations = list(point.statements), point.creations.copied()
        self.names, self.written_vectors = point.names.copied(), {*point.vectors}
        return undone

    def release(self, name: str) -> None:
        """Forget a savepoint and those after it; what was done since stays done.

        Raises:
            UndefinedError (3B001): it has no such savepoint.
        """
        self.check_usable()
        self.check_sound()
        self._savepoints.release(name)

    # --- what it changed ----------------------------------------------------------------------------------------------

    def written_tables(self) -> list[Table]:
        """The tables with staged commits, by their names now."""
        tables = map(self.names.table_by_id, [*self.staged])
        return sorted((table for table in tables if table is not None), key=lambda table: table.name)

    @property
    def dropped_tables(self) -> list[Table]:
        """The tables that it staged commits for, and then dropped."""
        return [table for table in self.names.dropped if table.id in self.staged]

    def changes_names(self) -> bool:
        """Whether it makes, drops or renames anything, all in all."""
        return bool(
            self.names.table_ddl(self.id) or self.names.view_ddl() or self.names.namespace_ddl() or self.names.tag_ddl()
        )

    def is_recorded(self) -> bool:
        """Whether it makes an entry even if it staged nothing: it changed names, or what it did is to be recorded."""
        if self.batch is not None or self.changes_names():
            return True
        return self.record_reads and self.isolation == "SERIALIZABLE" and bool(self.reads() or self._view_reads)

    def view_reads(self) -> list[Name]:
        """The views of its snapshot whose definitions it used."""
        return sorted(self._view_reads)

    def reads(self) -> list[TableRead]:
        """The tables of its snapshot that it read, and which rows."""
        rows = self._reads.by_table()
        rows |= {id_: with_older(rows.get(id_, NO_ROW)) for id_ in self._older_reads & self.staged.keys()}
        tables = sorted((t for t in map(self.base.table_by_id, rows) if t is not None), key=lambda t: t.name)
        return [
            TableRead(id=t.id, name=t.name, version=t.version, predicates=predicates_of(rows[t.id])) for t in tables
        ]

    def info(self, operations: Sequence[str] = ()) -> TransactionInfo:
        """Who, when and why, for the entry; `operations` stand in where no statement's text is known."""
        return TransactionInfo(
            id=self.id,
            began_at=self.began_at.replace(microsecond=self.began_at.microsecond // 1000 * 1000),
            base_version=self.base.version,
            isolation=self.isolation,
            author=self.author,
            application=self.application,
            message=self.comment,
            statements=self.statements or list(operations),
        )
