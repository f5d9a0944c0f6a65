"""The requests of the shim's catalog and log store: what a name means, and what was written to it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lockstep.commit.outcomes import Taken
from lockstep.commit.scans import Scan
from lockstep.errors import (
    ActiveTransactionError,
    InvalidError,
    TransactionStateError,
    UndefinedError,
    UnsupportedError,
)
from lockstep.settings import SESSION_ISOLATION
from lockstep.spark.host.lakehouses import isolation_of
from lockstep.spark.host.requests import Requests, find, is_case_sensitive, listed, namespace_of, stored
from lockstep.spark.host.uris import View, transaction_in
from lockstep.timeline.entry import NEW, Database, Table
from lockstep.transactions.names import NO_NAMESPACE
from lockstep.transactions.transaction import Transaction

if TYPE_CHECKING:
    from lockstep.spark.host.host import Host
    from lockstep.spark.host.lakehouses import Lakehouse
    from lockstep.spark.host.sessions import Answer, Request, Session

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS = 18
"""What a version has at most: all of them are numbers of 64 bits."""


class TableRequests(Requests):
    """Answers about tables and namespaces, for one host."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.operations: dict[str, Callable[[Session, Request], Answer]] = {
            "resolve": self._resolve,
            "version_then": self._version_then,
            "snapshot": self._snapshot,
            "exists": self._exists,
            "tables": self._list_tables,
            "create": self._create,
            "drop": self._drop,
            "rename": self._rename,
            "write": self._write,
            "staging": self._staging,
            "staged": self._staged,
            "namespaces": self._list_namespaces,
            "namespace": self._namespace,
            "create_namespace": self._create_namespace,
            "alter_namespace": self._alter_namespace,
            "drop_namespace": self._drop_namespace,
        }

    # --- reading ------------------------------------------------------------------------------------------------------

    def _resolve(self, session: Session, asked: Request) -> Answer:
        """Answer which URI, and which version of it, a name means for this use."""
        house = self._house(asked)
        if asked.get("text"):
            session.text = asked["text"]
        try:
            if asked.get("version") is not None or asked.get("system_time_micros") is not None:
                return self._time_travel(session, house, asked)
            if (tx := session.inside(house)) is not None:
                return self._in_transaction(session, house, tx, tx.table(self._name(session, house, asked)), asked)
            return self._alone(session, house, asked)
        except UndefinedError as error:
            if error.sqlstate != UndefinedError.default_sqlstate:
                raise
            return {"missing": True}

    def _alone(self, session: Session, house: Lakehouse, asked: Request) -> Answer:
        """Outside a transaction: queries are pinned to one database version, all else goes to the newest."""
        if asked["use"] != "pinned":
            table = find(asked, house.catalog.database([self._name(session, house, asked)]))
            return self._head(house, table) | {"table": table.id}
        database = self._pinned(house, asked)
        pin = {"pin": database.version}
        if stored(asked, database) not in database.tables:
            return {"missing": True} | pin
        table = find(asked, database)
        if asked.get("timestamp_micros") is not None:
            return self._head(house, table) | {"timestamp_micros": asked["timestamp_micros"]} | pin
        return self._head(house, table) | {"version": table.version, "table": table.id} | pin

    def _in_transaction(
        self, session: Session, house: Lakehouse, tx: Transaction, table: Table, asked: Request
    ) -> Answer:
        """Inside: what was not written is read through the shared, warm URI while that is still at the pin."""
        use = asked["use"]
        if asked.get("writes"):
            tx.check_writable()
            tx.said(session.text)
        travels = {"timestamp_micros": asked["timestamp_micros"]} if asked.get("timestamp_micros") is not None else {}
        if use == "target":
            tx.read(table)
        elif use != "append" and not travels:
            tx.touch(table, asked.get("touch"))
        current = house.catalog.timeline.head.table_by_id(table.id)
        shared = use == "pinned" and not tx.has_written(table) and not travels
        if shared and current is not None and current.version == table.version:
            return self._head(house, table) | {"version": table.version, "table": table.id}
        return self._own(session, house, tx, table) | (travels or {"table": table.id})

    def _time_travel(self, session: Session, house: Lakehouse, asked: Request) -> Answer:
        """`@n`: the table in database version n. A plain number: Delta's own version of the table as it is now."""
        if (tx := session.inside(house)) is None:
            return self._time_travel_alone(house, asked)
        if (micros := asked.get("system_time_micros")) is not None:
            return self._was(house, house.catalog.as_of(_time(micros), at_most=tx.base.version), asked)
        version: str = asked["version"]
        if version.startswith("@"):
            return self._was(house, house.catalog.as_of(_number(version[1:]), at_most=tx.base.version), asked)
        return self._own(session, house, tx, tx.table(self._name(session, house, asked))) | {
            "version": _number(version)
        }

    def _time_travel_alone(self, house: Lakehouse, asked: Request) -> Answer:
        """Outside a transaction: what a statement reads as it was at a time is no newer than what else it reads."""
        if (micros := asked.get("system_time_micros")) is not None:
            pinned = self._pinned(house, asked)
            then = house.catalog.timeline.at_time(_time(micros))
            was = then if then.version < pinned.version else pinned
            return self._was(house, was, asked) | {"pin": pinned.version}
        version: str = asked["version"]
        if version.startswith("@"):
            return self._was(house, house.catalog.as_of(_number(version[1:])), asked)
        wanted, pinned = _number(version), self._pinned(house, asked)
        table = find(asked, pinned)
        if wanted > table.version:
            raise InvalidError(f"table {table.name} has no version {wanted}: its versions go up to {table.version}")
        return self._head(house, table) | {"version": wanted, "pin": pinned.version}

    def _was(self, house: Lakehouse, database: Database, asked: Request) -> Answer:
        table = find(asked, database)
        return self._head(house, table) | {"version": table.version}

    def _version_then(self, session: Session, asked: Request) -> Answer:
        """Answer which version of its log a table had in a database version: the same table, whatever its name was."""
        house = self._house(asked)
        name, tx = self._name(session, house, asked), session.inside(house)
        seen = house.catalog.database([name]) if tx is None else tx
        if (table := seen.tables.get(name)) is None:
            return {"version": None}
        micros = asked.get("system_time_micros")
        then = asked["version"] if micros is None else _time(micros)
        database = house.catalog.as_of(then, at_most=None if tx is None else tx.base.version)
        if (was := database.table_by_id(table.id)) is None:
            raise UndefinedError(f"table {name} was not there yet in database version {database.version}")
        return {"version": was.version}

    def _snapshot(self, session: Session, asked: Request) -> Answer:
        """Refuse what a DataFrame from before BEGIN reads, unless it is what the transaction's snapshot has."""
        if (tx := session.transaction) is not None:
            for scan in scans_of(asked):
                if (other := other_version(tx, scan)) is not None:
                    raise ActiveTransactionError(other)
        return {}

    def _head(self, house: Lakehouse, table: Table) -> Answer:
        house.catalog.lake.publisher.check(table)
        return {
            "missing": False,
            "uri": house.uris.head(table.location),
            "name": [*table.name.namespace, table.name.table],
            "location": house.uris.real(table.location),
        }

    def _own(self, session: Session, house: Lakehouse, tx: Transaction, table: Table) -> Answer:
        house.catalog.lake.publisher.check(table)
        uri = house.uris.own(table.location, tx.id, table.version, tx.epoch)
        session.used.add((uri, table.name))
        name = [*table.name.namespace, table.name.table]
        return {"missing": False, "uri": uri, "name": name, "location": house.uris.real(table.location)}

    def _exists(self, session: Session, asked: Request) -> Answer:
        house = self._house(asked)
        return {"exists": self._name(session, house, asked) in self._seen(session, house).tables}

    def _list_tables(self, session: Session, asked: Request) -> Answer:
        seen = self._seen(session, self._house(asked))
        return listed(asked, seen, seen.tables)

    # --- writing ------------------------------------------------------------------------------------------------------

    def _create(self, session: Session, asked: Request) -> Answer:
        """Answer where Delta has to create or replace a table; the write of its first version makes it real."""
        house = self._house(asked)
        name = self._name(session, house, asked)
        if (asked.get("provider") or "delta").lower() != "delta":
            raise UnsupportedError(
                f"table {name} cannot be USING {asked['provider']}: Lockstep's tables are Delta tables"
            )
        if asked.get("location"):
            raise UnsupportedError(f"table {name} cannot have a LOCATION: a catalog's tables lie under its root")
        session.text = asked.get("text") or ""
        seen = self._seen(session, house)
        if asked["mode"] != "create" and name in seen.tables:
            return self._resolve(session, asked | {"use": "target", "writes": True})
        if asked["mode"] == "replace":
            raise UndefinedError(f"no table {name} to replace; CREATE OR REPLACE TABLE makes it if need be")
        if isinstance(seen, Transaction):
            seen.said(session.text)
            creation = seen.reserve(name, house.catalog.lake.new_id())
            uri = house.uris.own(creation.location, seen.id, NEW, seen.epoch)
            session.used.add((uri, name))
            return {"uri": uri}
        creation = house.catalog.reserve(name, case_sensitive=is_case_sensitive(asked))
        self._host.lakehouses.creations.add(house, creation)
        return {"uri": house.uris.head(creation.location)}

    def _write(self, session: Session, asked: Request) -> Answer:
        """Commit one version of one table: an autocommitted statement, which must not run inside a transaction."""
        house = self._host.lakehouses.writer(asked["uri"], asked["catalogs"])
        location = house.uris.parse(asked["uri"]).location
        if session.transaction is not None:
            raise ActiveTransactionError(
                f"a statement wrote table folder {house.uris.real(location)} outside the open transaction "
                f"({session.transaction.id}), which could not be rolled back. It probably uses a DataFrame or "
                "DeltaTable that was made before BEGIN: make it again inside the transaction"
            )
        creation = self._host.lakehouses.creations.take(house, location) if asked["version"] == 0 else None
        outcome = house.catalog.write(
            location,
            asked["version"],
            asked["actions"],
            creation=creation,
            scans=scans_of(asked),
            isolation=isolation_of(SESSION_ISOLATION.said(asked)),
            text=session.text,
        )
        if isinstance(outcome, Taken):
            return {"outcome": "taken"}
        return {"outcome": "committed"}

    def _staging(self, _: Session, asked: Request) -> Answer:
        """Answer whether Delta may stage this commit of a transaction: nothing is written that nobody would undo."""
        house, view, owner, tx = self._staged_by(asked)
        with owner.lock:
            if view.epoch != tx.epoch:
                raise TransactionStateError(
                    f"transaction {tx.id} went back to a savepoint while a statement that writes table folder "
                    f"{house.uris.real(view.location)} ran; nothing of the statement was written",
                    sqlstate="25000",
                )
            taken = house.catalog.is_taken(tx, view.location, asked["version"])
            return {"outcome": "taken" if taken else "free"}

    def _staged(self, _: Session, asked: Request) -> Answer:
        """Note that Delta staged a commit of a transaction."""
        house, view, owner, tx = self._staged_by(asked)
        with owner.lock:
            house.catalog.stage(tx, view.location, asked["version"])
        return {}

    def _staged_by(self, asked: Request) -> tuple[Lakehouse, View, Session, Transaction]:
        """Return the catalog of BEGIN: another of the same root may have other keys, or another `resolution`."""
        uri = asked["uri"]
        if (id := transaction_in(uri)) is None:
            raise InvalidError(f"{uri} is not a transaction's")
        owner, house, tx = self._host.transaction_of(id)
        return house, house.uris.parse(uri), owner, tx

    def _drop(self, session: Session, asked: Request) -> Answer:
        house = self._house(asked)
        name = self._name(session, house, asked)
        if name not in self._seen(session, house).tables:
            return {"dropped": False}
        self._change(session, asked, lambda tx: tx.changing().drop_table(name), f"DROP TABLE {name}")
        return {"dropped": True}

    def _rename(self, session: Session, asked: Request) -> Answer:
        house = self._house(asked)
        name = self._name(session, house, asked)
        new = self._new_name(session, house, asked, name)
        self._change(
            session, asked, lambda tx: tx.changing().rename_table(name, new), f"ALTER TABLE {name} RENAME TO {new}"
        )
        return {}

    # --- namespaces ---------------------------------------------------------------------------------------------------

    def _list_namespaces(self, session: Session, asked: Request) -> Answer:
        seen = self._seen(session, self._house(asked))
        parent = namespace_of(asked, seen, "parent")
        if parent and parent not in seen.namespaces:
            raise UndefinedError(f"no namespace {'.'.join(parent)}", sqlstate=NO_NAMESPACE)
        inside = (n for n in seen.namespaces if n[: len(parent)] == parent and len(n) == len(parent) + 1)
        return {"namespaces": sorted(inside)}

    def _namespace(self, session: Session, asked: Request) -> Answer:
        seen = self._seen(session, self._house(asked))
        properties = seen.namespaces.get(namespace_of(asked, seen))
        return {"exists": properties is not None, "properties": properties or {}}

    def _create_namespace(self, session: Session, asked: Request) -> Answer:
        name, properties = namespace_of(asked, self._seen(session, self._house(asked))), asked["properties"]
        self._change(
            session,
            asked,
            lambda tx: tx.changing().create_namespace(name, properties),
            f"CREATE NAMESPACE {'.'.join(name)}",
        )
        return {}

    def _alter_namespace(self, session: Session, asked: Request) -> Answer:
        name = namespace_of(asked, self._seen(session, self._house(asked)))

        def alter(tx: Transaction) -> None:
            tx.names.check_namespace(name)
            kept = {key: value for key, value in tx.namespaces[name].items() if key not in asked["unset"]}
            tx.changing().alter_namespace(name, {**kept, **asked["set"]})

        self._change(session, asked, alter, f"ALTER NAMESPACE {'.'.join(name)}")
        return {}

    def _drop_namespace(self, session: Session, asked: Request) -> Answer:
        seen = self._seen(session, self._house(asked))
        name, cascade = namespace_of(asked, seen), bool(asked["cascade"])
        if name not in seen.namespaces:
            return {"dropped": False}
        self._change(
            session,
            asked,
            lambda tx: tx.changing().drop_namespace(name, cascade=cascade),
            f"DROP NAMESPACE {'.'.join(name)}",
        )
        return {"dropped": True}


def scans_of(asked: Request) -> list[Scan]:
    """Return what a statement, or a whole transaction, read: the scans that the shim saw."""
    return [
        Scan(scan["table"], scan["version"], scan["where"], scan.get("head", True), scan.get("cached", False))
        for scan in asked.get("reads") or []
    ]


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


def _time(micros: int) -> datetime:
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError as error:
        raise InvalidError("no database version is of that time: give one of the years 1 to 9999") from error


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise InvalidError(f"{text!r} is not a version: give a number")
    return int(text)
