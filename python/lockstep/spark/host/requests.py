"""What requests of the shim's catalog have in common: a name, what is seen of it, how it is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from lockstep.errors import InvalidError, UndefinedError
from lockstep.spark.host.protocol.base import (
    AboutCatalog,
    AboutName,
    AboutNamespace,
    AboutRelation,
    Answer,
    Listing,
    Parts,
    RequestBase,
)
from lockstep.spark.host.sessions import Session
from lockstep.system.namespace import is_of_system, is_reserved, refuse_reserved
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Name, Namespace, Table, names_in
from lockstep.transactions.ddl import AMBIGUOUS, spelled, spelled_namespace, spellings
from lockstep.transactions.lookup import find_table
from lockstep.transactions.names import NO_NAMESPACE, Names
from lockstep.transactions.transaction import Transaction

if TYPE_CHECKING:
    from lockstep.spark.host.host import Host
    from lockstep.spark.host.lakehouses import Lakehouse

Change: TypeAlias = "Callable[[Transaction], None]"
Operation: TypeAlias = Callable[[Session, Any], Answer]
"""What answers the requests of one class, and is called with no other: `operation` sees to that."""

R = TypeVar("R", bound=RequestBase)


def operation(kind: type[R], answers: Callable[[Session, R], Answer]) -> tuple[type[RequestBase], Operation]:
    """Return a class of requests, and what answers them."""
    return kind, answers


class Requests:
    """The base of a host's answers about what a catalog holds."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def _house(self, request: AboutCatalog) -> Lakehouse:
        return self._host.lakehouses.get(request.catalog, request.options)

    def _scope(self, session: Session, house: Lakehouse) -> Transaction | Database:
        """Return what a session sees now: its transaction's view, or the newest database version."""
        return session.inside(house) or house.catalog.database()

    def _names_in(self, session: Session, house: Lakehouse) -> Names | Database:
        """Return the names that a session sees now, for who asks for one that `_name` has noted."""
        return house.catalog.database() if (tx := session.inside(house)) is None else tx.names

    def _name(self, session: Session, house: Lakehouse, request: AboutName) -> Name:
        """Return how the name of a request is stored, as `spark.sql.caseSensitive` has it; a new one is as written."""
        return self._stored(session, house, name_of(request), case_sensitive=request.case_sensitive)

    def _stored(self, session: Session, house: Lakehouse, name: Name, *, case_sensitive: bool) -> Name:
        """Return how a name is stored; a transaction was told what it means."""
        if (tx := session.inside(house)) is not None:
            return tx.see(name if case_sensitive else spelled(name, tx.names))
        head = house.catalog.timeline.head
        if case_sensitive or name in head.tables or name in head.views:
            return name  # most are, and need no look at the store
        return spelled(name, house.catalog.database())

    def _look(self, house: Lakehouse, tx: Transaction, request: AboutRelation) -> None:
        """Take in what plain Delta writers did to the tables that a statement of a transaction names."""
        names = _names([*request.mentioned, (*request.namespace, request.table)])
        if not request.case_sensitive:
            names = [spelling for each in names for spelling in spellings(each, tx.names)]
        house.catalog.look(tx, dict.fromkeys(names))

    def _new_name(self, session: Session, house: Lakehouse, request: AboutName, to: tuple[str, ...], old: Name) -> Name:
        """Return what a request renames a table or view to, which may be its own name in another case.

        Raises:
            InvalidError (42702): its first part may be the catalog, and a namespace that is called alike.
        """
        is_short = len(to) == 2 and to[0] == request.catalog
        if is_short and (request.catalog,) in self._names_in(session, house).namespaces:
            inside = ".".join(old.namespace)
            raise InvalidError(
                f"{'.'.join(to)} may be {to[1]} of the namespace {to[0]} or of the catalog that is called alike: write "
                f"{to[0]}.{to[0]}.{to[1]}, or {to[0]}.{inside}.{to[1]}",
                sqlstate=AMBIGUOUS,
            )
        new = new_name_of(request, to, old)
        self._refuse_system(session, house, new.namespace)
        name = new if request.case_sensitive else spelled(new, self._scope(session, house))
        return Name(namespace=name.namespace, table=new.table) if name == old else name

    def _pinned(self, house: Lakehouse, request: AboutRelation) -> Database:
        """Return the database version that a statement outside a transaction reads.

        The shim keeps its number, and sends it with each request of the statement: this host may be another one than
        that which chose it.
        """
        mentions, names, pin = _names(request.mentioned), _names(request.seen), request.pin
        if not request.case_sensitive:
            timeline = house.catalog.timeline
            mentions = [spelling for each in mentions for spelling in {each, *spellings(each, timeline.head)}]
            if pin is not None and pin <= timeline.head.version:
                at = (timeline.at(pin), timeline.head)
                names += [spelling for each in names for database in at for spelling in spellings(each, database)]
        return house.catalog.read(mentions, pin=pin, seen=names)

    def _is_reserved(self, session: Session, house: Lakehouse, namespace: Namespace) -> bool:
        """Tell whether a namespace is that of the system tables, or one below it, see `is_reserved`."""
        return is_of_system(namespace) and is_reserved(namespace, self._names_in(session, house).namespaces)

    def _refuse_system(self, session: Session, house: Lakehouse, namespace: Namespace) -> None:
        """Refuse to change what is in the namespace of the system tables, or the namespace itself."""
        if is_of_system(namespace):
            refuse_reserved(namespace, self._names_in(session, house).namespaces)

    def _change(self, session: Session, request: AboutCatalog, change: Change, text: str) -> int | None:
        """Change the catalog in the open transaction, or in one of its own, whose database version is returned."""
        house = self._house(request)
        if isinstance(request, AboutName | AboutNamespace):
            self._refuse_system(session, house, request.namespace)
        if (tx := session.inside(house)) is not None:
            change(tx)
            tx.note_statement(text)
            return None
        done = house.catalog.run(change, text, author=request.user, case_sensitive=request.case_sensitive)
        return done.version


def _names(names: Iterable[Parts]) -> list[Name]:
    return [Name(namespace=tuple(namespace) or ("default",), table=table) for *namespace, table in names]


def name_of(request: AboutName) -> Name:
    """Return the table or view that a request names; Spark's empty namespace is `default`."""
    return Name(namespace=request.namespace or ("default",), table=request.table)


def stored_name(request: AboutName, scope: Database) -> Name:
    """Return how the name of a request is stored in what is seen, as written if nothing there has it.

    Raises:
        InvalidError (42702): several names may be meant.
    """
    name = name_of(request)
    return name if request.case_sensitive else spelled(name, scope)


def find(request: AboutName, database: Database) -> Table:
    """Return the table that a request names of a database version, old or new.

    Raises:
        UndefinedError: it has none of that name. InvalidError (42702): several.
    """
    return find_table(database, stored_name(request, database))


def stored_namespace(request: AboutCatalog, namespace: Namespace, scope: Transaction | Database) -> Namespace:
    """Return how a namespace that a request names is stored."""
    return namespace if request.case_sensitive else spelled_namespace(namespace, scope)


def new_name_of(request: AboutName, to: tuple[str, ...], old: Name) -> Name:
    """Return what a request renames a table or view to: in the same namespace, if it names no other."""
    if len(to) > 1 and to[0] == request.catalog:
        to = to[1:]
    return Name(namespace=to[:-1] or old.namespace, table=to[-1])


def listing(request: AboutNamespace, scope: Transaction | Database, values: Mapping[Name, Any]) -> Listing:
    """Return the names of a map that are in the namespace of a request, by their last parts, and how that is stored.

    Raises:
        UndefinedError (3F000): there is no such namespace.
    """
    namespace = stored_namespace(request, request.namespace, scope) or ("default",)
    if namespace not in scope.namespaces:
        raise UndefinedError(f"no namespace {'.'.join(namespace)}; CREATE NAMESPACE makes one", sqlstate=NO_NAMESPACE)
    return Listing(names=sorted(name.table for name in names_in(values, namespace)), namespace=namespace)
