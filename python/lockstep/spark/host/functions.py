"""The requests of the shim's catalog about functions: what a name says, and what becomes of it.

A function is kept as a view (`lockstep.timeline.functions`), so it is read as one, too: a SERIALIZABLE transaction that
has called a function is judged by whoever replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from msgspec import structs

from lockstep.errors import DuplicateError
from lockstep.spark.host.definitions import DefinitionRequests, Seen
from lockstep.spark.host.protocol import functions as protocol
from lockstep.spark.host.protocol.base import AboutName, Answer, Dropped, Listing, RequestBase
from lockstep.spark.host.protocol.tables import Missing
from lockstep.spark.host.requests import Operation, operation
from lockstep.spark.host.versions import database_version
from lockstep.timeline.functions import as_function, as_view, called, is_function, shown, stored_as
from lockstep.transactions.transaction import Transaction

if TYPE_CHECKING:
    from lockstep.spark.host.host import Host
    from lockstep.spark.host.sessions import Session

EXISTS = "42723"
"""The SQLSTATE of a function that exists already, as Spark says it."""

_VERBS = {
    "create": "CREATE FUNCTION",
    "replace": "CREATE OR REPLACE FUNCTION",
    "if_not_exists": "CREATE FUNCTION IF NOT EXISTS",
}

R = TypeVar("R", bound=AboutName)


class FunctionRequests(DefinitionRequests):
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
        """Answer what a name says as a function, in the version that is asked about."""
        house, request = self._house(request), _as_stored(request)
        if request.version is None:
            return _function_answer(self._now(session, house, request))
        when = database_version(request.version.removeprefix("@"))
        return _function_answer(self._past(session, house, request, when))

    def _list_functions(self, session: Session, request: protocol.Functions) -> Listing:
        namespace, names = self._listed(session, request, is_function)
        return Listing(names=sorted(map(called, names)), namespace=namespace)

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


def _function_answer(seen: Seen) -> protocol.FunctionAnswer | Missing:
    view, version, pin = seen
    if view is None or not is_function(view):
        return Missing(pin=pin)
    whole = protocol.WholeFunction(**structs.asdict(as_function(view)))
    return protocol.FunctionAnswer(
        name=(*view.name.namespace, view.name.table), function=whole, version=version, pin=pin
    )
