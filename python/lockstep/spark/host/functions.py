"""The requests of the shim's catalog about functions: what a name says, and what becomes of it.

A function is kept as a view (`lockstep.timeline.functions`), so it is read as one, too: a SERIALIZABLE transaction that
has called a function is judged by whoever replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from msgspec import UNSET, UnsetType, structs

from lockstep.errors import DuplicateError
from lockstep.spark.host.protocol import functions as protocol
from lockstep.spark.host.protocol.base import AboutName, Answer, Dropped, Listing, RequestBase
from lockstep.spark.host.protocol.tables import Missing
from lockstep.spark.host.requests import Operation, Requests, listing, operation, stored_name
from lockstep.spark.host.versions import database_version
from lockstep.timeline.entry import Name, View
from lockstep.timeline.functions import as_function, as_view, called, is_function, shown, stored_as
from lockstep.transactions.transaction import Transaction

if TYPE_CHECKING:
    from lockstep.spark.host.host import Host
    from lockstep.spark.host.lakehouses import Lakehouse
    from lockstep.spark.host.sessions import Session

EXISTS = "42723"
"""The SQLSTATE of a function that exists already, as Spark says it."""

_VERBS = {
    "create": "CREATE FUNCTION",
    "replace": "CREATE OR REPLACE FUNCTION",
    "if_not_exists": "CREATE FUNCTION IF NOT EXISTS",
}

R = TypeVar("R", bound=AboutName)


class FunctionRequests(Requests):
    """Answers about functions, for one host."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.operations: Mapping[type[RequestBase], Operation] = dict(
            (
                operation(protocol.ResolveFunction, self._function),
                operation(protocol.Functions, self._list_functions),
                operation(protocol.CreateFunction, self._create_function),
                operation(protocol.DropFunction, self._drop_function),
            )
        )

    def _function(self, session: Session, request: protocol.ResolveFunction) -> protocol.FunctionAnswer | Missing:
        """Answer what a name says as a function, in the version that the statement, or the transaction, reads."""
        house, request = self._house(request), _as_stored(request)
        if request.version is not None:
            return self._past_function(session, house, request, request.version)
        if (tx := session.inside(house)) is not None:
            name = self._name(session, house, request)
            tx.read_view(name)
            view = tx.names.views.get(name)
            is_snapshots = view is not None and view == tx.base.views.get(name)
            return _function_answer(view, version=tx.base.version if is_snapshots else UNSET)
        database = self._pinned(house, request)
        view = database.views.get(stored_name(request, database))
        return _function_answer(view, version=database.version, pin=database.version)

    def _past_function(
        self, session: Session, house: Lakehouse, request: protocol.ResolveFunction, version: str
    ) -> protocol.FunctionAnswer | Missing:
        """Answer what a name said in an older version."""
        when = database_version(version.removeprefix("@"))
        if (tx := session.inside(house)) is None:
            past = house.catalog.as_of(when)
        else:
            tx.seen.last_version = True
            past = house.catalog.as_of(when, at_most=tx.base.version, names=tx.names)
        return _function_answer(past.views.get(stored_name(request, past)), version=past.version)

    def _list_functions(self, session: Session, request: protocol.Functions) -> Listing:
        house = self._house(request)
        if self._is_reserved(session, house, request.namespace):
            return Listing(names=[], namespace=request.namespace)
        scope = self._scope(session, house)
        found = listing(request, scope, scope.views)
        names = [Name(namespace=found.namespace, table=each) for each in found.names]
        return Listing(
            names=sorted(called(name) for name in names if is_function(scope.views[name])), namespace=found.namespace
        )

    def _create_function(self, session: Session, request: protocol.CreateFunction) -> Answer:
        request = _as_stored(request)
        name, mode = self._name(session, self._house(request), request), request.mode

        def create(tx: Transaction) -> None:
            there = tx.names.views.get(name)
            is_there = there is not None and is_function(there)
            if is_there and mode == "create":
                raise DuplicateError(
                    f"function {shown(name)} exists: DROP it first, or say CREATE OR REPLACE or IF NOT EXISTS",
                    sqlstate=EXISTS,
                )
            if not (is_there and mode == "if_not_exists"):
                tx.changing().create_view(name, as_view(request.function), replace=is_there)

        self._change(session, request, create, f"{_VERBS[mode]} {shown(name)}")
        return Answer()

    def _drop_function(self, session: Session, request: protocol.DropFunction) -> Dropped:
        house, request = self._house(request), _as_stored(request)
        name = self._name(session, house, request)
        there = self._names_in(session, house).views.get(name)
        if there is None or not is_function(there):
            return Dropped(dropped=False)
        self._change(session, request, lambda tx: tx.changing().drop_view(name), f"DROP FUNCTION {shown(name)}")
        return Dropped(dropped=True)


def _as_stored(request: R) -> R:
    """Return a request about a function as one about the name that it is kept under."""
    return structs.replace(request, table=stored_as(request.table))


def _function_answer(
    view: View | None, *, version: int | UnsetType = UNSET, pin: int | UnsetType = UNSET
) -> protocol.FunctionAnswer | Missing:
    if view is None or not is_function(view):
        return Missing(pin=pin)
    whole = protocol.WholeFunction(**structs.asdict(as_function(view)))
    return protocol.FunctionAnswer(
        name=(*view.name.namespace, view.name.table), function=whole, version=version, pin=pin
    )
