"""The requests of the shim's catalog: what a name means, and what becomes of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType, structs

from lockstep.adoption.adopt import Wanted, adopt, look
from lockstep.adoption.described import Description, difference
from lockstep.adoption.places import place
from lockstep.commit.elsewhere import reserve
from lockstep.commit.scans import Scan
from lockstep.errors import (
    ActiveTransactionError,
    ExpiredError,
    InvalidError,
    LockstepError,
    UndefinedError,
    UnsupportedError,
)
from lockstep.spark.host.definitions import UsesOfDefinitions, check_not_ended, own_mark
from lockstep.spark.host.past import kept_beside, past_uri
from lockstep.spark.host.paths import refuse_paths
from lockstep.spark.host.protocol import tables as protocol
from lockstep.spark.host.protocol.base import AboutCatalog, Answer, Dropped, Listing, Read, RequestBase
from lockstep.spark.host.requests import Operation, find, listing, operation, stored_name
from lockstep.spark.host.times import reaches_beyond, time_of
from lockstep.spark.host.versions import database_version, number
from lockstep.system.namespace import NAMESPACE as SYSTEM
from lockstep.system.tables import TABLES
from lockstep.timeline.database import Database
from lockstep.timeline.entry import NEW, Name, Table, View
from lockstep.timeline.functions import said
from lockstep.transactions.ddl import holder
from lockstep.transactions.folders import is_own
from lockstep.transactions.transaction import Transaction

if TYPE_CHECKING:
    from lockstep.spark.host.host import Host
    from lockstep.spark.host.lakehouses import Lakehouse
    from lockstep.spark.host.sessions import Session

ANOTHER_LOCATION = "42613"
"""As Delta says it of a table that is there, and whose location a statement says otherwise."""

COMMENT = "comment"
"""What Spark calls a table's comment among its properties."""


class TableRequests(UsesOfDefinitions):
    """Answers about tables, for one host."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.operations: Mapping[type[RequestBase], Operation] = dict(
            (
                operation(protocol.Resolve, self._resolve),
                operation(protocol.VersionThen, self._version_then),
                operation(protocol.Snapshot, self._snapshot),
                operation(protocol.ByPath, self._by_path),
                operation(protocol.Exists, self._exists),
                operation(protocol.Tables, self._list_tables),
                operation(protocol.Create, self._create),
                operation(protocol.CreateAt, self._create_at),
                operation(protocol.Drop, self._drop),
                operation(protocol.Rename, self._rename),
            )
        )

    # --- reading ------------------------------------------------------------------------------------------------------

    def _resolve(self, session: Session, request: protocol.Resolve) -> protocol.Found | protocol.Missing:
        """Answer which URI, and which version of it, a name means for this use; and what others mean for theirs."""
        answer = self._one(session, request)
        return structs.replace(answer, ahead=self._ahead(session, request, answer)) if request.ahead else answer

    def _ahead(
        self, session: Session, request: protocol.Resolve, answer: protocol.Found | protocol.Missing | None
    ) -> list[protocol.Found | protocol.Missing | None]:
        """Answer what other relations of the statement mean, as if each were asked for now.

        In a transaction each counts as used from now on, and COMMIT is told which were not. So if that is forgotten, a
        transaction may be refused for what it has not read; and nothing is forgotten that it has read.
        """
        plain = structs.replace(request, version=None, timestamp_micros=None, system_time_micros=None, ahead=())
        answers: list[protocol.Found | protocol.Missing | None] = []
        for each in request.ahead:
            if answer is not None and answer.pin is not UNSET:
                plain = structs.replace(plain, pin=answer.pin, mentioned=())
            name = {"namespace": each.name[:-1], "table": each.name[-1]}
            about = structs.replace(plain, **name, use=each.use, writes=each.writes, touch=each.touch)
            try:
                answer = self._one(session, about)
            except LockstepError:
                answer = None  # who asks for it alone is told why, if anybody does
            answers.append(answer)
        return answers

    def _one(self, session: Session, request: protocol.Resolve) -> protocol.Found | protocol.Missing:
        house = self._house(request)
        if request.writes:
            self._refuse_system(session, house, request.namespace)
        try:
            travels = request.version is not None or request.system_time_micros is not None
            if (tx := session.inside(house)) is None:
                return self._time_travel_alone(house, request) if travels else self._alone(session, house, request)
            self._look(house, tx, request)
            if travels:
                return self._time_travel(session, house, tx, request)
            return self._in_transaction(session, house, tx, tx.table(self._name(session, house, request)), request)
        except UndefinedError as error:
            if error.sqlstate != UndefinedError.default_sqlstate:
                raise
            return protocol.Missing()

    def _alone(
        self, session: Session, house: Lakehouse, request: protocol.Resolve
    ) -> protocol.Found | protocol.Missing:
        """Outside a transaction: queries are pinned to one database version, all else goes to the newest."""
        if request.use != "pinned":
            if request.writes:
                house.catalog.check_writable()
            table = find(request, house.catalog.database([self._name(session, house, request)]))
            return self._head(house, table, id=table.id)
        database = self._pinned(house, request)
        if stored_name(request, database) not in database.tables:
            return protocol.Missing(pin=database.version)
        table = find(request, database)
        if request.timestamp_micros is not None:
            return self._head(house, table, timestamp_micros=request.timestamp_micros, pin=database.version)
        return self._head(house, table, version=table.version, id=table.id, pin=database.version)

    def _in_transaction(
        self, session: Session, house: Lakehouse, tx: Transaction, table: Table, request: protocol.Resolve
    ) -> protocol.Found:
        """Inside: what was not written is read through the shared, warm URI while that is still at the pin."""
        if request.writes:
            tx.check_writable()
        travels = request.timestamp_micros is not None
        if request.use == "target":
            tx.read(table)
        elif request.use != "append" and not travels:
            tx.touch(table, request.touch)
        current = house.catalog.timeline.head.table_by_id(table.id)
        shared = request.use == "pinned" and not tx.has_written(table) and not travels
        if shared and current is not None and current.version == table.version:
            return self._head(house, table, version=table.version, id=table.id)
        if request.timestamp_micros is not None:
            return self._own(session, house, tx, table, timestamp_micros=request.timestamp_micros)
        return self._own(session, house, tx, table, id=table.id)

    def _time_travel(
        self, session: Session, house: Lakehouse, tx: Transaction, request: protocol.Resolve
    ) -> protocol.Found:
        """`@n`: the table in database version n. A plain number: Delta's own version of the table as it is now."""
        name, version = self._name(session, house, request), request.version
        if version is not None and not version.startswith("@"):
            return self._own(session, house, tx, tx.table(name), version=number(version))
        when = database_version(version[1:]) if version is not None else time_of(request.system_time_micros or 0)
        tx.seen.last_version = True
        database = house.catalog.as_of(when, at_most=tx.base.version, names=tx.names)
        table = find(request, database)
        tx.seen.tables.add(table.id)  # this may be the snapshot: it is to say the same again
        if reaches_beyond(when, tx.base) or (session.reads_newest and database.version == tx.base.version):
            tx.read(table)
        return self._past_table(house, database, request)

    def _time_travel_alone(self, house: Lakehouse, request: protocol.Resolve) -> protocol.Found:
        """Outside a transaction: what a statement reads as it was at a time is no newer than what else it reads."""
        if (micros := request.system_time_micros) is not None:
            when, pinned = time_of(micros), self._pinned(house, request)
            database = house.catalog.timeline.at_time(when)
            past_database = database if database.version < pinned.version else pinned
            found = self._past_table(house, past_database, request, pin=pinned.version)
            if when <= house.catalog.lake.clock():
                return found
            return structs.replace(found, table=find(request, past_database).id)  # what it read is judged as it commits
        version = request.version
        assert version is not None, "else nothing is said of a time"
        if version.startswith("@"):
            return self._past_table(house, house.catalog.as_of(database_version(version[1:])), request)
        asked, pinned = number(version), self._pinned(house, request)
        table = find(request, pinned)
        if asked > table.version:
            raise InvalidError(f"table {table.name} has no version {asked}: its versions go up to {table.version}")
        return self._head(house, table, version=asked, pin=pinned.version)

    def _past_table(
        self, house: Lakehouse, database: Database, request: protocol.Resolve, pin: int | UnsetType = UNSET
    ) -> protocol.Found:
        table = find(request, database)
        house.catalog.lake.check_past([table])
        return structs.replace(self._head(house, table, version=table.version, pin=pin), uri=past_uri(house, table))

    def _version_then(self, session: Session, request: protocol.VersionThen) -> protocol.VersionThenAnswer:
        """Answer which version of its log a table had in a database version: the same table, whatever its name was."""
        house = self._house(request)
        name, tx = self._name(session, house, request), session.inside(house)
        if tx is not None:
            house.catalog.look(tx, [name])
        scope = house.catalog.database([name]) if tx is None else tx.names
        if (table := scope.tables.get(name)) is None:
            return protocol.VersionThenAnswer(version=None)
        if tx is not None:
            tx.seen.tables.add(table.id)
            tx.seen.last_version = True
        at_most = None if tx is None else tx.base.version
        when = request.version if request.system_time_micros is None else time_of(request.system_time_micros)
        assert when is not None, "one of the two is said"
        database = house.catalog.as_of(when, at_most=at_most, names=None if tx is None else tx.names)
        if tx is not None and reaches_beyond(when, tx.base):
            tx.read(table)
        if (old_table := database.table_by_id(table.id)) is None:
            raise UndefinedError(f"table {name} was not there yet in database version {database.version}")
        house.catalog.lake.check_past([old_table])  # it is restored to, or cloned as, what the log says of that version
        return protocol.VersionThenAnswer(version=old_table.version)

    def _by_path(self, session: Session, request: protocol.ByPath) -> Answer:
        """Refuse a transaction what it would read of its lake's tables without knowing."""
        if session.transaction is not None and session.catalog is not None:
            tx = session.transaction
            lake = session.catalog.catalog.lake
            # One that another session has made since BEGIN is no more the snapshot's.
            scopes = (lake.refresh().tables, tx.base.tables, tx.names.tables)
            tables = {table.id: table for scope in scopes for table in scope.values()}
            refuse_paths(request.paths, lake.storage.url, tables.values())
        return Answer()

    def _snapshot(self, session: Session, request: protocol.Snapshot) -> Answer:
        """Refuse what a DataFrame from before BEGIN reads, unless it is what the transaction's snapshot has."""
        if (tx := session.transaction) is not None:
            for scan in scans_of(request.reads):
                if (other := other_version(tx, scan)) is not None:
                    raise ActiveTransactionError(other)
                tx.seen.tables.add(scan.table)
            assert session.catalog is not None, "a transaction is of a catalog"
            for view in self._definitions_of(session.catalog, request.views, request.catalogs):
                self._use_view(session.catalog, tx, view)
        return Answer()

    def _use_view(self, house: Lakehouse, tx: Transaction, view: protocol.UsedView) -> None:
        """Note that a DataFrame uses a view's definition, unless it is another one than the snapshot's."""
        name = Name(namespace=view.name[:-1], table=view.name[-1])
        if any(own_mark(tx, name, own) == view.version for own in tx.names.defined if own.name == name):
            return
        check_not_ended(view)
        current = tx.base.views.get(name)
        if current is None or not _is_as_in(house, view.version, current, tx.base):
            raise ActiveTransactionError(
                f"a DataFrame from before BEGIN uses {said(name)} as it was in database version {view.version}, which "
                f"is not what the open transaction ({tx.id}) sees: make it again inside it"
            )
        tx.read_view(name)

    def _head(
        self,
        house: Lakehouse,
        table: Table,
        *,
        id: str | UnsetType = UNSET,
        version: int | UnsetType = UNSET,
        timestamp_micros: int | UnsetType = UNSET,
        pin: int | UnsetType = UNSET,
    ) -> protocol.Found:
        house.catalog.lake.publisher.refuse_aside(table)
        return protocol.Found(
            uri=house.uris.head(table.location),
            name=[*table.name.namespace, table.name.table],
            location=house.uris.real(table.location),
            external=not is_own(table.location, table.id),
            version=version,
            timestamp_micros=timestamp_micros,
            table=id,
            pin=pin,
        )

    def _own(
        self,
        session: Session,
        house: Lakehouse,
        tx: Transaction,
        table: Table,
        *,
        id: str | UnsetType = UNSET,
        version: int | UnsetType = UNSET,
        timestamp_micros: int | UnsetType = UNSET,
    ) -> protocol.Found:
        house.catalog.lake.publisher.refuse_aside(table)
        # Delta finds a time by the files' own, between which there must be no gap.
        kept = kept_beside(session, house, table) if timestamp_micros is UNSET else None
        uri = house.uris.own(table.location, tx.id, table.version, tx.epoch, kept)
        session.used_tables.add((uri, table.name))
        return protocol.Found(
            uri=uri,
            name=[*table.name.namespace, table.name.table],
            location=house.uris.real(table.location),
            external=not is_own(table.location, table.id),
            version=version,
            timestamp_micros=timestamp_micros,
            table=id,
        )

    def _exists(self, session: Session, request: protocol.Exists) -> protocol.ExistsAnswer:
        house = self._house(request)
        if request.namespace and self._is_reserved(session, house, request.namespace):
            return protocol.ExistsAnswer(exists=request.table.lower() in TABLES)
        name = self._name(session, house, request)
        return protocol.ExistsAnswer(exists=name in self._names_in(session, house).tables)

    def _list_tables(self, session: Session, request: protocol.Tables) -> Listing:
        house = self._house(request)
        if len(request.namespace) == 1 and self._is_reserved(session, house, request.namespace):
            return Listing(names=sorted(TABLES), namespace=(SYSTEM,))
        scope = self._scope(session, house)
        return listing(request, scope, scope.tables)

    # --- changing -----------------------------------------------------------------------------------------------------

    def _create(
        self, session: Session, request: protocol.Create
    ) -> protocol.CreateAnswer | protocol.Found | protocol.Missing:
        """Answer where Delta has to create or replace a table; the write of its first version makes it real."""
        house = self._house(request)
        self._refuse_system(session, house, request.namespace)
        name = self._name(session, house, request)
        _check_format(name, request.provider)
        _check_location(name, request.location)
        there = None if request.mode == "create" else self._names_in(session, house).tables.get(name)
        if there is not None:
            _check_same_place(house, there, request.location)
            return self._resolve(session, _to_replace(request))
        if request.mode == "replace":
            raise UndefinedError(f"no table {name} to replace; CREATE OR REPLACE TABLE makes it if need be")
        return self._new(session, house, request, name, request.location)

    def _new(
        self, session: Session, house: Lakehouse, request: AboutCatalog, name: Name, location: str | None
    ) -> protocol.CreateAnswer:
        """Answer where Delta has to create a table that is not there."""
        if (tx := session.inside(house)) is not None:
            creation = reserve(house.catalog.lake, tx, name, location)
            uri = house.uris.own(creation.location, tx.id, NEW, tx.epoch)
            session.used_tables.add((uri, name))
            return protocol.CreateAnswer(uri=uri)
        creation = house.catalog.reserve(name, case_sensitive=request.case_sensitive, location=location)
        self._host.lakehouses.creations.add(house, creation)
        return protocol.CreateAnswer(uri=house.uris.head(creation.location), creation=creation.id)

    def _create_at(self, session: Session, request: protocol.CreateAt) -> protocol.CreateAtAnswer:
        """Take in the Delta table that is at a location, if it is what the statement says of it; or have one made."""
        house = self._house(request)
        self._refuse_system(session, house, request.namespace)
        name = self._name(session, house, request)
        _check_format(name, request.provider)
        _check_location(name, request.location)
        names, wanted = self._names_in(session, house), Wanted(name, request.location)
        if holder(name, names) is None and look(house.catalog.lake, names, [wanted])[0].is_nothing:
            new = self._new(session, house, request, name, request.location)
            return protocol.CreateAtAnswer(uri=new.uri, creation=new.creation)
        said = {key: value for key, value in request.properties.items() if key != COMMENT}
        described = Description(request.schema, request.partitions, said, request.properties.get(COMMENT, ""))
        lake = house.catalog.lake

        def take_in(tx: Transaction) -> None:
            tx.names.check_free(name)
            [found] = look(lake, tx.names, [wanted])
            if found.header is not None and (other := difference(described, found.header.metadata)) is not None:
                raise InvalidError(f"table {name} is not as described, for at {request.location} {other}")
            adopt(lake, tx, [found])

        self._change(session, request, take_in, f"CREATE TABLE {name} … LOCATION")
        return protocol.CreateAtAnswer()

    def _drop(self, session: Session, request: protocol.Drop) -> Dropped:
        house = self._house(request)
        self._refuse_system(session, house, request.namespace)
        name = self._name(session, house, request)
        if name not in self._names_in(session, house).tables:
            return Dropped(dropped=False)
        self._change(session, request, lambda tx: tx.changing().drop_table(name), f"DROP TABLE {name}")
        return Dropped(dropped=True)

    def _rename(self, session: Session, request: protocol.Rename) -> Answer:
        house = self._house(request)
        name = self._name(session, house, request)
        new = self._new_name(session, house, request, request.to, name)
        self._change(
            session, request, lambda tx: tx.changing().rename_table(name, new), f"ALTER TABLE {name} RENAME TO {new}"
        )
        return Answer()


def _is_as_in(house: Lakehouse, version: int, view: View, snapshot: Database) -> bool:
    """Tell whether a view of a snapshot is the same in a database version, be that an older or a newer one."""
    if version <= snapshot.version:
        return view.since <= version
    timeline = house.catalog.timeline  # the snapshot is an older version, AS OF which the transaction began
    if version > timeline.head.version:
        house.catalog.lake.refresh()
    try:
        return timeline.at(version).views.get(view.name) == view
    except ExpiredError:
        return False


def _check_format(name: Name, provider: str | None) -> None:
    if (provider or "delta").lower() != "delta":
        raise UnsupportedError(
            f"table {name} cannot be USING {provider}: Lockstep's tables are Delta tables. Leave USING out, or make it "
            "in another catalog, as spark_catalog"
        )


def _check_location(name: Name, location: str | None) -> None:
    if location is not None and not location.removeprefix("file:").strip():  # Spark makes that of '.', too
        raise InvalidError(
            f"table {name}: its LOCATION is empty, or '.', and names no folder: give a path or URL. Nothing was changed"
        )


def _check_same_place(house: Lakehouse, table: Table, location: str | None) -> None:
    """Raise InvalidError if a statement that replaces a table says another location than it has."""
    if location is not None and place(house.catalog.lake.storage.url, location).location != table.location:
        raise InvalidError(
            f"table {table.name} lies at {house.uris.real(table.location)}, and not at {location}: what replaces a "
            "table stays where it is. Leave LOCATION out; or DROP the table first, and CREATE another one",
            sqlstate=ANOTHER_LOCATION,
        )


def _to_replace(request: protocol.Create) -> protocol.Resolve:
    """Return what a statement asks that replaces a table, of the table that it replaces."""
    return protocol.Resolve(
        session=request.session,
        catalog=request.catalog,
        options=request.options,
        case_sensitive=request.case_sensitive,
        namespace=request.namespace,
        table=request.table,
        use="target",
        writes=True,
    )


def scans_of(reads: Iterable[Read]) -> list[Scan]:
    """Return what a statement, or a whole transaction, read: the scans that the shim saw."""
    return [Scan(read.table, read.version, read.where, read.head, read.cached) for read in reads]


def other_version(tx: Transaction, scan: Scan) -> str | None:
    """Return what is wrong with a scan that is not through the transaction, unless it shows the snapshot."""
    table = tx.base.table_by_id(scan.table)
    if not scan.head or (table is not None and scan.version == table.version):
        return None
    name = scan.table if table is None else table.name
    at = "as it is now" if scan.version is None else f"at version {scan.version}"
    return (
        f"a DataFrame or DeltaTable from before BEGIN reads table {name} {at}, which is not what the open transaction "
        f"({tx.id}) sees: make it again inside it"
    )
