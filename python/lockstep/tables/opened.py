"""A lake without Spark, as `lockstep.open` returns it.

lake = lockstep.open("s3://bucket/lake")
with lake.transaction(comment="nightly") as tx:
    tx["sales.orders"].append(rows)
    tx["sales.totals"].merge(updates, on="day").when_matched_update_all().when_not_matched_insert_all().execute()
lake.at(tx.version)["sales.orders"].to_arrow()
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import TypeVar

from lockstep.arguments import check_result, check_runs_when_called, takes
from lockstep.blocks import batch_of, check_isolation, run_again
from lockstep.catalog import TransactionalCatalog
from lockstep.errors import UnsupportedError
from lockstep.recovery.dropped import DroppedTable, dropped_tables
from lockstep.retention.floor import asked
from lockstep.retention.upkeep import Maintained, maintain
from lockstep.retry import AGAIN
from lockstep.storage import is_hdfs
from lockstep.storage.locations import Said
from lockstep.tables.names import AName
from lockstep.tables.restoring import Restored, looked_at, moment, restore, revert, selection_of
from lockstep.tables.state import States
from lockstep.tables.transaction import LakeTransaction
from lockstep.tables.version import LakeVersion
from lockstep.timeline.entry import Isolation, Tag
from lockstep.transactions.limits import FOR_EVER, Limits, check_seconds

T = TypeVar("T")


@takes(
    root=str,
    create=bool,
    options=Mapping | None,
    author=str | None,
    isolation=str,
    arbiter=str | None,
    locations=Mapping | None,
    locations_only=bool,
    timeout=int | float,
    idle_timeout=int | float,
    statement_timeout=int | float,
)
def open(
    root: str,
    *,
    create: bool = False,
    options: Mapping[str, str] | None = None,
    author: str | None = None,
    isolation: Isolation = "SERIALIZABLE",
    arbiter: str | None = None,
    locations: Said | None = None,
    locations_only: bool = False,
    timeout: float = 0,
    idle_timeout: float = 0,
    statement_timeout: float = 0,
) -> OpenLake:
    """Open the lake at a path or URL, without Spark.

    Args:
        root: see `lockstep.storage`.
        create: make the lake if there is none.
        options: of an object store: `endpoint`, `region`, `access_key_id`, … (`lockstep.storage.open_storage`).
        author: who is named in the timeline; the operating system's user by default.
        isolation: the level of transactions that do not ask for one.
        arbiter: who decides the lake's entries, if its store does not: see `TransactionalCatalog.open`.
        locations: where tables may lie beside the root: by the URL or the path of each folder the options of its store,
            `{}` for those of the lake's own (docs/storage.md); by default what `LOCKSTEP_LOCATIONS` says.
        locations_only: refuse to read, write or delete anywhere else (42501).
        timeout: how many seconds a transaction may be open before it is rolled back (25P04), 0 for ever; a transaction
            may say another.
        idle_timeout: how many seconds it may be open without a statement of it being executed, likewise (25P03).
        statement_timeout: how many seconds a statement of it may run before it is cancelled (57014), likewise.

    Raises:
        InvalidError: there is no lake, and `create` is false; or the root, or a location, cannot be one; or no such
            level; or a timeout below 0.
        UnsupportedError: pyarrow is not installed; or the root lies in HDFS.
    """
    check_isolation(isolation)
    check_seconds(timeout=timeout, idle_timeout=idle_timeout, statement_timeout=statement_timeout)
    if is_hdfs(root):
        raise UnsupportedError(
            f"{root}: a lake in HDFS is used through Spark alone, in a catalog with this root. `CALL "
            "<catalog>.system.export` copies it, or a version of it, to where this can open it"
        )
    catalog = TransactionalCatalog.open(
        root,
        create=create,
        options=options,
        author=author,
        application="Python",
        isolation=isolation,
        arbiter=arbiter,
        locations=locations,
        locations_only=locations_only,
    )
    return OpenLake(catalog, options or {}, Limits(timeout, idle_timeout, statement_timeout))


class OpenLake:
    """A lake, without Spark. Threads may share it; each transaction is used by one thread at a time."""

    def __init__(self, catalog: TransactionalCatalog, options: Mapping[str, str], limits: Limits = FOR_EVER) -> None:
        """Work in a catalog's lake.

        Args:
            options: its store's, for readers of their own.
            limits: of transactions that do not say any.
        """
        self._catalog = catalog
        self._options = options
        self._limits = limits
        self._states = States(catalog.lake.storage)

    def __repr__(self) -> str:
        return f"<lockstep lake {self._catalog.lake.storage.url}>"

    @property
    def catalog(self) -> TransactionalCatalog:
        """The catalog below it: what transactions, commits and readers of the lake's versions are made of.

        Exports, clones and the parts of upkeep are the command line's, and SQL's.
        """
        return self._catalog

    @takes(
        isolation=str | None,
        read_only=bool,
        comment=str,
        batch=tuple | list | None,
        timeout=int | float | None,
        idle_timeout=int | float | None,
        statement_timeout=int | float | None,
    )
    def transaction(
        self,
        *,
        isolation: Isolation | None = None,
        read_only: bool = False,
        comment: str = "",
        batch: tuple[str, int] | None = None,
        timeout: float | None = None,
        idle_timeout: float | None = None,
        statement_timeout: float | None = None,
    ) -> LakeTransaction:
        """Return a transaction to use in a `with` statement: commits at its end, rolls back if the block raises.

        Args:
            isolation: SNAPSHOT or SERIALIZABLE; the lake's level by default.
            read_only: refuse writes.
            comment: why, for the timeline.
            batch: the name of an application and the number of the batch that the transaction carries out, exactly
                once. Look at `is_replay` first, and do nothing if it is true. An application's numbers only grow.
            timeout: after how many seconds the transaction is rolled back (25P04); 0 for never. By default what was
                given to `lockstep.open`.
            idle_timeout: after how many seconds without a running statement it is rolled back (25P03); likewise.
            statement_timeout: after how many seconds one of its statements is cancelled (57014); likewise.

        Raises:
            InvalidError: no such isolation level; a batch that cannot be one; a timeout below 0.
        """
        check_seconds(timeout=timeout, idle_timeout=idle_timeout, statement_timeout=statement_timeout)
        if isolation is not None:
            check_isolation(isolation)
        return LakeTransaction(
            self._catalog,
            self._states,
            isolation=isolation,
            read_only=read_only,
            comment=comment,
            batch=batch_of(batch),
            limits=Limits(
                total=self._limits.total if timeout is None else timeout,
                idle=self._limits.idle if idle_timeout is None else idle_timeout,
                statement=self._limits.statement if statement_timeout is None else statement_timeout,
            ),
        )

    @takes(fn=Callable, attempts=int, isolation=str | None, comment=str, batch=tuple | list | None, sleep=Callable)
    def run(
        self,
        fn: Callable[[LakeTransaction], T],
        *,
        attempts: int = AGAIN.attempts,
        isolation: Isolation | None = None,
        comment: str = "",
        batch: tuple[str, int] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> T:
        """Run `fn` in a transaction, again from the start if another was first, and return what it returns.

        It is run again only after errors that another run can resolve (`retryable`), with a growing, jittered pause.
        `fn` must not do anything outside of the transaction that cannot be done twice.

        Args:
            fn: gets the open transaction.
            attempts: how often at most, 1 or more.
            batch: as in `transaction`. With one, a COMMIT without an answer is retried too: if it landed, the next
                attempt `is_replay`.

        Raises:
            LockstepError: the last attempt's, or the first that is not retryable.
            InvalidError: fewer than one attempt; or `fn` does nothing when it is called (`async def`, a generator).
        """
        check_runs_when_called(fn)

        def attempt() -> T:
            with self.transaction(isolation=isolation, comment=comment, batch=batch) as tx:
                return check_result(fn(tx))

        return run_again(attempt, attempts=attempts, sleep=sleep, batch=batch)

    @takes(when=int | datetime | str | tuple)
    def at(self, when: int | datetime | str | tuple[()] = ()) -> LakeVersion:
        """Return all tables of one database version.

        Args:
            when: a version's number, a time (the newest version that was committed by then), or a tag's name. Without
                it: the newest version, after everything that plain Delta writers have committed is taken in.

        Raises:
            InvalidError: no such version, or a time without a zone. UndefinedError (42704): no such tag.
            ExpiredError: a version that is not kept any more.
        """
        lake = self._catalog.lake
        if isinstance(when, tuple):
            return LakeVersion(lake.storage, lake.newest(), self._options)
        database = self._catalog.as_of(moment(when, "at"))
        return LakeVersion(lake.storage, database, self._options, lake.check_past)

    @takes(when=int | datetime | str, namespaces=Iterable | None, tables=Iterable | None, dry_run=bool, comment=str)
    def restore(
        self,
        when: int | datetime | str,
        *,
        namespaces: Iterable[str | tuple[str, ...]] | None = None,
        tables: Iterable[AName] | None = None,
        dry_run: bool = False,
        comment: str = "",
    ) -> Restored:
        """Take tables, views and namespaces back to an older database version, in a transaction of its own.

        Args:
            when: a version's number, a time, or a tag's name.
            namespaces: only these namespaces, with all that is in them.
            tables: only these tables. If neither is given, everything.
            dry_run: return what would be changed, and write nothing.
            comment: why, for the timeline.

        Raises:
            ConflictError (40001): another transaction was first; run it again.
            LockstepError: see `LakeTransaction.restore`.
        """
        if dry_run:
            selection = selection_of(namespaces, tables)
            return looked_at(self._catalog, self._states, restore, moment(when, "restore"), selection)
        return self._alone(lambda tx: tx.restore(when, namespaces=namespaces, tables=tables), comment)

    @takes(version=int, dry_run=bool, comment=str)
    def revert(self, version: int, *, dry_run: bool = False, comment: str = "") -> Restored:
        """Undo what one database version changed, in a transaction of its own, unless a later version changed it too.

        Args:
            version: its number.
            dry_run: return what would be changed, and write nothing.
            comment: why, for the timeline.

        Raises:
            ConflictError (40001): another transaction was first; run it again.
            LockstepError: see `LakeTransaction.revert`.
        """
        if dry_run:
            return looked_at(self._catalog, self._states, revert, version)
        return self._alone(lambda tx: tx.revert(version), comment)

    @takes(id=str | None, comment=str)
    def undrop(self, name: AName, *, id: str | None = None, comment: str = "") -> int:
        """Bring back the table of a name that was dropped last, in a transaction of its own.

        Args:
            id: of another dropped table, which `dropped` lists; it comes back under this name.
            comment: why, for the timeline.

        Returns:
            The database version that it made.

        Raises:
            ConflictError (40001): another transaction was first; run it again.
            LockstepError: see `LakeTransaction.undrop`.
        """
        with self.transaction(comment=comment) as tx:
            tx.undrop(name, id=id)
        return _made(tx)

    @takes(count=int)
    def dropped(self, count: int = 100) -> list[DroppedTable]:
        """Return the tables that were dropped and are not there, the last one first.

        Args:
            count: how many at most.
        """
        return [*islice(dropped_tables(self._catalog.timeline), max(count, 0))]

    # --- what is kept -------------------------------------------------------------------------------------------------

    @property
    def tags(self) -> list[Tag]:
        """The tags, by the database versions that they name."""
        return sorted(self._catalog.database().tags.values(), key=lambda tag: (tag.version, tag.name))

    @takes(name=str, when=int | datetime | str | None, days=int | None, comment=str, check=bool | None)
    def tag(
        self,
        name: str,
        when: int | datetime | str | None = None,
        *,
        days: int | None = None,
        comment: str = "",
        check: bool | None = None,
    ) -> int:
        """Give a database version a name, in a transaction of its own; see `LakeTransaction.tag`.

        Returns:
            The database version that it names: without `when` the one that this made.

        Raises:
            ConflictError (40001): another transaction was first; run it again.
            LockstepError: see `LakeTransaction.tag`.
        """
        with self.transaction() as tx:
            named = tx.tag(name, when, days=days, comment=comment, check=check)
        return _made(tx) if named is None else named

    @takes(name=str)
    def untag(self, name: str) -> int:
        """Take a tag from its database version, in a transaction of its own, and return the version that it made.

        Raises:
            ConflictError (40001): another transaction was first; run it again.
            UndefinedError (42704): there is no such tag.
        """
        with self.transaction() as tx:
            tx.untag(name)
        return _made(tx)

    @takes(dry_run=bool)
    def maintain(self, *, dry_run: bool = False) -> Maintained:
        """Do what `lockstep maintain` does: let versions expire, and delete what nobody needs after its grace period.

        How long all of it is kept is what the lake says (`lockstep retention`), or the defaults of docs/settings.md.

        Args:
            dry_run: return what would be done, and do nothing.

        Returns:
            What expired and what was deleted; in a dry run also the tables whose small files Spark should compact.

        Raises:
            ReadOnlyError: nothing may be written here.
            LockstepError: as the store and the timeline say; a later run goes on.
        """
        lake = self._catalog.lake
        return maintain(lake, asked(lake.storage, {}), dry_run=dry_run)

    def _alone(self, work: Callable[[LakeTransaction], Restored], comment: str) -> Restored:
        with self.transaction(comment=comment) as tx:
            done = work(tx)
        return replace(done, database_version=tx.made)


def _made(tx: LakeTransaction) -> int:
    """Return the database version that a block made."""
    assert tx.version is not None, "the block has committed it"
    return tx.version
