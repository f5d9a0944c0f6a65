"""What requests about views and about functions have in common: both are kept as views, and read as these are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from lockstep.errors import NoTransactionError, UnsupportedError
from lockstep.spark.host.protocol.base import AboutNamespace, AboutRelation, Options
from lockstep.spark.host.protocol.tables import UsedView
from lockstep.spark.host.requests import Requests, listing, stored_name
from lockstep.spark.host.times import reaches_beyond
from lockstep.timeline.entry import Name, Namespace, View
from lockstep.timeline.functions import said
from lockstep.transactions.transaction import Transaction

if TYPE_CHECKING:
    from lockstep.spark.host.lakehouses import Lakehouse
    from lockstep.spark.host.sessions import Session


MARK_BYTES = 7
"""So large are marks: one has room in Java's long."""


class Seen(NamedTuple):
    """What a name says, in which database version, and, outside a transaction, what the statement reads from now on.

    What the transaction itself has defined is of no database version: it has a mark below 0 instead, see `own_mark`.
    """

    view: View | None
    version: int | UnsetType
    pin: int | UnsetType = UNSET


def own_mark(tx: Transaction, name: Name, view: View) -> int:
    """Return the mark, below 0, of what a transaction itself has defined: of another one, or another text, another."""
    digest = sha256(b"\0".join([tx.id.encode(), msgspec.json.encode(name), msgspec.json.encode(view)])).digest()
    return -1 - int.from_bytes(digest[:MARK_BYTES])


def check_not_ended(used: UsedView) -> None:
    """Raise if a definition was a transaction's own: of one that is still open it is told before.

    Raises:
        NoTransactionError: it was.
    """
    if used.version < 0:
        name = Name(namespace=used.name[:-1], table=used.name[-1])
        raise NoTransactionError(
            f"a transaction of another session, or one that has ended or went back to a savepoint, had defined "
            f"{said(name)}, and a DataFrame that was made inside it is used: make it again"
        )


class UsesOfDefinitions(Requests):
    """The base of a host's answers about what uses views and functions."""

    def _definitions_of(
        self, house: Lakehouse, used: Iterable[UsedView], catalogs: Mapping[str, Options]
    ) -> Iterator[UsedView]:
        """Yield which of the used views and functions are of a catalog's lake, whatever the catalog is called.

        Raises:
            UnsupportedError: one is of a catalog that the session does not have.
        """
        for each in used:
            if each.catalog not in catalogs:
                raise UnsupportedError(
                    f"this statement uses a DataFrame with a view or a function of catalog {each.catalog}, which this "
                    "session does not have: make the DataFrame again in this session, and run this again"
                )
            if self._host.lakehouses.has_root(catalogs[each.catalog], house.catalog.lake.storage.url):
                yield each


class DefinitionRequests(Requests):
    """The base of a host's answers about what is kept as views."""

    def _now(self, session: Session, house: Lakehouse, request: AboutRelation) -> Seen:
        """Return what a name says in the version that the statement, or the transaction, reads."""
        if (tx := session.inside(house)) is not None:
            name = self._name(session, house, request)
            tx.read_view(name)
            view = tx.names.views.get(name)
            is_snapshots = view is not None and view == tx.base.views.get(name)
            if view is None or is_snapshots:
                return Seen(view, tx.base.version if is_snapshots else UNSET)
            return Seen(view, own_mark(tx, name, view))
        database = self._pinned(house, request)
        return Seen(database.views.get(stored_name(request, database)), database.version, database.version)

    def _past(self, session: Session, house: Lakehouse, request: AboutRelation, when: int | str | datetime) -> Seen:
        """Return what a name said in an older version; a time is no later than what else the statement reads."""
        pin: int | UnsetType = UNSET
        if (tx := session.inside(house)) is not None:
            tx.seen.last_version = True
            past = house.catalog.as_of(when, at_most=tx.base.version, names=tx.names)
            if reaches_beyond(when, tx.base):
                tx.read_view(stored_name(request, past))
                session.reads_newest = True
        elif isinstance(when, datetime):
            pin = self._pinned(house, request).version
            past = house.catalog.as_of(when, at_most=pin)
        else:
            past = house.catalog.as_of(when)
        return Seen(past.views.get(stored_name(request, past)), past.version, pin)

    def _listed(
        self, session: Session, request: AboutNamespace, is_wanted: Callable[[View], bool]
    ) -> tuple[Namespace, list[Name]]:
        """Return how the namespace of a request is stored, and the names of what is wanted in it, in order."""
        house = self._house(request)
        if self._is_reserved(session, house, request.namespace):
            return request.namespace, []
        scope = self._scope(session, house)
        found = listing(request, scope, scope.views)
        names = [Name(namespace=found.namespace, table=each) for each in found.names]
        return found.namespace, [name for name in names if is_wanted(scope.views[name])]
