"""`TransactionalCatalog`: one lake's namespaces, tables and transactions, without Spark.

    catalog = TransactionalCatalog.open("/data/lake", create=True)
    tx = catalog.begin(comment="nightly load")
    tx.changing().create_namespace(("sales",), {})
    catalog.commit(tx)                          # Committed, or raises ConflictError

Delta writes the tables themselves (through Spark, see `lockstep.spark`); this object says where and when, and decides.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import datetime
from functools import partial

import msgspec

from lockstep.adoption.making import free_place
from lockstep.arbiters import arbiter_of
from lockstep.arguments import current_user, takes
from lockstep.blocks import give_up
from lockstep.commit.announce import Announcer
from lockstep.commit.autocommit import commit_statement, new_table
from lockstep.commit.commit import commit
from lockstep.commit.ending import rollback, settle_orphan
from lockstep.commit.keeping import KEEPER
from lockstep.commit.outcomes import Committed, Taken, raised, refuse_unless_undone
from lockstep.commit.savepoint import rollback_to
from lockstep.commit.scans import NO_VIEWS, Scan
from lockstep.conflict.lock_policy import FIRST_COMMITTER_WINS, Resolution
from lockstep.delta.actions import operation_on, parse
from lockstep.delta.log import read_staged
from lockstep.errors import (
    FailedTransactionError,
    InvalidError,
    NoTransactionError,
    ReadOnlyError,
    TransactionStateError,
)
from lockstep.lake import snapshots
from lockstep.lake.lake import Lake
from lockstep.lake.roots import refuse_unless_free
from lockstep.lake.turns import Turns, lock_file
from lockstep.retry import RACE, Backoff
from lockstep.storage import has_options, open_storage, url_of
from lockstep.storage.locations import Locations, Said, registered
from lockstep.storage.outside import OutsideStorage
from lockstep.storage.urls import comparable
from lockstep.timeline.clock import Clock, utc_now
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Batch, Isolation, Name, Table, TransactionInfo
from lockstep.timeline.known import CHECKPOINT_EVERY
from lockstep.timeline.log import Timeline
from lockstep.transactions.batches import check_batch
from lockstep.transactions.creations import Creation
from lockstep.transactions.folders import check_root, new_location
from lockstep.transactions.names import Names
from lockstep.transactions.state import State
from lockstep.transactions.statements import shortened
from lockstep.transactions.transaction import Transaction

NO_LOCK = nullcontext()
"""Of a transaction that no two threads use at once."""


def new_id() -> str:
    """Return a short id that no other transaction or table has: 96 random bits, in hex (it is part of URIs)."""
    return secrets.token_hex(12)


class TransactionalCatalog:
    """One lake. Threads may share it; each `Transaction` is used by one thread at a time."""

    def __init__(
        self,
        lake: Lake,
        *,
        author: str = "",
        application: str = "",
        isolation: Isolation = "SERIALIZABLE",
        record_reads: bool = False,
        backoff: Backoff = RACE,
        resolution: Resolution = FIRST_COMMITTER_WINS,
    ):
        self.lake = lake
        self.record_reads = record_reads
        self.author = author
        self.application = application
        self.isolation = isolation
        self.backoff = backoff
        self._announcer = Announcer(lake, resolution, backoff=backoff)

    def __repr__(self) -> str:
        return f"<lockstep.TransactionalCatalog {self.timeline}>"

    @classmethod
    @takes(
        root=str,
        options=Mapping | None,
        author=str | None,
        application=str,
        isolation=str,
        checkpoint_interval=int,
        arbiter=str | None,
        locations=Mapping | Locations | None,
        locations_only=bool,
    )
    def open(
        cls,
        root: str,
        *,
        create: bool = False,
        options: Mapping[str, str] | None = None,
        author: str | None = None,
        application: str = "",
        isolation: Isolation = "SERIALIZABLE",
        record_reads: bool = False,
        backoff: Backoff = RACE,
        resolution: Resolution = FIRST_COMMITTER_WINS,
        checkpoint_interval: int = CHECKPOINT_EVERY,
        fsync_data: bool = False,
        arbiter: str | None = None,
        locations: Said | Locations | None = None,
        locations_only: bool = False,
        clock: Clock = utc_now,
        ids: Callable[[], str] = new_id,
    ) -> TransactionalCatalog:
        """Open the lake at a path or URL.

        Args:
            root: see `lockstep.storage`.
            create: make the root and its timeline if there is none.
            options: for object stores, see `lockstep.storage.open_storage`.
            author: who is named in the timeline; the operating system's user by default.
            application: what is named in the timeline.
            isolation: the level of transactions that do not ask for one.
            record_reads: whether transactions that change nothing are judged and recorded too, see docs/isolation.md.
            backoff: how often, and how soon, a commit that lost a race for the timeline is tried again.
            resolution: what open transactions do about each other before COMMIT; nothing by default.
            checkpoint_interval: after how many database versions a commit writes a checkpoint of the timeline, after
                its answer; 0 for never.
            fsync_data: whether a commit first syncs the files that it adds to the disk; for local roots.
            arbiter: who decides the entries of the lake, as docs/storage.md says; by default `LOCKSTEP_ARBITER`, if the
                lake has that one. A new lake is made with it.
            locations: where tables may lie beside the root, each with the options of its store, see
                docs/storage.md; by default what `LOCKSTEP_LOCATIONS` says, if `locations_only` is false. Or as they are
                known of another lake, see `lockstep.storage.outside.settings_beside`.
            locations_only: whether nothing is read, written or deleted anywhere else.

        Raises:
            InvalidError: there is no lake, and `create` is false; or the root cannot be one, or the arbiter, or a
                location, none.
            UnsupportedError: the client of that arbiter is not installed.
            UnavailableError, CorruptTimelineError: as the store and the timeline say.
        """
        if create and not has_options(root):
            refuse_unless_free(url_of(root))  # before the folder is made
        url = url_of(root)
        places = locations
        if not isinstance(places, Locations):
            places = registered(url, options, places, only=locations_only)  # before the folder is made
        inner = open_storage(root, create=create, options=options, fsync_data=fsync_data)
        storage = OutsideStorage(inner, options, places, fsync_data=fsync_data)
        check_root(storage.url)
        make = Timeline.create if create else Timeline.open
        decides = arbiter_of(arbiter, comparable(storage.url))
        timeline = make(storage, clock=clock, checkpoint_every=checkpoint_interval, arbiter=decides)
        lake = Lake(storage, timeline, clock=clock, new_id=ids, turns=Turns(lock_file(storage.url)))
        return cls(
            lake,
            author=current_user() if author is None else author,
            application=application,
            isolation=isolation,
            record_reads=record_reads,
            backoff=backoff,
            resolution=resolution,
        )

    @property
    def timeline(self) -> Timeline:
        """The lake's timeline, as last refreshed."""
        return self.lake.timeline

    # --- reading ------------------------------------------------------------------------------------------------------

    def database(self, touching: Iterable[Name] = ()) -> Database:
        """Return the newest database version; what it ratified is published.

        Args:
            touching: tables that are about to be used. What plain Delta writers did to them is taken in first. Names
                that no table has are ignored.

        Raises:
            ForeignCommitError, UnavailableError, CorruptTimelineError: one of the tables is set aside, see
                `lockstep.lake.publisher`.
        """
        names = list(touching)
        return self.lake.caught_up(lambda database: [t for t in map(database.tables.get, names) if t is not None])

    def read(self, touching: Iterable[Name] = (), *, pin: int | None = None, seen: Iterable[Name] = ()) -> Database:
        """Return the database version that a statement outside a transaction reads, see `snapshots.of_statement`."""
        return self.database(touching) if pin is None else snapshots.of_statement(self.lake, touching, pin, list(seen))

    @takes(when=int | datetime | str, at_most=int | None)
    def as_of(self, when: int | datetime | str, *, at_most: int | None = None, names: Names | None = None) -> Database:
        """Return an older database version: by number, as it was at a time, or by a tag; what it ratified is published.

        Args:
            at_most: the version of a snapshot, for which nothing newer exists.
            names: a transaction's names, which say what it takes a tag for; those of the newest version by default.

        Raises:
            InvalidError: there is no such version; or a tag of the transaction's own names what it will commit.
            UndefinedError (42704): there is no such tag.
        """
        return snapshots.older(self.lake, when, at_most=at_most, names=names)

    # --- transactions -------------------------------------------------------------------------------------------------

    @takes(isolation=str | None, comment=str, batch=Batch | None, author=str | None, as_of=int | datetime | str | None)
    def begin(
        self,
        *,
        isolation: Isolation | None = None,
        read_only: bool = False,
        dry_run: bool = False,
        record_reads: bool | None = None,
        comment: str = "",
        batch: Batch | None = None,
        author: str | None = None,
        case_sensitive: bool = True,
        as_of: int | datetime | str | None = None,
    ) -> Transaction:
        """Begin a transaction whose snapshot is the newest database version; what it ratified is published.

        What plain Delta writers did is found when `look` is called for tables that the transaction is about to use.

        Args:
            dry_run: whether the transaction only finds out what something would do, and is never committed. A lake that
                can only be read is enough for this.
            record_reads: the setting for this transaction, instead of the catalog's.
            batch: the micro-batch that the transaction carries out. If its snapshot already has it, or a later one of
                the application, the transaction `is_replay`: COMMIT changes nothing, whatever it did.
            author: who is named in the timeline, instead of the catalog's author.
            case_sensitive: whether a new name may differ from another in case alone.
            as_of: an older version as the snapshot of a READ ONLY transaction; see `as_of`.

        Raises:
            InvalidError: the batch's application or number is not valid; a READ ONLY transaction has a batch; another
                transaction has an older version as its snapshot; or there is no such version.
        """
        if as_of is not None and not read_only:
            raise InvalidError("only a READ ONLY transaction can read an older database version: BEGIN READ ONLY AS OF")
        if batch is not None:
            check_batch(batch)
            if read_only:
                raise InvalidError(
                    f"{batch}: a READ ONLY transaction has no batch, for to record it is a write; begin it without "
                    "READ ONLY"
                )
        tx = Transaction(
            id=self.lake.new_id(),
            base=self.lake.refresh() if as_of is None else self._back_at(as_of),
            began_at=self.lake.clock(),
            isolation=isolation or self.isolation,
            read_only=read_only,
            refusal=self.lake.refusal,
            dry_run=dry_run,
            # A reader of what will never change comes after that version in any order: there is nothing to judge.
            record_reads=as_of is None and (self.record_reads if record_reads is None else record_reads),
            batch=batch,
            comment=comment,
            author=self.author if author is None else author,
            application=self.application,
            case_sensitive=case_sensitive,
        )
        tx.seen.last_version = as_of is not None
        return tx

    def _back_at(self, when: int | datetime | str) -> Database:
        """Return an older version as a snapshot: its tags are those of today, for a tag is a name from outside it."""
        return msgspec.structs.replace(self.as_of(when), tags=self.timeline.head.tags)

    def look(self, tx: Transaction, names: Iterable[Name]) -> None:
        """Take in what plain Delta writers did to tables that a transaction is about to use, see `snapshots.look`."""
        snapshots.look(self.lake, tx, names)

    @takes(tx=Transaction, name=Name)
    def table(self, tx: Transaction, name: Name) -> Table:
        """Return a table that a transaction sees and is about to use; this includes `look`.

        Raises:
            UndefinedError: it sees no table of that name.
            ForeignCommitError, UnavailableError, CorruptTimelineError: see `look` and `Transaction.table`.
        """
        self.look(tx, [name])
        return tx.table(name)

    def is_taken(self, tx: Transaction, location: str, version: int) -> bool:
        """Tell whether a transaction has a version of a table already, so that Delta has to stage a later one.

        Raises:
            InvalidError, DuplicateError: see `Transaction.next_version`.
            CorruptTimelineError: it has that version, and the version's files are missing.
        """
        if version >= tx.next_version(location):
            return False
        table = tx.names.table_at(location)
        assert table is not None, "else there is no next version"
        if version <= table.version:
            self.lake.check_reaches(table, version)
        else:
            read_staged(self.lake.storage, location, tx.id, version)
        return True

    def stage(
        self, tx: Transaction, location: str, version: int, content: str | None = None, *, text: str = ""
    ) -> None:
        """Note a commit that Delta staged, so that COMMIT and ROLLBACK find it; call `claim` after it.

        Args:
            content: the commit's content, so that COMMIT need not read it.
            text: the statement, for the entry. If it is empty, the content says which operation it was.

        Raises:
            InvalidError, TransactionStateError: see `Transaction.stage`.
        """
        table = tx.stage(location, version, content)
        if text or content is not None:
            tx.note_statement(text or operation_on(table.name, parse(content or "")))

    @property
    def settles_early(self) -> bool:
        """Whether `claim` does anything, by the policy."""
        return self._announcer.is_needed

    def claim(
        self,
        tx: Transaction,
        location: str,
        version: int,
        *,
        lock: AbstractContextManager[object] = NO_LOCK,
    ) -> None:
        """Settle the conflicts of a commit that was staged with other open transactions, by the policy.

        It may wait for another transaction, up to the policy's `lock_timeout_seconds`. Meanwhile other threads may do
        anything with this transaction, and may end it.

        Args:
            lock: the lock that they hold while they do so.

        Raises:
            ConflictError: this transaction has to give way, and can only be rolled back (`lockstep.commit.announce`).
            NoTransactionError: it was rolled back in the meantime.
        """
        with lock:
            table = tx.names.table_at(location)
        if table is not None:  # else it has been dropped or taken back since
            self._announcer.claim(tx, table, version, lock=lock)

    def let_pass(self, tx: Transaction) -> None:
        """Have no other transaction wait for one, or give way to it, that can only be rolled back some day."""
        self._announcer.withdraw(tx)

    def _withdraw(self, tx: Transaction) -> None:
        if not tx.is_open:
            self._announcer.withdraw(tx)
            KEEPER.ended(tx)

    @takes(tx=Transaction)
    def commit(self, tx: Transaction) -> Committed:
        """Commit a transaction, or raise an error that says why it is not committed.

        Raises:
            NoTransactionError: it has ended. ReadOnlyError: it is a dry run.
            FailedTransactionError: a write failed, and it is now rolled back; or it took too long (25P03, 25P04).
            ConflictError: another transaction was first; this one is now rolled back.
            CancelledError (57014): a person ended it, see `lockstep.commit.records.abort`; it is now rolled back.
            StagedFilesMissingError: files that it wrote are missing; it is now rolled back.
            CommitUnknownError: the store does not say; committing again finds out.
            UnavailableError, CorruptTimelineError, ForeignCommitError: nothing was committed, and it is still open.
        """
        tx.check_in_time()
        if not tx.is_open:
            raise NoTransactionError(f"transaction {tx.id} has ended ({tx.state}); begin another")
        tx.check_not_dry()
        try:
            tx.check_sound()
        except FailedTransactionError as error:
            self.rollback(tx)
            raise FailedTransactionError(
                f"a write of this transaction failed, so COMMIT has rolled it back; nothing of it is in any table. The "
                f"failure was: {tx.failure or tx.failed_statement}"
            ) from error
        try:
            return raised(commit(self.lake, tx, backoff=self.backoff), tx.id)
        finally:
            self._withdraw(tx)

    @takes(tx=Transaction)
    def rollback(self, tx: Transaction) -> None:
        """Undo a transaction; if it was already rolled back, nothing is changed.

        Raises:
            TransactionStateError (2D000): too late, it is committed: an earlier COMMIT whose answer was lost did land.
            CommitUnknownError: the store still does not say whether it landed. It has ended, and nothing was removed.
        """
        if tx.state is State.COMPLETED:
            raise TransactionStateError(
                f"too late to roll back: transaction {tx.id} is committed as database version {tx.version}",
                sqlstate="2D000",
            )
        if not tx.is_open:
            return
        try:
            outcome = rollback(self.lake, tx)
        finally:
            self._withdraw(tx)
        refuse_unless_undone(outcome, tx.id)

    def find_out(self, transaction: str, snapshot: int) -> Committed | None:
        """Return what became of the COMMIT of a process that has ended, see `lockstep.commit.ending.settle_orphan`."""
        return settle_orphan(self.lake, transaction, snapshot)

    @takes(tx=Transaction, name=str)
    def rollback_to(self, tx: Transaction, name: str) -> None:
        """Undo what a transaction did since a savepoint, see `lockstep.commit.savepoint`."""
        rollback_to(self.lake, tx, name)

    @takes(change=Callable, text=str, author=str | None)
    def run(
        self,
        change: Callable[[Transaction], None],
        text: str = "",
        *,
        author: str | None = None,
        case_sensitive: bool = True,
    ) -> Committed:
        """Make one change of the catalog in a transaction of its own: an autocommitted DDL statement.

        If that fails, nothing of it is left, including claims of tables, unless nobody knows whether it is committed.
        """
        tx = self.begin(author=author, case_sensitive=case_sensitive)
        if text:
            tx.note_statement(text)
        try:
            change(tx)
            return self.commit(tx)
        except BaseException as error:
            if tx.is_open and tx.in_doubt is None:
                give_up(partial(self.rollback, tx), error)
            raise

    # --- one Delta commit on its own ----------------------------------------------------------------------------------

    def check_writable(self) -> None:
        """Raise an error if statements may not write, as far as that is known before anything is written.

        Raises:
            ReadOnlyError: this process may only read the lake's root.
        """
        if self.lake.refusal:
            raise ReadOnlyError(self.lake.refusal)

    @takes(name=Name)
    def reserve(self, name: Name, *, case_sensitive: bool = True, location: str | None = None) -> Creation:
        """Choose where a new table will lie, if it could be created now.

        Args:
            location: an absolute path or URL of its folder, if a statement says one; see `lockstep.adoption.making`.

        Raises:
            LockstepError: it may not lie at that location.
            UndefinedError (3F000), DuplicateError (42P07): no such namespace; the name is taken.
            ReadOnlyError: see `check_writable`.
        """
        self.check_writable()
        id_, head = self.lake.new_id(), self.lake.refresh()
        place = new_location(name, id_, lambda folder: head.table_at(folder) is not None)
        creation = Creation(id=id_, name=name, location=place, case_sensitive=case_sensitive)
        new_table(head, creation)
        if location is None:
            return creation
        return replace(creation, location=free_place(self.lake, head, name, location), elsewhere=True)

    def write(
        self,
        location: str,
        version: int,
        content: str,
        *,
        creation: Creation | None = None,
        scans: Sequence[Scan] = (),
        views: Mapping[Name, int] = NO_VIEWS,
        older: bool = False,
        isolation: Isolation | None = None,
        text: str = "",
        author: str | None = None,
    ) -> Committed | Taken:
        """Commit what Delta wants to write as `version` of the table at `location`, see `commit_statement`.

        Args:
            isolation: the statement's level, instead of the catalog's.
            author: who is named in the timeline, instead of the catalog's.

        Raises:
            ConflictError: what it read from other tables has changed in a way that no order of the transactions
                explains; or it lost too many races.
            StagedFilesMissingError: files that it wrote are missing; nothing was committed.
            CommitUnknownError: the store does not say.
            ReadOnlyError: see `check_writable`.
        """
        self.check_writable()
        info = TransactionInfo(
            id=self.lake.new_id(),
            began_at=self.lake.clock(),
            base_version=0,
            isolation=isolation or self.isolation,
            author=self.author if author is None else author,
            application=self.application,
            statements=[shortened(text)] if text else [],
        )
        outcome = commit_statement(
            self.lake,
            info,
            location,
            version,
            parse(content),
            creation=creation,
            scans=scans,
            views=views,
            older=older,
            backoff=self.backoff,
        )
        return outcome if isinstance(outcome, Taken) else raised(outcome, info.id)
