"""The request of the shim for the rows of a table that changed: which commits those are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from msgspec import UNSET

from lockstep.errors import InvalidError, UndefinedError, UnsupportedError
from lockstep.recovery.row_changes import VersionRange, commits_between, range_of_times, range_of_versions
from lockstep.spark.host.protocol import row_changes as protocol
from lockstep.spark.host.protocol.base import RequestBase
from lockstep.spark.host.protocol.tables import Missing
from lockstep.spark.host.requests import Operation, Requests, find, operation, stored_name
from lockstep.spark.host.system import NOT_A_TABLE
from lockstep.spark.host.times import micros_of, reaches_beyond, time_of
from lockstep.spark.host.versions import database_version
from lockstep.system.tables import TABLES
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Table
from lockstep.transactions.transaction import Transaction

if TYPE_CHECKING:
    from lockstep.spark.host.host import Host
    from lockstep.spark.host.lakehouses import Lakehouse
    from lockstep.spark.host.sessions import Session


class RowChangeRequests(Requests):
    """Answers about the rows that changed, for one host."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.operations: Mapping[type[RequestBase], Operation] = dict(
            (operation(protocol.ResolveChanges, self._changes),)
        )

    def _changes(self, session: Session, request: protocol.ResolveChanges) -> protocol.ChangesFound | Missing:
        """Answer which commits of a table are in a range; inside a transaction, up to its snapshot.

        What the transaction itself wrote is in no version yet, and so in no range.
        """
        house = self._house(request)
        tx = session.inside(house)
        if tx is not None:
            self._look(house, tx, request)
            tx.seen.last_version = True  # what is refused as too new is to stay so
            snapshot = tx.base
        else:
            snapshot = self._pinned(house, request)
        pin = UNSET if tx is not None else snapshot.version
        try:
            versions = None if request.of == "table" else self._range(house, tx, snapshot, request)
            end = snapshot if versions is None else house.catalog.timeline.at(max(0, versions.through))
            table = self._table(session, house, request, snapshot, end)
        except UndefinedError as error:
            if error.sqlstate != UndefinedError.default_sqlstate:
                raise
            if request.table.lower() in TABLES and self._is_reserved(session, house, request.namespace):
                raise UnsupportedError(
                    f"{request.catalog}.system.{request.table.lower()} is a system table: no database version changes "
                    "its rows. `history` has a row for each version, and FOR SYSTEM_VERSION AS OF shows an older one",
                    sqlstate=NOT_A_TABLE,
                ) from error
            return Missing(pin=pin)
        house.catalog.lake.publisher.refuse_aside(table)
        if tx is not None:
            self._note(tx, table, is_open=_is_open(request.end, snapshot))
        check = partial(house.catalog.lake.check_written, table)
        commits = [] if versions is None else commits_between(house.catalog.timeline, table.id, versions, check)
        return protocol.ChangesFound(
            uri=house.uris.head(table.location),
            name=[*table.name.namespace, table.name.table],
            version=table.version,
            commits=[(run.first, run.last, run.version, micros_of(run.committed_at)) for run in commits],
            pin=pin,
        )

    def _range(
        self, house: Lakehouse, tx: Transaction | None, snapshot: Database, request: protocol.ResolveChanges
    ) -> VersionRange:
        start, end, last = request.start, request.end, snapshot.version
        inclusive = {"start_inclusive": start.inclusive, "end_inclusive": end is None or end.inclusive}

        def version_of(bound: protocol.Bound) -> int:
            assert bound.version is not None, "the two ends are of one kind"
            when = database_version(bound.version)
            if isinstance(when, int):
                return when
            return house.catalog.as_of(when, at_most=last, names=None if tx is None else tx.names).version

        if start.micros is None:
            return range_of_versions(
                version_of(start), None if end is None else version_of(end), last=last, **inclusive
            )
        if end is not None and end.micros is None:
            raise InvalidError("a range is between two versions, or between two times")
        until = None if end is None else time_of(end.micros or 0)
        return range_of_times(house.catalog.timeline, time_of(start.micros), until, last=last, **inclusive)

    def _table(
        self,
        session: Session,
        house: Lakehouse,
        request: protocol.ResolveChanges,
        snapshot: Database,
        end: Database,
    ) -> Table:
        """Return the table as it was at the range's end: that which had the name then, else that which has it now."""
        if stored_name(request, end) in end.tables:
            return find(request, end)
        scope = snapshot if (tx := session.inside(house)) is None else tx.names
        name = self._name(session, house, request)
        if (now := scope.tables.get(name)) is None:
            raise UndefinedError(f"no table {name}, now or in database version {end.version}")
        if (table := end.table_by_id(now.id)) is None:
            raise InvalidError(
                f"table {name} is not in database version {end.version}: it was made later, or had been dropped. Name "
                "a newer end at which it is there"
            )
        return table

    def _note(self, tx: Transaction, table: Table, *, is_open: bool) -> None:
        """Note what a transaction knows by this: what changed up to now is no more true once more has changed."""
        tx.seen.tables.add(table.id)
        if is_open:
            tx.read(table)


def _is_open(end: protocol.Bound | None, snapshot: Database) -> bool:
    """Whether what is committed after a snapshot may be in a range: it has no end, or one at a time from then on."""
    return end is None or (end.micros is not None and reaches_beyond(time_of(end.micros), snapshot))
