"""The requests of the shim's catalog about views: what a name says, and what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType

from lockstep.errors import DuplicateError, InvalidError
from lockstep.spark.host.protocol import views as protocol
from lockstep.spark.host.protocol.base import Answer, Dropped, Listing, RequestBase
from lockstep.spark.host.protocol.tables import Missing
from lockstep.spark.host.requests import Operation, Requests, listing, operation, stored_name
from lockstep.spark.host.times import time_of
from lockstep.spark.host.versions import database_version
from lockstep.timeline.entry import Name, View
from lockstep.timeline.functions import PROPERTY, is_function, said
from lockstep.transactions.transaction import Transaction

if TYPE_CHECKING:
    from lockstep.spark.host.host import Host
    from lockstep.spark.host.lakehouses import Lakehouse
    from lockstep.spark.host.sessions import Session

_VERBS = {"create": "CREATE VIEW", "replace": "ALTER VIEW", "create_or_replace": "CREATE OR REPLACE VIEW"}


class ViewRequests(Requests):
    """Answers about views, for one host."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.operations: Mapping[type[RequestBase], Operation] = dict(
            (
                operation(protocol.ResolveView, self._view),
                operation(protocol.Views, self._list_views),
                operation(protocol.CreateView, self._create_view),
                operation(protocol.DropView, self._drop_view),
                operation(protocol.RenameView, self._rename_view),
            )
        )

    def _view(self, session: Session, request: protocol.ResolveView) -> protocol.ViewAnswer | Missing:
        """Answer what a name says as a view, in the version that the statement, or the transaction, reads."""
        house = self._house(request)
        if request.version is not None or request.system_time_micros is not None:
            return self._past_view(session, house, request)
        if (tx := session.inside(house)) is not None:
            name = self._name(session, house, request)
            tx.read_view(name)
            view = tx.names.views.get(name)
            is_snapshots = view is not None and view == tx.base.views.get(name)
            return _view_answer(view, version=tx.base.version if is_snapshots else UNSET)
        database = self._pinned(house, request)
        view = database.views.get(stored_name(request, database))
        return _view_answer(view, version=database.version, pin=database.version)

    def _past_view(
        self, session: Session, house: Lakehouse, request: protocol.ResolveView
    ) -> protocol.ViewAnswer | Missing:
        """Answer what a name said in an older version; a time is no later than what else the statement reads."""
        when = (
            time_of(request.system_time_micros or 0)
            if request.version is None
            else database_version(request.version.removeprefix("@"))
        )
        pin: int | UnsetType
        if (tx := session.inside(house)) is not None:
            tx.seen.last_version = True
            past, pin = house.catalog.as_of(when, at_most=tx.base.version, names=tx.names), UNSET
        elif request.version is not None:
            past, pin = house.catalog.as_of(when), UNSET
        else:
            pinned = self._pinned(house, request)
            past, pin = house.catalog.as_of(when, at_most=pinned.version), pinned.version
        return _view_answer(past.views.get(stored_name(request, past)), version=past.version, pin=pin)

    def _list_views(self, session: Session, request: protocol.Views) -> Listing:
        house = self._house(request)
        if self._is_reserved(session, house, request.namespace):
            return Listing(names=[], namespace=request.namespace)
        scope = self._scope(session, house)
        found = listing(request, scope, scope.views)
        names = [Name(namespace=found.namespace, table=each) for each in found.names]
        return Listing(
            names=[name.table for name in names if not is_function(scope.views[name])], namespace=found.namespace
        )

    def _create_view(self, session: Session, request: protocol.CreateView) -> Answer:
        name, mode = self._name(session, self._house(request), request), request.replace
        if PROPERTY in request.view.properties:
            raise InvalidError(
                f"view {name} cannot have the property {PROPERTY}, by which functions are told from views: leave it out"
            )

        def create(tx: Transaction) -> None:
            _refuse_function(tx.names.views.get(name))
            if mode == "replace":
                tx.names.view(name)
            tx.changing().create_view(name, request.view, replace=mode != "create")

        self._change(session, request, create, f"{_VERBS[mode]} {name}")
        return Answer()

    def _drop_view(self, session: Session, request: protocol.DropView) -> Dropped:
        house = self._house(request)
        name = self._name(session, house, request)
        there = self._names_in(session, house).views.get(name)
        if there is None or is_function(there):
            return Dropped(dropped=False)
        self._change(session, request, lambda tx: tx.changing().drop_view(name), f"DROP VIEW {name}")
        return Dropped(dropped=True)

    def _rename_view(self, session: Session, request: protocol.RenameView) -> Answer:
        house = self._house(request)
        name = self._name(session, house, request)
        new = self._new_name(session, house, request, request.to, name)
        _refuse_function(self._names_in(session, house).views.get(name))
        self._change(
            session, request, lambda tx: tx.changing().rename_view(name, new), f"ALTER VIEW {name} RENAME TO {new}"
        )
        return Answer()


def _refuse_function(there: View | None) -> None:
    """Refuse to take for a view what is kept as one, and is a function."""
    if there is not None and is_function(there):
        raise DuplicateError(f"{there.name} is the name under which {said(there.name)} is kept: choose another name")


def _view_answer(
    view: View | None, *, version: int | UnsetType = UNSET, pin: int | UnsetType = UNSET
) -> protocol.ViewAnswer | Missing:
    if view is None or is_function(view):
        return Missing(pin=pin)
    whole = protocol.WholeDefinition(**msgspec.structs.asdict(view.definition))
    return protocol.ViewAnswer(name=(*view.name.namespace, view.name.table), view=whole, version=version, pin=pin)
