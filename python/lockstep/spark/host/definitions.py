"""What requests about views and about functions have in common: both are kept as views, and read as these are."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from msgspec import UNSET, UnsetType

from lockstep.spark.host.protocol.base import AboutNamespace, AboutRelation
from lockstep.spark.host.requests import Requests, listing, stored_name
from lockstep.timeline.entry import Name, Namespace, View

if TYPE_CHECKING:
    from lockstep.spark.host.lakehouses import Lakehouse
    from lockstep.spark.host.sessions import Session


class Seen(NamedTuple):
    """What a name says, in which database version, and, outside a transaction, what the statement reads from now on."""

    view: View | None
    version: int | UnsetType
    pin: int | UnsetType = UNSET


class DefinitionRequests(Requests):
    """The base of a host's answers about what is kept as views."""

    def _now(self, session: Session, house: Lakehouse, request: AboutRelation) -> Seen:
        """Return what a name says in the version that the statement, or the transaction, reads."""
        if (tx := session.inside(house)) is not None:
            name = self._name(session, house, request)
            tx.read_view(name)
            view = tx.names.views.get(name)
            is_snapshots = view is not None and view == tx.base.views.get(name)
            return Seen(view, tx.base.version if is_snapshots else UNSET)
        database = self._pinned(house, request)
        return Seen(database.views.get(stored_name(request, database)), database.version, database.version)

    def _past(self, session: Session, house: Lakehouse, request: AboutRelation, when: int | str | datetime) -> Seen:
        """Return what a name said in an older version; a time is no later than what else the statement reads."""
        pin: int | UnsetType = UNSET
        if (tx := session.inside(house)) is not None:
            tx.seen.last_version = True
            past = house.catalog.as_of(when, at_most=tx.base.version, names=tx.names)
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
