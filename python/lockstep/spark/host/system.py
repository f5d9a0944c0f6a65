"""The requests about system tables: what a name means, at which version, and its rows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from msgspec import UNSET

from lockstep.errors import ActiveTransactionError, NoTransactionError, UnsupportedError
from lockstep.settings import at
from lockstep.spark.host.past import past_uri
from lockstep.spark.host.protocol import system as protocol
from lockstep.spark.host.protocol.base import AboutName, RequestBase
from lockstep.spark.host.requests import Operation, Requests, operation
from lockstep.spark.host.times import time_of
from lockstep.spark.host.versions import database_version
from lockstep.system.catalog import listed, seen_version
from lockstep.system.configured import of_driver
from lockstep.system.query import Query
from lockstep.system.scope import Configured, Scope
from lockstep.system.tables import TABLES, SystemTable
from lockstep.timeline.entry import Table

if TYPE_CHECKING:
    from lockstep.spark.host.host import Host
    from lockstep.spark.host.lakehouses import Lakehouse
    from lockstep.spark.host.sessions import Session

NOT_A_TABLE = "42809"


class SystemRequests(Requests):
    """Answers about system tables, for one host."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.operations: Mapping[type[RequestBase], Operation] = dict(
            (
                operation(protocol.SystemTable, self._find),
                operation(protocol.SystemRows, self._rows),
                operation(protocol.SystemFiles, self._files),
            )
        )

    def _find(self, session: Session, request: protocol.SystemTable) -> protocol.SystemTableAnswer:
        """Answer what a name means, and which version of the database it shows."""
        house, name = self._house(request), request.table.lower()
        tx = session.inside(house)
        if (table := TABLES.get(name)) is None or self._is_taken(session, house, request):
            return protocol.SystemTableAnswer(missing=True)
        if request.writes:
            raise UnsupportedError(
                f"{request.catalog}.system.{name} cannot be written: it shows what the lake says of itself",
                sqlstate=NOT_A_TABLE,
            )
        version, pin = self._version(session, house, request, table)
        if tx is not None and table.is_of_version:
            tx.seen.last_version = True  # it is told which version it sees, and what that has
        return protocol.SystemTableAnswer(
            pin=UNSET if pin is None else pin,
            name=name,
            comment=table.says,
            columns=[
                protocol.SystemColumn(name=key, type=column.type, comment=column.says)
                for key, column in table.columns.items()
            ],
            at=version,
            transaction=None if tx is None or version is not None else tx.id,
            judged=table.pushed,
            ordered=list(table.ordered),
            lists_files=table.rows is None,
            reads=of_driver(request.catalog) if name == "settings" else [],
        )

    def _is_taken(self, session: Session, house: Lakehouse, request: AboutName) -> bool:
        """Tell whether the lake has a table or view of the name: it is from before there were system tables."""
        if self._is_reserved(session, house, request.namespace):
            return False
        name, names = self._name(session, house, request), self._names_in(session, house)
        return name in names.tables or name in names.views

    def _version(
        self, session: Session, house: Lakehouse, request: protocol.SystemTable, table: SystemTable
    ) -> tuple[int | None, int | None]:
        """Return the database version that is shown, None for what is there then, and that of the statement."""
        what = f"{request.catalog}.system.{request.table.lower()}"
        past = request.version if request.version is not None else request.system_time_micros
        if request.timestamp_micros is not None or (request.version is not None and request.version[:1] != "@"):
            raise UnsupportedError(
                f"{what} has no versions of its own: say FOR SYSTEM_VERSION AS OF a database version, or FOR "
                "SYSTEM_TIME AS OF a time",
                sqlstate=NOT_A_TABLE,
            )
        if past is not None and not table.is_of_version:
            raise UnsupportedError(f"{what} tells of now, and of no older version: leave AS OF out")
        tx = session.inside(house)
        if tx is not None:
            if past is None:
                return None, None
            when = database_version(past[1:]) if isinstance(past, str) else time_of(past)
            return house.catalog.as_of(when, at_most=tx.base.version, names=tx.names).version, None
        if request.use != "pinned" or not table.is_of_version:
            return None, None
        if isinstance(past, str):
            return house.catalog.as_of(database_version(past[1:])).version, None
        pin = self._pinned(house, request).version
        return (pin if past is None else min(pin, house.catalog.timeline.at_time(time_of(past)).version)), pin

    def _seen(self, session: Session, house: Lakehouse, request: protocol.AboutSystemTable) -> Scope:
        """Return what a query sees, which may have been made long before.

        Raises:
            NoTransactionError: it was made in a transaction that has ended, or is another session's.
            ActiveTransactionError: it was made before BEGIN, and shows what the transaction does not see.
        """
        what = f"{request.catalog}.system.{request.table}"
        if request.transaction is not None and not session.has(request.transaction):
            raise NoTransactionError(
                f"a query of {what} that was made in transaction {request.transaction} is executed outside of it: make "
                "it again"
            )
        tx, lake = session.inside(house), house.catalog.lake
        of_driver = partial(self._host.keeper.open_in, house)
        if request.at is not None:
            if tx is not None and request.at > tx.base.version:
                raise ActiveTransactionError(
                    f"a query of {what} from before BEGIN shows database version {request.at}, and the open "
                    f"transaction ({tx.id}) sees version {tx.base.version}: make it again inside it"
                )
            head = lake.timeline.head if request.at <= lake.timeline.head.version else lake.refresh()
            database = head if request.at == head.version else lake.timeline.at(request.at)
            return Scope(lake, database, open_here=of_driver)
        if tx is not None:
            return Scope(lake, tx.base, tx, open_here=of_driver)
        return Scope(lake, house.catalog.database(), open_here=of_driver)

    def _rows(self, session: Session, request: protocol.SystemRows) -> protocol.SystemRowsAnswer:
        house, table = self._house(request), TABLES[request.table]
        scope = self._seen(session, house, request)
        if request.table == "settings":
            scope = Scope(scope.lake, scope.database, configured=_configured(request, house))
        query = Query(request.columns, request.filters, request.limit, request.descending, request.cursor)
        assert table.rows is not None, "the shim asks for its files"
        batch = table.rows(scope, query)
        shown = scope.database.version if table.is_of_version and scope.tx is None else None
        return protocol.SystemRowsAnswer(rows=batch.rows, next=batch.next, at=shown)

    def _files(self, session: Session, request: protocol.SystemFiles) -> protocol.SystemFilesAnswer:
        house = self._house(request)
        scope = self._seen(session, house, request)
        found = listed(scope, request.filters, request.cursor)
        return protocol.SystemFilesAnswer(
            tables=[self._files_of(session, house, scope, table) for table in found.tables],
            next=found.next,
            at=scope.database.version if scope.tx is None else None,
        )

    def _files_of(self, session: Session, house: Lakehouse, scope: Scope, table: Table) -> protocol.FilesOf:
        """Answer where the log is that has the table as it is seen: the published one, but for what was written."""
        house.catalog.lake.publisher.refuse_aside(table)
        uri, version = house.uris.head(table.location), seen_version(scope, table)
        if (tx := scope.tx) is not None and tx.has_written(table):
            uri = house.uris.own(table.location, tx.id, table.version, tx.epoch)
            session.used_tables.add((uri, table.name))
        elif house.catalog.timeline.head.table_by_id(table.id) != table:
            house.catalog.lake.check_past([table])
            uri = past_uri(house, table)
        return protocol.FilesOf(
            namespace=".".join(table.name.namespace),
            name=table.name.table,
            uri=uri,
            version=version,
            location=house.uris.real(table.location),
        )


def _configured(request: protocol.SystemRows, house: Lakehouse) -> Configured:
    environment = {setting.name: os.environ.get(setting.name) for setting in at("environment")}
    return Configured(
        catalog=request.catalog,
        session=request.settings,
        options=request.options,
        driver=request.driver,
        environment={name: value for name, value in environment.items() if value is not None},
        lake=house.kept_by_lake,
    )
