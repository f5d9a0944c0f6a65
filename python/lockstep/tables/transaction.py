"""A transaction without Spark, for one `with` block: commits at its end, rolls back if the block raises."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias
from uuid import uuid4

import pyarrow as pa

from lockstep.arguments import check_texts, list_of_names, takes
from lockstep.blocks import Block, give_up
from lockstep.catalog import TransactionalCatalog
from lockstep.commit.elsewhere import reserve
from lockstep.commit.timing import ending, executing
from lockstep.errors import InvalidError, NoTransactionError, TransactionStateError, UnsupportedError
from lockstep.system.namespace import refuse_reserved
from lockstep.tables.commits import Operation, now_ms, stage
from lockstep.tables.layout import COMMIT_TIMES, Layout, is_on, new_table
from lockstep.tables.names import AName, name_of, namespace_of
from lockstep.tables.past import Past
from lockstep.tables.queries import run_query
from lockstep.tables.state import States
from lockstep.tables.statement import limit, reads, writes
from lockstep.tables.table import TransactionTable
from lockstep.tables.views import WRONG_KIND, Views, refuse_function
from lockstep.tables.views import check_properties as check_view_properties
from lockstep.timeline.entry import Batch, Isolation, Name, Namespace
from lockstep.timeline.functions import is_function
from lockstep.transactions.limits import Limits
from lockstep.transactions.state import State
from lockstep.transactions.transaction import Transaction

Status: TypeAlias = Literal["NEW", "OPEN", "IN DOUBT", "COMMITTED", "ROLLED BACK"]


class LakeTransaction(Past, Block):
    """A transaction of a lake, for one `with` block and one thread at a time.

    Attributes:
        comment: why, for the timeline.
    """

    def __init__(
        self,
        catalog: TransactionalCatalog,
        states: States,
        *,
        isolation: Isolation | None,
        read_only: bool,
        comment: str,
        batch: Batch | None,
        limits: Limits,
    ) -> None:
        """Begin when the block is entered."""
        self._catalog = catalog
        self._states = states
        self._isolation = isolation
        self._read_only = read_only
        self._batch = batch
        self._limits = limits
        self._tx: Transaction | None = None
        self._is_ended_here = False
        self.comment = comment

    def __repr__(self) -> str:
        at = "" if self.version is None else f" as database version {self.version}"
        return f"<lockstep transaction {self.id or '(not begun)'} {self.status}{at}>"

    # --- how it stands ------------------------------------------------------------------------------------------------

    @property
    def id(self) -> str | None:
        """Its id, once begun."""
        return None if self._tx is None else self._tx.id

    @property
    def snapshot(self) -> int | None:
        """The database version that it sees, once begun. It may move on as long as nothing that was seen changes."""
        return None if self._tx is None else self._tx.base.version

    @property
    def version(self) -> int | None:
        """The database version that it made, once committed; the snapshot's if it changed nothing."""
        return None if self._tx is None else self._tx.version

    @property
    def made(self) -> int | None:
        """The database version that it made; None if it changed nothing, or is not committed."""
        return None if self.version == self.snapshot else self.version

    @property
    def is_replay(self) -> bool:
        """Whether its batch was already done when it began. Its COMMIT then changes nothing, whatever it did."""
        return self._tx is not None and self._tx.is_replay

    @property
    def status(self) -> Status:
        """NEW, OPEN, COMMITTED, ROLLED BACK, or IN DOUBT: the store did not say whether it is committed."""
        if self._tx is None:
            return "NEW"
        if self._tx.state is State.COMPLETED:
            return "COMMITTED"
        if self._tx.in_doubt is not None:
            return "IN DOUBT"
        return "OPEN" if self._tx.is_open else "ROLLED BACK"

    # --- the block ----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._tx is not None:
            raise TransactionStateError(f"{self!r} was used already: ask the lake for another", sqlstate="25000")
        self._tx = self._catalog.begin(
            isolation=self._isolation, read_only=self._read_only, comment=self.comment, batch=self._batch
        )
        limit(self.lake, self._tx, self._limits, partial(self._catalog.rollback, self._tx))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if not self.core.is_open:
            if error is None and not self._is_ended_here:
                self.core.check_in_time()  # nobody has told the block that nothing of it is committed
            return False  # the block ended it itself
        if error is not None:
            give_up(self.rollback, error)
            return False
        try:
            self._commit_and_find_out()
        except BaseException as refused:  # an interrupt too
            if self.core.is_open:
                give_up(self.rollback, refused)
            # What landed is no error; but who is interrupted, or told to exit, is to end all the same.
            if self.status != "COMMITTED" or not isinstance(refused, Exception):
                raise
        return False

    def commit(self) -> int:
        """Commit now instead of at the end of the block, and return the database version.

        Raises:
            ConflictError (40001): another transaction was first. This one is rolled back; run it again.
            FailedTransactionError (25P03, 25P04): it took too long, and is rolled back.
            CommitUnknownError (40003): the store did not say; another `commit` finds out. The block's end tries once.
            LockstepError: it was not committed, see `TransactionalCatalog.commit`.
        """
        try:
            with ending(self.core):
                return self._catalog.commit(self.core).version
        finally:
            self._is_ended_here = not self.core.is_open  # else it may be rolled back before the block ends

    def rollback(self) -> None:
        """Roll back now instead of by an exception.

        Raises:
            TransactionStateError (2D000): too late, it is committed.
            CommitUnknownError (40003): nobody knows whether it is.
        """
        self._is_ended_here = True
        with ending(self.core):
            self._catalog.rollback(self.core)

    @takes(name=str)
    def savepoint(self, name: str) -> None:
        """Remember what was done so far, for `rollback_to`."""
        with executing(self.core):
            self.core.savepoint(name)

    @takes(name=str)
    def rollback_to(self, name: str) -> None:
        """Undo what was done since a savepoint; the savepoint stays.

        Raises:
            UndefinedError (3B001): there is no such savepoint.
        """
        with executing(self.core):
            self._catalog.rollback_to(self.core, name)

    @takes(name=str)
    def release(self, name: str) -> None:
        """Forget a savepoint and those after it; what was done since stays done.

        Raises:
            UndefinedError (3B001): there is no such savepoint.
        """
        with executing(self.core):
            self.core.release(name)

    # --- names --------------------------------------------------------------------------------------------------------

    @property
    @reads
    def tables(self) -> list[Name]:
        """The names of the tables that it sees, sorted."""
        return sorted(self.core.tables)

    @property
    @reads
    def views(self) -> list[Name]:
        """The names of the views that it sees, sorted. Views are queried in Spark."""
        return sorted(name for name, view in self.core.views.items() if not is_function(view))

    @property
    @reads
    def namespaces(self) -> dict[Namespace, dict[str, str]]:
        """The namespaces that it sees, sorted, with their properties."""
        return {name: dict(properties) for name, properties in sorted(self.core.namespaces.items())}

    @writes
    @takes(properties=Mapping | None)
    def create_namespace(self, name: str | tuple[str, ...], properties: Mapping[str, str] | None = None) -> None:
        """Make a namespace.

        Raises:
            DuplicateError (42P06): it exists already. UndefinedError (3F000): its parent does not exist.
            UnsupportedError (42939): the name is `system`, the namespace of the system tables in Spark; or the
                properties give it a location (0A000). InvalidError: a property has no name.
        """
        namespace = namespace_of(name)
        _check_properties(namespace, properties or {})
        refuse_reserved(namespace, self.core.names.namespaces)
        self.core.changing().create_namespace(namespace, dict(properties or {}))

    @writes
    @takes(properties=Mapping)
    def set_namespace_properties(self, name: str | tuple[str, ...], properties: Mapping[str, str]) -> None:
        """Set properties of a namespace; its other properties stay. `comment` is what SQL sets by COMMENT.

        Raises:
            UndefinedError (3F000): there is no such namespace.
            UnsupportedError: the properties give it a location.
        """
        namespace = namespace_of(name)
        _check_properties(namespace, properties)
        self._alter_namespace(namespace, lambda before: {**before, **properties})

    @writes
    @takes(keys=str | Iterable)
    def unset_namespace_properties(self, name: str | tuple[str, ...], keys: str | Iterable[str]) -> None:
        """Remove properties of a namespace. It is no error if the namespace does not have one of them.

        Raises:
            UndefinedError (3F000): there is no such namespace.
        """
        gone = {keys} if isinstance(keys, str) else set(list_of_names(keys, "keys"))
        self._alter_namespace(
            namespace_of(name), lambda before: {key: value for key, value in before.items() if key not in gone}
        )

    def _alter_namespace(self, name: Namespace, change: Callable[[Mapping[str, str]], dict[str, str]]) -> None:
        self.core.names.check_namespace(name)
        before = self.core.namespaces[name]
        self.core.changing().alter_namespace(name, change(before))

    @writes
    @takes(cascade=bool)
    def drop_namespace(self, name: str | tuple[str, ...], *, cascade: bool = False) -> None:
        """Remove a namespace, with all that is in it if `cascade`.

        Raises:
            UndefinedError (3F000): there is none. InvalidError (2BP01): it is not empty.
        """
        self.core.change_names(lambda names: names.drop_namespace(namespace_of(name), cascade=cascade))

    @writes
    @takes(schema=pa.Schema, partition_by=str | Sequence | None, properties=Mapping | None, location=str | None)
    def create(
        self,
        name: AName,
        schema: pa.Schema,
        *,
        partition_by: str | Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        location: str | None = None,
    ) -> TransactionTable:
        """Make a table, and return it.

        Args:
            schema: its columns, as Arrow's; one that is not nullable is NOT NULL.
            partition_by: the column, or the columns, by which the table is partitioned; none by default.
            properties: the table's properties, as in SQL. Of Delta's own properties, only those that are known here.
            location: the absolute path, or the URL, of an empty folder for the table. The folder stays when the table
                is dropped. By default the lake chooses a folder below its root.

        Raises:
            UndefinedError (3F000), DuplicateError (42P07): no such namespace; the name, or the location, is taken.
            InvalidError, UnsupportedError: columns or properties that a table cannot have, see
                `lockstep.tables.properties`; nothing was written.
        """
        tx, full_name = self.core, name_of(name)
        now = now_ms(self._catalog)
        by = [partition_by] if isinstance(partition_by, str) else list_of_names(partition_by or (), "partition_by")
        protocol, metadata = new_table(
            str(full_name), schema, tuple(by), dict(properties or {}), id=str(uuid4()), now_ms=now
        )
        creation = reserve(self._catalog.lake, tx, full_name, location)
        operation = Operation("CREATE TABLE", f"create {full_name}", {"partitionBy": "[]"}, {}, blind=True)
        actions = [{"protocol": protocol}, {"metaData": metadata}]
        after = 0 if is_on(metadata["configuration"], COMMIT_TIMES) else None
        stage(self._catalog, tx, creation.location, actions, operation, after_ms=after)
        return self[full_name]

    @writes
    def drop(self, name: AName) -> None:
        """Drop a table; its files stay for the database versions that have it.

        Raises:
            UndefinedError (42P01): there is no table of that name.
            InvalidError (42809): it is a view.
        """
        self._refuse_view(name, "drop_view drops it")
        table = self.core.table(name_of(name), usable=False)
        self.core.changing().drop_table(table.name)

    @writes
    def rename(self, name: AName, new_name: AName) -> None:
        """Give a table another name, which may be in another namespace.

        Raises:
            UndefinedError (42P01, 3F000), DuplicateError (42P07): no such table or namespace; the name is taken.
            InvalidError (42809): it is a view.
        """
        self._refuse_view(name, "rename_view renames it")
        table = self.core.table(name_of(name), usable=False)
        self.core.changing().rename_table(table.name, name_of(new_name))

    @writes
    @takes(query=str, replace=bool, schema=pa.Schema | None, comment=str | None, properties=Mapping | None, catalog=str)
    def create_view(
        self,
        name: AName,
        query: str,
        *,
        replace: bool = False,
        schema: pa.Schema | None = None,
        comment: str | None = None,
        properties: Mapping[str, str] | None = None,
        catalog: str = "lake",
    ) -> None:
        """Make a view for Spark, as a session with Spark's defaults in UTC would make it. Its text is Spark's SQL.

        Args:
            query: the view's query. Names of one part are in the namespace `default`.
            replace: whether a view of that name is replaced.
            schema: the columns that the query returns, if that is not certain here; see `lockstep.tables.select_types`.
            comment: the view's comment.
            properties: the view's other properties.
            catalog: the lake's name in Spark's sessions.

        Raises:
            UndefinedError: no such namespace (3F000); the query names something that does not exist (42P01).
            DuplicateError (42P07): the name is taken.
            UnsupportedError: the columns of the query are not certain, and there is no `schema`; nothing was made.
            InvalidError: not a query, a wrong `schema`, a view that reads itself, see `lockstep.tables.views`.
        """
        full_name, said = name_of(name), dict(properties or {})
        check_view_properties(full_name, said)
        refuse_function(self.core, full_name)
        views = Views(self.core, self._layout, catalog)
        if comment is not None:
            said["comment"] = comment
        definition = views.definition(full_name, query, schema, said)
        self.core.changing().create_view(full_name, definition, replace=replace)

    def _layout(self, name: Name) -> Layout:
        """Return the layout of a table, whose columns are asked for."""
        table = self._catalog.table(self.core, name)
        self.core.read_columns(table)
        return self._states.layout(self.core, table)

    @writes
    def drop_view(self, name: AName) -> None:
        """Drop a view.

        Raises:
            UndefinedError (42P01): there is no view of that name.
            InvalidError (42809): it is a table.
        """
        self._refuse_table(name, "drop drops it")
        refuse_function(self.core, name_of(name))
        self.core.changing().drop_view(name_of(name))

    @writes
    def rename_view(self, name: AName, new_name: AName) -> None:
        """Give a view another name, which may be in another namespace.

        Raises:
            UndefinedError (42P01, 3F000), DuplicateError (42P07): no such view or namespace; the name is taken.
            InvalidError (42809): it is a table.
        """
        old, new = name_of(name), name_of(new_name)
        self._refuse_table(old, "rename renames it")
        refuse_function(self.core, old)
        self.core.change_names(lambda names: names.rename_view(old, new))

    def _refuse_view(self, name: AName, instead: str) -> None:
        if name_of(name) in self.core.names.views:
            raise InvalidError(f"{name_of(name)} is a view: {instead}", sqlstate=WRONG_KIND)

    def _refuse_table(self, name: AName, instead: str) -> None:
        if name_of(name) in self.core.names.tables:
            raise InvalidError(f"{name_of(name)} is a table: {instead}", sqlstate=WRONG_KIND)

    # --- tables -------------------------------------------------------------------------------------------------------

    def __getitem__(self, name: AName) -> TransactionTable:
        """Return a table by its name; that it is there shows when it is used."""
        return TransactionTable(self._scope, name_of(name))

    @reads
    @takes(query=str)
    def sql(self, query: str, /, **relations: Any) -> pa.Table:
        """Return DuckDB's answer to a query of the tables, with the transaction's own writes.

        Each table that it names counts as read, as a whole.

        Args:
            relations: what else the query may read, by name: Arrow, Polars, pandas.

        Raises:
            UndefinedError: no such table. UnsupportedError: not a query, a view, or a table that only Spark can read.
            InvalidError: DuckDB refuses the query.
        """
        return run_query(query, self._read, relations)

    def _read(self, name: Name) -> pa.Table:
        return self[name].to_arrow()

    @property
    def core(self) -> Transaction:
        """The transaction's own record of what it did.

        Raises:
            NoTransactionError: it has not begun.
        """
        if self._tx is None:
            raise NoTransactionError("this transaction has not begun: use it in a with statement")
        return self._tx


def _check_properties(namespace: Namespace, properties: Mapping[str, str]) -> None:
    check_texts(properties, "properties")
    if "location" in properties:
        raise UnsupportedError(
            f"namespace {'.'.join(namespace)} cannot have a location: a lake's namespaces are names, and have no "
            "folder. Leave it out, and say location= of the tables that are to lie elsewhere. Nothing was changed"
        )
    if not all(key.strip() for key in properties):
        raise InvalidError("a property of a namespace has no name: give it one. Nothing was changed")
