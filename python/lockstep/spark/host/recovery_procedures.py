"""The procedures that bring back what was, and say what changed: `undrop`, `restore`, `revert`, `diff` and the like."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import astuple

from lockstep.errors import InvalidError
from lockstep.recovery.changes import restore_to, revert, undrop
from lockstep.recovery.diff import diff
from lockstep.recovery.dropped import dropped_tables
from lockstep.recovery.restore import Selection, TableRestore
from lockstep.spark.host.calls import WHEN, answer_of, known, micros, name_in, parts_of, texts_in, version_said
from lockstep.spark.host.procedure import Procedure
from lockstep.spark.host.protocol import procedures as protocol
from lockstep.spark.host.versions import number
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Name, Table
from lockstep.transactions.ddl import spelled, spelled_namespace, spellings
from lockstep.transactions.transaction import Transaction

if TYPE_CHECKING:
    from lockstep.lake.lake import Lake
    from lockstep.spark.host.procedures import ProcedureRequests
    from lockstep.spark.host.sessions import Session

MOST_ROWS = 10_000
"""How many rows of history a procedure gives unless it is told how many."""


def _dropped_tables(
    requests: ProcedureRequests, session: Session, request: protocol.CallProcedure
) -> protocol.CallAnswer:
    """List the tables that were dropped, the last one first."""
    house = requests.house(request)
    house.catalog.lake.refresh()
    tx = session.inside(house)
    most = request.arguments.get("most")
    count = most if isinstance(most, int) else MOST_ROWS
    dropped = dropped_tables(house.catalog.timeline, None if tx is None else tx.base)
    return answer_of(
        [
            [
                *(".".join(table.name.namespace), table.name.table, table.id, table.version),
                *(micros(table.dropped_at), table.author, table.transaction),
            ]
            for table in islice(dropped, max(0, count))
        ]
    )


def _undrop(requests: ProcedureRequests, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
    """Bring back a dropped table."""
    house, id_ = requests.house(request), request.arguments.get("id")
    name = name_in(request, str(request.arguments["table"]), requests.names_in(session, house))
    tables: list[Table] = []
    is_dry = bool(request.arguments.get("dry_run"))

    def change(tx: Transaction) -> None:
        spelling = name if request.case_sensitive else spelled(name, tx.names)
        id = None if id_ is None else str(id_)
        tables.append(undrop(house.catalog.lake, tx, spelling, id=id, dry_run=is_dry))

    made = None
    if is_dry:
        with requests.looking(session, request) as tx:
            change(tx)
            _check_there(house.catalog.lake, tx, [])
    else:
        made = requests.change(session, request, change)
    table = tables[-1]
    back = name if id_ is not None else table.name
    row: list[protocol.Value] = [".".join(back.namespace), back.table, table.id, table.version, made]
    return answer_of([row], nothing=True) if is_dry else answer_of([row], looks=[back])


def _restore(requests: ProcedureRequests, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
    """Take the database, or a part of it, back to an older version."""
    catalog = requests.house(request).catalog
    if (when := version_said(request.arguments, "version", "timestamp", "tag")) is None:
        raise InvalidError("restore: say to which version, timestamp or tag")

    def decide(tx: Transaction, *, dry_run: bool) -> tuple[int, list[TableRestore]]:
        then = catalog.as_of(when, at_most=tx.base.version, names=tx.names)
        return then.version, restore_to(catalog.lake, tx, then, _selection(request, tx, then), dry_run=dry_run)

    return _taken_back(requests, session, request, decide)


def _revert(requests: ProcedureRequests, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
    """Take back what one transaction changed."""
    lake, version = requests.house(request).catalog.lake, request.arguments["version"]
    assert isinstance(version, int)
    return _taken_back(
        requests, session, request, lambda tx, *, dry_run: (version, revert(lake, tx, version, dry_run=dry_run))
    )


class _Decides(Protocol):
    """Gives names their old meaning in a transaction, and returns which version that is of, and what logs are left."""

    def __call__(self, tx: Transaction, *, dry_run: bool) -> tuple[int, list[TableRestore]]: ...


def _taken_back(
    requests: ProcedureRequests, session: Session, request: protocol.CallProcedure, decide: _Decides
) -> protocol.CallAnswer:
    """Restore or revert in the open transaction; or look what that would come to, files that have to be there too."""
    if request.arguments.get("dry_run"):
        with requests.looking(session, request) as tx:
            version, restores = decide(tx, dry_run=True)
            _check_there(requests.house(request).catalog.lake, tx, restores)
        return answer_of([[version, len(restores), None]], nothing=True)
    tx, _ = requests.within(session, request)
    version, restores = decide(tx, dry_run=False)
    # Delta takes logs back by what the transaction sees of them, which has to have those versions.
    session.restored |= {tx.names.tables[restore.name].id: restore.version for restore in restores}
    # Which version a tag or a time led to, nobody can tell later: tags move, and times may be computed.
    said = request.arguments.get("version") is not None
    tx.note_statement(request.text if said else f"{request.text} /* database version {version} */")
    nothing = not (restores or tx.changes_names())
    return answer_of([[version, len(restores), None]], restores, _as_they_were(tx, restores), nothing=nothing)


def _check_there(lake: Lake, tx: Transaction, restores: Iterable[TableRestore]) -> None:
    """Look for the files of what comes back, as Delta does when it is done.

    Raises:
        MissingFilesError: some are gone. UnsupportedError: pyarrow is not installed.
    """
    from lockstep.tables.coming_back import check_restores  # takes pyarrow, for checkpoints; no other request does

    check_restores(lake, tx, restores)


def _diff(requests: ProcedureRequests, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
    """Say what changed between two database versions."""
    house, tx = requests.house(request), session.inside(requests.house(request))
    last = house.catalog.lake.refresh().version if tx is None else tx.base.version

    def end(key: str) -> int | None:
        said = version_said(request.arguments, key, f"{key}_timestamp")
        if isinstance(said, str) and said.isascii() and said.isdecimal():
            return number(said)
        if said is None or isinstance(said, int):
            return said
        return house.catalog.as_of(said, at_most=last, names=None if tx is None else tx.names).version

    older, newer = end("from"), end("to")
    if older is None:
        raise InvalidError("diff: say from which version, tag or time")
    newer = last if newer is None else newer
    if max(older, newer) > last:
        raise InvalidError(f"database version {max(older, newer)} does not exist here: there are 0 to {last}")
    return answer_of(
        [
            [
                *(change.kind, change.name, change.change, change.old_name),
                *(change.from_version, change.to_version, change.transactions),
                *map(known, astuple(change.counts)),
            ]
            for change in diff(house.catalog.timeline, older, newer)
        ]
    )


def _selection(request: protocol.CallProcedure, tx: Transaction, then: Database) -> Selection:
    tables, namespaces = request.arguments.get("tables"), request.arguments.get("namespaces")
    if tables is None and namespaces is None:
        return Selection(everything=True)
    names = {name_in(request, text, tx.names, then) for text in texts_in(tables)}
    spaces = {tuple(parts_of(request, text, tx.names, then)) for text in texts_in(namespaces)}
    if not request.case_sensitive:
        # What has the name now, and what had it then: the two may be spelled in two ways.
        known = {name: {*spellings(name, tx.names), *spellings(name, then)} for name in names}
        names = {spelling for name, each in known.items() for spelling in each or {name}}
        spaces = {spelled_namespace(space, scope) for space in spaces for scope in (tx.names, then)}
    return Selection(names=frozenset(names), namespaces=frozenset(spaces))


def _as_they_were(tx: Transaction, restores: Iterable[TableRestore]) -> list[Name]:
    """Return the tables that a transaction brought back and whose logs stay as they are: Delta looks at the others."""
    restored = {restore.name for restore in restores}
    return sorted(table.name for table in tx.names.brought_back() if table.name not in restored)


_RESTORED = {"restored_version": "bigint", "tables_restored": "bigint", "database_version": "bigint"}

RECOVERY_PROCEDURES: Mapping[str, Procedure] = {
    "dropped_tables": Procedure(
        says="Lists the tables that were dropped and are not there, the last one first.",
        parameters={"most": "int"},
        columns={
            "namespace": "string",
            "table": "string",
            "id": "string",
            "dropped_by": "bigint",
            "dropped_at": "timestamp",
            "author": "string",
            "transaction_id": "string",
        },
        answers=_dropped_tables,
    ),
    "undrop": Procedure(
        says="Brings back the table of a name that was dropped last, or one by its id under that name.",
        parameters={"table": "string", "id": "string", "dry_run": "boolean"},
        required=1,
        columns={
            "namespace": "string",
            "table": "string",
            "id": "string",
            "table_version": "bigint",
            "database_version": "bigint",
        },
        answers=_undrop,
        changes=True,
        needs_transaction=True,
    ),
    "restore": Procedure(
        says="Takes the database, or some namespaces and tables of it, back to an older version.",
        parameters={
            **WHEN,
            "tag": "string",
            "namespaces": "array<string>",
            "tables": "array<string>",
            "dry_run": "boolean",
        },
        columns=_RESTORED,
        answers=_restore,
        changes=True,
        needs_transaction=True,
    ),
    "revert": Procedure(
        says="Takes back what one database version changed, unless a later one changed it too.",
        parameters={"version": "bigint", "dry_run": "boolean"},
        required=1,
        columns={"reverted_version": "bigint", "tables_restored": "bigint", "database_version": "bigint"},
        answers=_revert,
        changes=True,
        needs_transaction=True,
    ),
    "diff": Procedure(
        says="Says what changed from one version, tag or time to another, the newest if none is said.",
        parameters={"from": "string", "to": "string", "from_timestamp": "timestamp", "to_timestamp": "timestamp"},
        columns={
            "kind": "string",
            "name": "string",
            "change": "string",
            "old_name": "string",
            "from_version": "bigint",
            "to_version": "bigint",
            "transactions": "bigint",
            "files_added": "bigint",
            "files_removed": "bigint",
            "rows_added": "bigint",
            "rows_removed": "bigint",
        },
        answers=_diff,
    ),
}
"""Those of this module, by name."""
