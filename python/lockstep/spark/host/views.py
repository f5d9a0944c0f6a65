"""The requests of the shim's catalog about views: what a name says, and what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from lockstep.errors import DuplicateError
from lockstep.spark.host.definitions import DefinitionRequests, Seen
from lockstep.spark.host.protocol import views as protocol
from lockstep.spark.host.protocol.base import Answer, Dropped, Listing, RequestBase
from lockstep.spark.host.protocol.tables import Missing
from lockstep.spark.host.requests import Operation, operation
from lockstep.spark.host.times import time_of
from lockstep.spark.host.versions import database_version
from lockstep.timeline.entry import View
from lockstep.timeline.functions import check_properties, is_function, said
from lockstep.transactions.transaction import Transaction

if TYPE_CHECKING:
    from lockstep.spark.host.host import Host
    from lockstep.spark.host.sessions import Session

_VERBS = {"create": "CREATE VIEW", "replace": "ALTER VIEW", "create_or_replace": "CREATE OR REPLACE VIEW"}


class ViewRequests(DefinitionRequests):
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
        """Answer what a name says as a view, in the version that is asked about."""
        house = self._house(request)
        if request.version is not None:
            when: int | str | datetime = database_version(request.version.removeprefix("@"))
        elif request.system_time_micros is not None:
            when = time_of(request.system_time_micros)
        else:
            return _view_answer(self._now(session, house, request))
        return _view_answer(self._past(session, house, request, when))

    def _list_views(self, session: Session, request: protocol.Views) -> Listing:
        namespace, names = self._listed(session, request, lambda view: not is_function(view))
        return Listing(names=[name.table for name in names], namespace=namespace)

    def _create_view(self, session: Session, request: protocol.CreateView) -> Answer:
        name, mode = self._name(session, self._house(request), request), request.replace
        check_properties(name, request.view)

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


def _view_answer(seen: Seen) -> protocol.ViewAnswer | Missing:
    view, version, pin = seen
    if view is None or is_function(view):
        return Missing(pin=pin)
    whole = protocol.WholeDefinition(**msgspec.structs.asdict(view.definition))
    return protocol.ViewAnswer(name=(*view.name.namespace, view.name.table), view=whole, version=version, pin=pin)
