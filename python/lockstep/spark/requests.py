"""What requests of the shim's catalog have in common: a name, what is seen of it, how it is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from lockstep.errors import UndefinedError
from lockstep.model import Database, Name
from lockstep.transactions import NO_NAMESPACE, Transaction

if TYPE_CHECKING:
    from lockstep.spark.host import Host, Lakehouse, Request, Session

Change: TypeAlias = "Callable[[Transaction], None]"


class Requests:
    """The base of a host's answers about what a catalog holds."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def _house(self, asked: Request) -> Lakehouse:
        return self._host.lakehouse(asked["catalog"], asked["options"])

    def _seen(self, session: Session, house: Lakehouse) -> Transaction | Database:
        """Return what a session sees now: its transaction's view, or the newest database version."""
        return session.inside(house) or house.catalog.database()

    def _pinned(self, house: Lakehouse, asked: Request) -> Database:
        """Return the database version that a statement outside a transaction reads.

        The shim keeps its number, and sends it with each request of the statement: this host may be another one than
        that which chose it.
        """
        return house.catalog.read(_names(asked, "mentioned"), pin=asked.get("pin"), seen=_names(asked, "seen"))

    def _change(self, session: Session, asked: Request, change: Change, text: str) -> None:
        """Change the catalog in the open transaction, or in one of its own."""
        house = self._house(asked)
        if (tx := session.inside(house)) is not None:
            change(tx)
            tx.said(text)
        else:
            house.catalog.run(change, text)


def _names(asked: Request, field: str) -> list[Name]:
    return [Name(namespace=tuple(ns) or ("default",), table=table) for *ns, table in asked.get(field) or []]


def name_of(asked: Request) -> Name:
    """Return the table or view that a request names; Spark's empty namespace is `default`."""
    return Name(namespace=tuple(asked["namespace"]) or ("default",), table=asked["table"])


def new_name_of(asked: Request) -> Name:
    """Return what a request renames a table or view to: in the same namespace, if it names no other."""
    to = list(asked["to"])
    if len(to) > 1 and to[0] == asked["catalog"]:
        to = to[1:]
    return Name(namespace=tuple(to[:-1]) or name_of(asked).namespace, table=to[-1])


def listed(asked: Request, seen: Transaction | Database, names: Iterable[Name]) -> list[str]:
    """Return those of the names that are in the namespace of a request, by their last parts.

    Raises:
        UndefinedError (3F000): there is no such namespace.
    """
    namespace = tuple(asked["namespace"]) or ("default",)
    if namespace not in seen.namespaces:
        raise UndefinedError(f"no namespace {'.'.join(namespace)}", sqlstate=NO_NAMESPACE)
    return sorted(name.table for name in names if name.namespace == namespace)
