"""The request of the shim about names of Spark's session catalog: which of them mean what the lake has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import structs

from lockstep.adoption.schemas import Listed
from lockstep.adoption.session_names import Held, Said, means_lakes
from lockstep.errors import UndefinedError
from lockstep.spark.host.protocol import session_names as protocol
from lockstep.spark.host.protocol.base import RequestBase
from lockstep.spark.host.requests import Operation, Requests, operation
from lockstep.system.namespace import is_of_system
from lockstep.timeline.entry import Name

if TYPE_CHECKING:
    from lockstep.spark.host.host import Host
    from lockstep.spark.host.lakehouses import Lakehouse
    from lockstep.spark.host.sessions import Session


class SessionNameRequests(Requests):
    """Answers about names of Spark's session catalog, for one host."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.operations: Mapping[type[RequestBase], Operation] = dict(
            (operation(protocol.SessionNames, self._session_names),)
        )

    def _session_names(self, session: Session, request: protocol.SessionNames) -> protocol.SessionNamesAnswer:
        """Answer which of a statement's names are this catalog's, as the session sees it now.

        In a transaction each counts as a name that it was told the meaning of, also where the lake has nothing of it.
        """
        house = self._house(request)
        return protocol.SessionNamesAnswer(
            ours=[self._is_ours(session, house, request, each) for each in request.names]
        )

    def _is_ours(
        self, session: Session, house: Lakehouse, request: protocol.SessionNames, said: protocol.SaidName
    ) -> bool:
        *namespace, last = said.name
        if is_of_system(tuple(namespace)):
            return False  # what the lake says of itself has the lake's name before it
        written = Name(namespace=tuple(namespace), table=last)
        name = self._stored(session, house, written, case_sensitive=request.case_sensitive)
        names = self._names_in(session, house)
        held = None
        if (table := names.tables.get(name)) is not None:
            held = Held(house.uris.real(table.location))
        elif name in names.views:
            held = Held(None)
        elif said.use == "used" and session.transaction is not None and name in house.catalog.timeline.head.tables:
            raise UndefinedError(
                f"table {name} is none of what this transaction sees of catalog {house.name}, which has it: it was "
                "adopted or made later, or dropped here. COMMIT or ROLLBACK, then use it. Nothing was done"
            )
        there = None if said.there is None else Listed(**structs.asdict(said.there))
        asked = Said(name, said.use, said.is_delta, there)
        return means_lakes(asked, held, has_namespace=name.namespace in names.namespaces)
