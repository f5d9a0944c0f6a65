"""The requests of the shim about names of Spark's session catalog: which of them mean what the lake has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import structs

from lockstep.adoption.schemas import ADOPTED, Listed
from lockstep.adoption.session_names import (
    Held,
    Said,
    check_dropped,
    check_implementation,
    check_schema_dropped,
    folders_of,
    means_lakes,
)
from lockstep.errors import UndefinedError, UnsupportedError
from lockstep.spark.host.protocol import session_names as protocol
from lockstep.spark.host.protocol.base import Answer, RequestBase
from lockstep.spark.host.requests import Operation, Requests, operation
from lockstep.system.namespace import is_of_system
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Name
from lockstep.transactions.ddl import spelled, spelled_namespace
from lockstep.transactions.names import Names
from lockstep.transactions.transaction import Transaction

if TYPE_CHECKING:
    from lockstep.spark.host.host import Host
    from lockstep.spark.host.lakehouses import Lakehouse
    from lockstep.spark.host.protocol.procedures import ListedTable
    from lockstep.spark.host.sessions import Session


class SessionNameRequests(Requests):
    """Answers about names of Spark's session catalog, for one host."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.operations: Mapping[type[RequestBase], Operation] = dict(
            (
                operation(protocol.SessionNames, self._session_names),
                operation(protocol.DropSessionSchema, self._drop_session_schema),
            )
        )

    def _session_names(self, session: Session, request: protocol.SessionNames) -> protocol.SessionNamesAnswer:
        """Answer which of a statement's names are this catalog's, all as the session sees them at one moment.

        In a transaction each counts as a name that it was told the meaning of, also where the lake has nothing of it.
        To a transaction of another catalog they mean what they mean outside of it: this catalog's are refused when they
        are used, and the others are no concern of ours.
        """
        check_implementation(request.implementation)
        house = self._house(request)
        tx = self._own(session, house)
        names = house.catalog.database() if tx is None else tx.names
        return protocol.SessionNamesAnswer(
            ours=[self._is_ours(house, tx, names, request, each) for each in request.names]
        )

    def _own(self, session: Session, house: Lakehouse) -> Transaction | None:
        """Return the open transaction, if it is one of this catalog."""
        return session.transaction if session.catalog is None or session.catalog.is_same(house) else None

    def _is_ours(
        self,
        house: Lakehouse,
        tx: Transaction | None,
        names: Names | Database,
        request: protocol.SessionNames,
        about: protocol.SaidName,
    ) -> bool:
        *namespace, last = about.name
        if is_of_system(tuple(namespace)):
            return False  # what the lake says of itself has the lake's name before it
        written = Name(namespace=tuple(namespace), table=last)
        # Also where case counts to the session: it does not to a Hive metastore, which may mean the same table.
        name = spelled(written, names)
        if tx is not None:
            tx.see(name)
        held = None
        if (table := names.tables.get(name)) is not None:
            held = Held(house.uris.real(table.location))
        elif (view := names.views.get(name)) is not None:
            held = Held(None, view.definition.properties.get(ADOPTED))
        elif about.use == "used" and tx is not None and self._is_newer(house, written):
            raise UndefinedError(
                f"table {name} is none of what this transaction sees of catalog {house.name}, which has it: it was "
                "adopted or made later, or dropped here. COMMIT or ROLLBACK, then use it. Nothing was done"
            )
        said = Said(name, about.use, about.is_delta, None if about.there is None else _listed(about.there))
        is_ours = means_lakes(said, held, has_namespace=name.namespace in names.namespaces)
        if request.case_sensitive and name != written and (is_ours or held is not None):
            raise UnsupportedError(
                f"{written} is {name} of catalog {house.name} but for its case, which counts to this session and not "
                f"to every metastore: nothing was done. Write {name}, or set spark.sql.caseSensitive to false"
            )
        if is_ours:
            return True
        if about.use != "used" and about.there is not None:
            check_dropped(said, self._folders(house, names))
        return False

    def _is_newer(self, house: Lakehouse, written: Name) -> bool:
        """Tell whether the newest version that is known here has a table that the transaction does not see."""
        head = house.catalog.timeline.head
        return spelled(written, head) in head.tables

    def _folders(self, house: Lakehouse, names: Names | Database) -> dict[str, Name]:
        return folders_of(house.catalog.lake.storage.url, names.tables.values())

    def _drop_session_schema(self, session: Session, request: protocol.DropSessionSchema) -> Answer:
        """Refuse to drop a schema that the lake has as a namespace, or with which files of its tables would go."""
        house = self._house(request)
        tx = self._own(session, house)
        names = house.catalog.database() if tx is None else tx.names
        if spelled_namespace((request.schema,), names) in names.namespaces:
            raise UnsupportedError(
                f"DROP SCHEMA {request.schema}: the lake {house.name} has a namespace of that name, whose tables may "
                f"be the same. Nothing was done. CALL {house.name}.system.release(namespace => …) or DROP NAMESPACE "
                f"{house.name}.{request.schema} first"
            )
        check_schema_dropped(
            request.schema, request.folder, [_listed(each) for each in request.tables], self._folders(house, names)
        )
        return Answer()


def _listed(each: ListedTable) -> Listed:
    return Listed(**structs.asdict(each))
