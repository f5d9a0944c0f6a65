"""The requests of the shim's catalog and log store: what a name means, and what was written to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from lockstep.commit.outcomes import Taken
from lockstep.commit.scans import Scan
from lockstep.errors import (
    ActiveTransactionError,
    InvalidError,
    NoTransactionError,
    TransactionStateError,
    UndefinedError,
    UnsupportedError,
)
from lockstep.settings import SESSION_ISOLATION
from lockstep.spark.host.lakehouses import isolation_of
from lockstep.spark.host.paths import refuse_paths
from lockstep.spark.host.protocol import tables as protocol
from lockstep.spark.host.protocol.base import Answer, Dropped, Listing, Read, RequestBase
from lockstep.spark.host.requests import Operation, Requests, find, listing, operation, stored_name, stored_namespace
from lockstep.spark.host.session_settings import check_known
from lockstep.spark.host.times import time_of
from lockstep.spark.host.uris import OverlayView, transaction_in
from lockstep.timeline.entry import NEW, Database, Name, Table
from lockstep.transactions.names import NO_NAMESPACE
from lockstep.transactions.transaction import Transaction

if TYPE_CHECKING:
    from lockstep.spark.host.host import Host
    from lockstep.spark.host.lakehouses import Lakehouse
    from lockstep.spark.host.sessions import Session

_DIGITS = 18
"""What a version has at most: all of them are numbers of 64 bits."""


class TableRequests(Requests):
    """Answers about tables and namespaces, for one host."""

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
                operation(protocol.Drop, self._drop),
                operation(protocol.Rename, self._rename),
                operation(protocol.Write, self._write),
                operation(protocol.Staging, self._staging),
                operation(protocol.Staged, self._staged),
                operation(protocol.Claim, self._claim),
                operation(protocol.Namespaces, self._list_namespaces),
                operation(protocol.DescribeNamespace, self._describe_namespace),
                operation(protocol.CreateNamespace, self._create_namespace),
                operation(protocol.AlterNamespace, self._alter_namespace),
                operation(protocol.DropNamespace, self._drop_namespace),
            )
        )

    # --- reading ------------------------------------------------------------------------------------------------------

    def _resolve(self, session: Session, request: protocol.Resolve) -> protocol.Found | protocol.Missing:
        """Answer which URI, and which version of it, a name means for this use."""
        house = self._house(request)
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
            return self._own(session, house, tx, tx.table(name), version=_number(version))
        when = _database_version(version[1:]) if version is not None else time_of(request.system_time_micros or 0)
        tx.seen.last_version = True
        database = house.catalog.as_of(when, at_most=tx.base.version)
        tx.seen.tables.add(find(request, database).id)  # this may be the snapshot: it is to say the same again
        return self._past_table(house, database, request)

    def _time_travel_alone(self, house: Lakehouse, request: protocol.Resolve) -> protocol.Found:
        """Outside a transaction: what a statement reads as it was at a time is no newer than what else it reads."""
        if (micros := request.system_time_micros) is not None:
            pinned = self._pinned(house, request)
            database = house.catalog.timeline.at_time(time_of(micros))
            past_database = database if database.version < pinned.version else pinned
            return self._past_table(house, past_database, request, pin=pinned.version)
        version = request.version
        assert version is not None, "else nothing is said of a time"
        if version.startswith("@"):
            return self._past_table(house, house.catalog.as_of(_database_version(version[1:])), request)
        number, pinned = _number(version), self._pinned(house, request)
        table = find(request, pinned)
        if number > table.version:
            raise InvalidError(f"table {table.name} has no version {number}: its versions go up to {table.version}")
        return self._head(house, table, version=number, pin=pinned.version)

    def _past_table(
        self, house: Lakehouse, database: Database, request: protocol.Resolve, pin: int | UnsetType = UNSET
    ) -> protocol.Found:
        table = find(request, database)
        return self._head(house, table, version=table.version, pin=pin)

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
        database = house.catalog.as_of(when, at_most=at_most)
        if (old_table := database.table_by_id(table.id)) is None:
            raise UndefinedError(f"table {name} was not there yet in database version {database.version}")
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
            for view in request.views:
                if session.catalog is not None and session.catalog.name == view.catalog:
                    self._use_view(tx, view)
        return Answer()

    def _use_view(self, tx: Transaction, view: protocol.UsedView) -> None:
        """Note that a DataFrame uses a view's definition, unless it is another one than the snapshot's."""
        name = Name(namespace=view.name[:-1], table=view.name[-1])
        current = tx.base.views.get(name)
        if current is None or current.since > view.version:
            raise ActiveTransactionError(
                f"a DataFrame from before BEGIN uses view {name} as it was in database version {view.version}, which "
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
        uri = house.uris.own(table.location, tx.id, table.version, tx.epoch)
        session.used_tables.add((uri, table.name))
        return protocol.Found(
            uri=uri,
            name=[*table.name.namespace, table.name.table],
            location=house.uris.real(table.location),
            version=version,
            timestamp_micros=timestamp_micros,
            table=id,
        )

    def _exists(self, session: Session, request: protocol.Exists) -> protocol.ExistsAnswer:
        house = self._house(request)
        name = self._name(session, house, request)
        return protocol.ExistsAnswer(exists=name in self._names_in(session, house).tables)

    def _list_tables(self, session: Session, request: protocol.Tables) -> Listing:
        scope = self._scope(session, self._house(request))
        return listing(request, scope, scope.tables)

    # --- writing ------------------------------------------------------------------------------------------------------

    def _create(
        self, session: Session, request: protocol.Create
    ) -> protocol.CreateAnswer | protocol.Found | protocol.Missing:
        """Answer where Delta has to create or replace a table; the write of its first version makes it real."""
        house = self._house(request)
        name = self._name(session, house, request)
        if (request.provider or "delta").lower() != "delta":
            raise UnsupportedError(
                f"table {name} cannot be USING {request.provider}: Lockstep's tables are Delta tables. Leave USING "
                "out, or make it in another catalog, as spark_catalog"
            )
        if request.location:
            raise UnsupportedError(
                f"table {name} cannot have a LOCATION: a catalog's tables lie under its root. Leave LOCATION out; "
                "CREATE TABLE … AS SELECT copies data that lies elsewhere"
            )
        if request.mode != "create" and name in self._names_in(session, house).tables:
            return self._resolve(session, _to_replace(request))
        if request.mode == "replace":
            raise UndefinedError(f"no table {name} to replace; CREATE OR REPLACE TABLE makes it if need be")
        if (tx := session.inside(house)) is not None:
            creation = tx.reserve(name, house.catalog.lake.new_id())
            uri = house.uris.own(creation.location, tx.id, NEW, tx.epoch)
            session.used_tables.add((uri, name))
            return protocol.CreateAnswer(uri=uri)
        creation = house.catalog.reserve(name, case_sensitive=request.case_sensitive)
        self._host.lakehouses.creations.add(house, creation)
        return protocol.CreateAnswer(uri=house.uris.head(creation.location))

    def _write(self, session: Session, request: protocol.Write) -> protocol.WriteAnswer:
        """Commit one version of one table: an autocommitted statement, which must not run inside a transaction."""
        house = self._host.lakehouses.writer(request.uri, request.catalogs)
        location = house.uris.parse(request.uri).location
        if session.transaction is not None:
            raise ActiveTransactionError(
                f"a statement wrote table folder {house.uris.real(location)} outside the open transaction "
                f"({session.transaction.id}), which could not be rolled back. It probably uses a DataFrame or "
                "DeltaTable that was made before BEGIN: make it again inside the transaction"
            )
        check_known(request.settings)
        isolation = isolation_of(SESSION_ISOLATION, request.settings) or house.catalog.isolation
        if isolation == "SERIALIZABLE":
            tables = house.catalog.lake.refresh().tables.values() if request.paths else ()
            refuse_paths(request.paths, house.catalog.lake.storage.url, tables)
        creation = self._host.lakehouses.creations.take(house, location) if request.version == 0 else None
        outcome = house.catalog.write(
            location,
            request.version,
            request.actions,
            creation=creation,
            scans=scans_of(request.reads),
            views=self._views_of(house, request),
            isolation=isolation,
            text=request.text or "",
            author=request.user,
        )
        if isinstance(outcome, Taken):
            return protocol.WriteAnswer(outcome="taken")
        return protocol.WriteAnswer(outcome="committed")

    def _views_of(self, house: Lakehouse, request: protocol.Write) -> dict[Name, int]:
        """Return the views of this lake that the statement used, each with the oldest version that it was used of."""
        versions: dict[Name, int] = {}
        for view in request.views:
            if view.catalog not in request.catalogs:
                raise UnsupportedError(
                    f"this statement uses a DataFrame with a view of catalog {view.catalog}, which this session does "
                    "not have, so nothing was written: make the DataFrame again in this session, and run this again"
                )
            catalog = self._host.lakehouses.get(view.catalog, request.catalogs[view.catalog])
            if catalog.is_same(house):
                name = Name(namespace=view.name[:-1], table=view.name[-1])
                versions[name] = min(view.version, versions.get(name, view.version))
        return versions

    def _staging(self, _: Session, request: protocol.Staging) -> protocol.StagingAnswer:
        """Answer whether Delta may stage this commit of a transaction: nothing is written that nobody would undo."""
        house, view, owner, tx = self._staged_by(request.uri)
        with owner.lock:
            if view.epoch != tx.epoch:
                raise TransactionStateError(
                    f"transaction {tx.id} went back to a savepoint while a statement that writes table folder "
                    f"{house.uris.real(view.location)} ran; nothing of the statement was written, run it again",
                    sqlstate="25000",
                )
            is_taken = house.catalog.is_taken(tx, view.location, request.version)
            return protocol.StagingAnswer(outcome="taken" if is_taken else "free")

    def _staged(self, _: Session, request: protocol.Staged) -> protocol.StagedAnswer:
        """Note that Delta staged a commit of a transaction."""
        house, view, owner, tx = self._staged_by(request.uri)
        with owner.lock:
            text = request.text or ("" if request.actions is not None else f"a large write into {view.location}")
            house.catalog.stage(tx, view.location, request.version, request.actions, text=text)
        return protocol.StagedAnswer(claims=house.catalog.settles_early)

    def _claim(self, _: Session, request: protocol.Claim) -> Answer:
        """Settle what a staged commit conflicts with; no session's lock is held while it waits, see `Host`."""
        try:
            house, view, owner, tx = self._staged_by(request.uri)
        except NoTransactionError as error:
            raise NoTransactionError(
                "the transaction of this statement has ended while the statement ran in another thread: the answer to "
                "its COMMIT or ROLLBACK says what became of the statement, too"
            ) from error
        house.catalog.claim(tx, view.location, request.version, lock=owner.lock)
        return Answer()

    def _staged_by(self, uri: str) -> tuple[Lakehouse, OverlayView, Session, Transaction]:
        """Return the catalog of BEGIN: another of the same root may have other keys, or another `resolution`."""
        if (id := transaction_in(uri)) is None:
            raise InvalidError(f"{uri} is not a transaction's: use the table by its name, as lake.namespace.table")
        owner, house, tx = self._host.transaction_of(id)
        return house, house.uris.parse(uri), owner, tx

    def _drop(self, session: Session, request: protocol.Drop) -> Dropped:
        house = self._house(request)
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

    # --- namespaces ---------------------------------------------------------------------------------------------------

    def _list_namespaces(self, session: Session, request: protocol.Namespaces) -> protocol.NamespacesAnswer:
        scope = self._scope(session, self._house(request))
        parent = stored_namespace(request, request.parent, scope)
        if parent and parent not in scope.namespaces:
            raise UndefinedError(f"no namespace {'.'.join(parent)}; CREATE NAMESPACE makes one", sqlstate=NO_NAMESPACE)
        inside = (n for n in scope.namespaces if n[: len(parent)] == parent and len(n) == len(parent) + 1)
        return protocol.NamespacesAnswer(namespaces=sorted(inside))

    def _describe_namespace(self, session: Session, request: protocol.DescribeNamespace) -> protocol.NamespaceAnswer:
        scope = self._scope(session, self._house(request))
        properties = scope.namespaces.get(stored_namespace(request, request.namespace, scope))
        return protocol.NamespaceAnswer(exists=properties is not None, properties=properties or {})

    def _create_namespace(self, session: Session, request: protocol.CreateNamespace) -> Answer:
        name = stored_namespace(request, request.namespace, self._scope(session, self._house(request)))
        self._change(
            session,
            request,
            lambda tx: tx.changing().create_namespace(name, request.properties),
            f"CREATE NAMESPACE {'.'.join(name)}",
        )
        return Answer()

    def _alter_namespace(self, session: Session, request: protocol.AlterNamespace) -> Answer:
        name = stored_namespace(request, request.namespace, self._scope(session, self._house(request)))

        def alter(tx: Transaction) -> None:
            tx.names.check_namespace(name)
            properties = {key: value for key, value in tx.namespaces[name].items() if key not in request.unset}
            tx.changing().alter_namespace(name, {**properties, **request.set})

        self._change(session, request, alter, f"ALTER NAMESPACE {'.'.join(name)}")
        return Answer()

    def _drop_namespace(self, session: Session, request: protocol.DropNamespace) -> Dropped:
        scope = self._scope(session, self._house(request))
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


def _database_version(text: str) -> int | str:
    """Return a number, or a tag's name."""
    return _number(text) if text.isdigit() else text


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise InvalidError(f"{text!r} is not a version: give a number")
    return int(text)
