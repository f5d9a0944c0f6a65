"""The requests of the shim's catalog about namespaces: which there are, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lockstep.errors import UndefinedError, UnsupportedError
from lockstep.spark.host.protocol import tables as protocol
from lockstep.spark.host.protocol.base import Answer, Dropped, RequestBase
from lockstep.spark.host.requests import Operation, Requests, operation, stored_namespace
from lockstep.timeline.entry import Namespace
from lockstep.transactions.names import NO_NAMESPACE
from lockstep.transactions.transaction import Transaction

if TYPE_CHECKING:
    from lockstep.spark.host.host import Host
    from lockstep.spark.host.sessions import Session

LOCATION = "location"
"""What Spark calls a namespace's folder among its properties."""


class NamespaceRequests(Requests):
    """Answers about namespaces, for one host."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.operations: Mapping[type[RequestBase], Operation] = dict(
            (
                operation(protocol.Namespaces, self._list_namespaces),
                operation(protocol.DescribeNamespace, self._describe_namespace),
                operation(protocol.CreateNamespace, self._create_namespace),
                operation(protocol.AlterNamespace, self._alter_namespace),
                operation(protocol.DropNamespace, self._drop_namespace),
            )
        )

    def _list_namespaces(self, session: Session, request: protocol.Namespaces) -> protocol.NamespacesAnswer:
        house = self._house(request)
        if self._is_reserved(session, house, request.parent):
            return protocol.NamespacesAnswer(namespaces=[])
        scope = self._scope(session, house)
        parent = stored_namespace(request, request.parent, scope)
        if parent and parent not in scope.namespaces:
            raise UndefinedError(f"no namespace {'.'.join(parent)}; CREATE NAMESPACE makes one", sqlstate=NO_NAMESPACE)
        inside = (n for n in scope.namespaces if n[: len(parent)] == parent and len(n) == len(parent) + 1)
        return protocol.NamespacesAnswer(namespaces=sorted(inside))

    def _describe_namespace(self, session: Session, request: protocol.DescribeNamespace) -> protocol.NamespaceAnswer:
        house = self._house(request)
        if len(request.namespace) == 1 and self._is_reserved(session, house, request.namespace):
            return protocol.NamespaceAnswer(exists=True, properties={"comment": "what the lake says of itself"})
        scope = self._scope(session, house)
        properties = scope.namespaces.get(stored_namespace(request, request.namespace, scope))
        return protocol.NamespaceAnswer(exists=properties is not None, properties=properties or {})

    def _create_namespace(self, session: Session, request: protocol.CreateNamespace) -> Answer:
        name = stored_namespace(request, request.namespace, self._scope(session, self._house(request)))
        _refuse_place(name, request.properties)
        self._change(
            session,
            request,
            lambda tx: tx.changing().create_namespace(name, request.properties),
            f"CREATE NAMESPACE {'.'.join(name)}",
        )
        return Answer()

    def _alter_namespace(self, session: Session, request: protocol.AlterNamespace) -> Answer:
        name = stored_namespace(request, request.namespace, self._scope(session, self._house(request)))
        _refuse_place(name, request.set)

        def alter(tx: Transaction) -> None:
            tx.names.check_namespace(name)
            properties = {key: value for key, value in tx.namespaces[name].items() if key not in request.unset}
            tx.changing().alter_namespace(name, {**properties, **request.set})

        self._change(session, request, alter, f"ALTER NAMESPACE {'.'.join(name)}")
        return Answer()

    def _drop_namespace(self, session: Session, request: protocol.DropNamespace) -> Dropped:
        house = self._house(request)
        self._refuse_system(session, house, request.namespace)
        scope = self._scope(session, house)
        name = stored_namespace(request, request.namespace, scope)
        if name not in scope.namespaces:
            return Dropped(dropped=False)
        self._change(
            session,
            request,
            lambda tx: tx.changing().drop_namespace(name, cascade=request.cascade),
            f"DROP NAMESPACE {'.'.join(name)}",
        )
        return Dropped(dropped=True)


def _refuse_place(name: Namespace, properties: Mapping[str, str]) -> None:
    """Refuse a place for the tables of a namespace, who says where they lie, one by one, or leaves that to the lake."""
    if LOCATION in properties:
        raise UnsupportedError(
            f"namespace {'.'.join(name)} cannot have a LOCATION: a lake's namespaces are names, and have no folder. "
            "Leave it out, and say LOCATION of the tables that are to lie elsewhere. Nothing was changed"
        )
