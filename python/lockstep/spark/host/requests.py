"""What requests of the shim's catalog have in common: a name, what is seen of it, how it is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from lockstep.catalog import find_table
from lockstep.errors import UndefinedError
from lockstep.timeline.entry import Database, Name, Namespace, Table
from lockstep.transactions.ddl import spelled, spelled_namespace, spellings
from lockstep.transactions.names import NO_NAMESPACE
from lockstep.transactions.transaction import Transaction

if TYPE_CHECKING:
    from lockstep.spark.host.host import Host
    from lockstep.spark.host.lakehouses import Lakehouse
    from lockstep.spark.host.sessions import Answer, Request, Session

Change: TypeAlias = "Callable[[Transaction], None]"


class Requests:
    """The base of a host's answers about what a catalog holds."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def _house(self, asked: Request) -> Lakehouse:
        return self._host.lakehouses.get(asked["catalog"], asked["options"])

    def _seen(self, session: Session, house: Lakehouse) -> Transaction | Database:
        """Return what a session sees now: its transaction's view, or the newest database version."""
        return session.inside(house) or house.catalog.database()

    def _name(self, session: Session, house: Lakehouse, asked: Request) -> Name:
        """Return how the name of a request is stored, as `spark.sql.caseSensitive` has it; a new one is as written."""
        name = name_of(asked)
        if is_case_sensitive(asked):
            return name
        head = house.catalog.timeline.head
        if session.inside(house) is None and (name in head.tables or name in head.views):
            return name  # most are, and need no look at the store
        return spelled(name, self._seen(session, house))

    def _new_name(self, session: Session, house: Lakehouse, asked: Request, old: Name) -> Name:
        """Return what a request renames a table or view to, which may be its own name in another case."""
        new = new_name_of(asked, old)
        stored = new if is_case_sensitive(asked) else spelled(new, self._seen(session, house))
        return Name(namespace=stored.namespace, table=new.table) if stored == old else stored

    def _pinned(self, house: Lakehouse, asked: Request) -> Database:
        """Return the database version that a statement outside a transaction reads.

        The shim keeps its number, and sends it with each request of the statement: this host may be another one than
        that which chose it.
        """
        mentioned, seen, pin = _names(asked, "mentioned"), _names(asked, "seen"), asked.get("pin")
        if not is_case_sensitive(asked):
            timeline = house.catalog.timeline
            mentioned = [found for each in mentioned for found in {each, *spellings(each, timeline.head)}]
            if pin is not None and pin <= timeline.head.version:
                at = (timeline.at(pin), timeline.head)
                seen += [found for each in seen for database in at for found in spellings(each, database)]
        return house.catalog.read(mentioned, pin=pin, seen=seen)

    def _change(self, session: Session, asked: Request, change: Change, text: str) -> None:
        """Change the catalog in the open transaction, or in one of its own."""
        house = self._house(asked)
        if (tx := session.inside(house)) is not None:
            change(tx)
            tx.said(text)
        else:
            house.catalog.run(change, text, case_sensitive=is_case_sensitive(asked))


def _names(asked: Request, field: str) -> list[Name]:
    return [Name(namespace=tuple(ns) or ("default",), table=table) for *ns, table in asked.get(field) or []]


def name_of(asked: Request) -> Name:
    """Return the table or view that a request names; Spark's empty namespace is `default`."""
    return Name(namespace=tuple(asked["namespace"]) or ("default",), table=asked["table"])


def is_case_sensitive(asked: Request) -> bool:
    """Whether names that differ in case alone are two to the session of a request."""
    return asked.get("case_sensitive", True) is True


def stored(asked: Request, seen: Transaction | Database) -> Name:
    """Return how the name of a request is stored in what is seen, as written if nothing there has it.

    Raises:
        InvalidError (42702): several names may be meant.
    """
    name = name_of(asked)
    return name if is_case_sensitive(asked) else spelled(name, seen)


def find(asked: Request, database: Database) -> Table:
    """Return the table that a request names of a database version, old or new.

    Raises:
        UndefinedError: it has none of that name. InvalidError (42702): several.
    """
    return find_table(database, stored(asked, database))


def namespace_of(asked: Request, seen: Transaction | Database, key: str = "namespace") -> Namespace:
    """Return how the namespace of a request is stored; Spark's empty one is `default`."""
    namespace = tuple(asked[key])
    return namespace if is_case_sensitive(asked) else spelled_namespace(namespace, seen)


def new_name_of(asked: Request, old: Name) -> Name:
    """Return what a request renames a table or view to: in the same namespace, if it names no other."""
    to = list(asked["to"])
    if len(to) > 1 and to[0] == asked["catalog"]:
        to = to[1:]
    return Name(namespace=tuple(to[:-1]) or old.namespace, table=to[-1])


def listed(asked: Request, seen: Transaction | Database, names: Iterable[Name]) -> Answer:
    """Return those of the names that are in the namespace of a request, by their last parts, and how that is stored.

    Raises:
        UndefinedError (3F000): there is no such namespace.
    """
    namespace = namespace_of(asked, seen) or ("default",)
    if namespace not in seen.namespaces:
        raise UndefinedError(f"no namespace {'.'.join(namespace)}", sqlstate=NO_NAMESPACE)
    return {"names": sorted(name.table for name in names if name.namespace == namespace), "namespace": namespace}
