"""A transaction before it commits: the database as it sees it, and what it did so far. Values only, no storage.

    REQUESTED ──first staged write──▶ INFLIGHT ──▶ COMPLETED | ROLLED_BACK
        └──────────────────────────────────────────▶

What it sees is its snapshot, the database version at BEGIN, with its own changes on top. What it staged is kept as
table versions only; the commits themselves lie in the tables' staging folders.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from lockstep.errors import (
    DuplicateError,
    FailedTransactionError,
    InvalidError,
    NoTransactionError,
    ReadOnlyError,
    UndefinedError,
)
from lockstep.model import (
    NEW,
    Database,
    Isolation,
    Name,
    Namespace,
    NamespaceDdl,
    Table,
    TableDdl,
    TableRead,
    TransactionInfo,
)

MAX_STATEMENTS = 100
MAX_STATEMENT_CHARACTERS = 1000
"""How much of a transaction's text its entry keeps."""

NOT_EMPTY = "2BP01"
NO_NAMESPACE = "3F000"
NAMESPACE_EXISTS = "42P06"


class State(enum.StrEnum):
    """Where a transaction is in its life."""

    REQUESTED = "REQUESTED"
    INFLIGHT = "INFLIGHT"
    COMPLETED = "COMPLETED"
    ROLLED_BACK = "ROLLED_BACK"


@dataclass(frozen=True, slots=True)
class Creation:
    """A table that is about to be created: its name is taken once its first version is staged."""

    id: str
    name: Name
    location: str


@dataclass
class Transaction:
    """One transaction's view and changes; not for use by two threads at once.

    Attributes:
        id: unique for ever.
        base: the database version at BEGIN.
        began_at: when, UTC.
        staged: by table id, the versions that Delta staged, in order; they follow the pin without a gap.
        dropped: tables that it staged commits for, and then dropped.
        failure: what the first failed write said, once one failed.
        state: see `State`.
        version: the database version that it committed; the snapshot's if there was nothing to commit; None before.
    """

    id: str
    base: Database
    began_at: datetime
    isolation: Isolation = "SERIALIZABLE"
    read_only: bool = False
    comment: str = ""
    author: str = ""
    application: str = ""
    staged: dict[str, list[int]] = field(default_factory=dict)
    failure: str | None = None
    state: State = State.REQUESTED
    version: int | None = None
    statements: list[str] = field(default_factory=list)
    dropped: list[Table] = field(default_factory=list)
    _tables: dict[Name, Table] = field(init=False)
    _namespaces: dict[Namespace, dict[str, str]] = field(init=False)
    _table_ddl: list[TableDdl] = field(init=False, default_factory=list)
    _namespace_ddl: list[NamespaceDdl] = field(init=False, default_factory=list)
    _reads: set[str] = field(init=False, default_factory=set)
    _creations: dict[str, Creation] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._tables = dict(self.base.tables)
        self._namespaces = dict(self.base.namespaces)

    def __repr__(self) -> str:
        wrote = f", {len(self.staged)} tables written" if self.staged else ""
        return f"<Transaction {self.id} {self.state} {self.isolation} from database version {self.base.version}{wrote}>"

    # --- what it sees -------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether it can still do anything."""
        return self.state in (State.REQUESTED, State.INFLIGHT)

    @property
    def tables(self) -> Mapping[Name, Table]:
        """The tables that it sees. A table's `version` is its pin: the version at BEGIN, `NEW` for one of its own."""
        return self._tables

    @property
    def namespaces(self) -> Mapping[Namespace, Mapping[str, str]]:
        """The namespaces that it sees, with their properties."""
        return self._namespaces

    def table(self, name: Name) -> Table:
        """Return a table that it sees.

        Raises:
            UndefinedError: it sees none of that name.
        """
        if (table := self._tables.get(name)) is None:
            raise UndefinedError(f"no table {name} in database version {self.base.version} or made by this transaction")
        return table

    def has_written(self, table: Table) -> bool:
        """Whether reads of the table must see staged commits."""
        return table.id in self.staged

    def read(self, table: Table) -> None:
        """Note that rows of the table were read."""
        self._reads.add(table.id)

    def said(self, text: str) -> None:
        """Keep a statement's text for the entry, bounded; an analysis that runs twice says it once."""
        short = " ".join(text.split())[:MAX_STATEMENT_CHARACTERS]
        if len(self.statements) < MAX_STATEMENTS and self.statements[-1:] != [short]:
            self.statements.append(short)

    # --- what it does -------------------------------------------------------------------------------------------------

    def check_writable(self) -> None:
        """Raise unless it may change something.

        Raises:
            NoTransactionError: it has ended.
            ReadOnlyError: it was begun READ ONLY.
            FailedTransactionError: a write of it failed; only ROLLBACK helps.
        """
        if not self.is_open:
            raise NoTransactionError(f"transaction {self.id} has ended ({self.state}); begin another")
        if self.read_only:
            raise ReadOnlyError(
                "this transaction was begun READ ONLY; COMMIT or ROLLBACK it and begin one that may write"
            )
        self.check_sound()

    def check_sound(self) -> None:
        """Raise if a write of this transaction failed."""
        if self.failure is not None:
            raise FailedTransactionError(
                f"a write of this transaction failed, so it can only be rolled back. The failure was: {self.failure}"
            )

    def stage(self, location: str, version: int) -> None:
        """Note a commit that Delta staged: the next version of a table, or the first of a reserved one.

        Raises:
            InvalidError: the location is no table of this transaction, or the version does not follow the last.
        """
        self.check_writable()
        if (creation := self._creations.pop(location, None)) is not None and version == 0:
            self._take_name(creation.name)
            table = Table(id=creation.id, name=creation.name, location=location, version=NEW, since=self.base.version)
            self._put(table)
            self._table_ddl.append(TableDdl(action="create", id=table.id, name=table.name, location=location))
        found = next((table for table in self._tables.values() if table.location == location), None)
        if found is None:
            raise InvalidError(f"nothing at {location} belongs to transaction {self.id}")
        versions = self.staged.setdefault(found.id, [])
        expected = versions[-1] + 1 if versions else found.version + 1
        if version != expected:
            raise InvalidError(f"table {found.name}: version {version} was staged where {expected} was expected")
        versions.append(version)
        self.state = State.INFLIGHT

    def reserve(self, name: Name, id: str) -> Creation:
        """Choose where a new table of this name will lie; `stage` of its first version makes it real.

        Raises:
            UndefinedError (3F000), DuplicateError (42P07): no such namespace; the name is taken.
        """
        self.check_writable()
        self._check_free(name)
        creation = Creation(id=id, name=name, location=new_location(name, id))
        self._creations[creation.location] = creation
        return creation

    def drop_table(self, name: Name) -> None:
        """Take a table out of the catalog; its files stay for the database versions that have it."""
        self.check_writable()
        table = self.table(name)
        del self._tables[name]
        if table.id in self.staged:
            self.dropped.append(table)
        self._ddl(TableDdl(action="drop", id=table.id, name=name))

    def rename_table(self, name: Name, new_name: Name) -> None:
        """Give a table another name, in another namespace if asked."""
        self.check_writable()
        table = self.table(name)
        self._check_free(new_name)
        del self._tables[name]
        self._put(msgspec.structs.replace(table, name=new_name))
        self._ddl(TableDdl(action="rename", id=table.id, name=name, new_name=new_name))

    def create_namespace(self, name: Namespace, properties: Mapping[str, str]) -> None:
        """Make a namespace.

        Raises:
            DuplicateError (42P06): there is one. UndefinedError (3F000): its parent does not exist.
        """
        self.check_writable()
        if name in self._namespaces:
            raise DuplicateError(f"namespace {'.'.join(name)} exists", sqlstate=NAMESPACE_EXISTS)
        if len(name) > 1:
            self.check_namespace(name[:-1])
        self._namespaces[name] = dict(properties)
        self._namespace_ddl.append(NamespaceDdl(action="create", name=name, properties=dict(properties)))

    def alter_namespace(self, name: Namespace, properties: Mapping[str, str]) -> None:
        """Replace a namespace's properties."""
        self.check_writable()
        self.check_namespace(name)
        self._namespaces[name] = dict(properties)
        self._namespace_ddl.append(NamespaceDdl(action="alter", name=name, properties=dict(properties)))

    def drop_namespace(self, name: Namespace, *, cascade: bool) -> None:
        """Remove a namespace, with all that is in it if `cascade`.

        Raises:
            InvalidError (2BP01): it is not empty, and `cascade` was not asked for.
        """
        self.check_writable()
        self.check_namespace(name)
        inside = [n for n in self._tables if n.namespace[: len(name)] == name]
        below = sorted((n for n in self._namespaces if n[: len(name)] == name and n != name), key=len, reverse=True)
        if (inside or below) and not cascade:
            what = inside[0] if inside else ".".join(below[0])
            raise InvalidError(f"namespace {'.'.join(name)} is not empty ({what}); use CASCADE", sqlstate=NOT_EMPTY)
        for table in inside:
            self.drop_table(table)
        for namespace in (*below, name):
            del self._namespaces[namespace]
            self._namespace_ddl.append(NamespaceDdl(action="drop", name=namespace))

    def check_namespace(self, name: Namespace) -> None:
        """Raise UndefinedError (3F000) unless it sees this namespace."""
        if name not in self._namespaces:
            raise UndefinedError(f"no namespace {'.'.join(name)}; CREATE NAMESPACE makes one", sqlstate=NO_NAMESPACE)

    def _check_free(self, name: Name) -> None:
        self.check_namespace(name.namespace)
        self._take_name(name)

    def _take_name(self, name: Name) -> None:
        if name in self._tables:
            raise DuplicateError(f"table {name} exists")

    def _put(self, table: Table) -> None:
        self._tables[table.name] = table

    def _ddl(self, ddl: TableDdl) -> None:
        self._table_ddl.append(ddl)
        self.state = State.INFLIGHT

    # --- what it changed ----------------------------------------------------------------------------------------------

    def written(self) -> list[Table]:
        """The tables with staged commits, by their names now."""
        return sorted((t for t in self._tables.values() if t.id in self.staged), key=lambda t: t.name)

    def table_ddl(self) -> list[TableDdl]:
        """Its changes of the list of tables, in order, without tables that it both made and dropped."""
        made = {ddl.id for ddl in self._table_ddl if ddl.action == "create"}
        gone = {ddl.id for ddl in self._table_ddl if ddl.action == "drop"}
        return [ddl for ddl in self._table_ddl if ddl.id not in made & gone]

    def namespace_ddl(self) -> list[NamespaceDdl]:
        """Its changes of the list of namespaces, in order, without those that it both made and dropped."""
        gone = {n.name for n in self._namespace_ddl} - self._namespaces.keys() - self.base.namespaces.keys()
        return [ddl for ddl in self._namespace_ddl if ddl.name not in gone]

    def reads(self) -> list[TableRead]:
        """The tables of its snapshot that it read."""
        read = (t for t in self.base.tables.values() if t.id in self._reads)
        return [TableRead(id=t.id, name=t.name, version=t.version) for t in sorted(read, key=lambda t: t.name)]

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


def new_location(name: Name, id: str) -> str:
    """Return a folder for a new table: readable, and unique because the id is."""
    parts = [re.sub(r"[^A-Za-z0-9_-]", "_", part) or "_" for part in (*name.namespace, name.table)]
    return f"{'/'.join(parts)}-{id}"
