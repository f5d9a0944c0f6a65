"""The procedures about tables that others made, or write: `CALL lake.system.adopt`, `release` and `settle`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from lockstep.adoption.adopt import Found, Wanted, adopt, look, look_at_claims
from lockstep.adoption.finding import tables_below
from lockstep.adoption.release import release
from lockstep.errors import ActiveTransactionError, InvalidError
from lockstep.recovery.choices import Choice, choices
from lockstep.recovery.divergence import Divergence, divergence
from lockstep.recovery.settle import settle, side_of
from lockstep.spark.host.calls import answer_of, known, parts_of, stored_name_in
from lockstep.spark.host.procedure import Procedure
from lockstep.spark.host.protocol import procedures as protocol
from lockstep.storage.outside import url_below
from lockstep.timeline.entry import Database, Namespace, Table, names_in
from lockstep.transactions.ddl import spelled_namespace
from lockstep.transactions.names import Names

if TYPE_CHECKING:
    from lockstep.spark.host.lakehouses import Lakehouse
    from lockstep.spark.host.procedures import ProcedureRequests
    from lockstep.spark.host.sessions import Session
    from lockstep.transactions.transaction import Transaction


def _adopt(requests: ProcedureRequests, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
    house = requests.house(request)
    wanted = _wanted(requests, session, request)
    if request.arguments.get("dry_run"):
        lake = house.catalog.lake
        found = look_at_claims(lake, look(lake, requests.names_in(session, house), wanted))
        return answer_of([[*_columns(house, each), each.reason, None] for each in found])
    rows: list[list[protocol.Value]] = []

    def change(tx: Transaction) -> None:
        found = look(house.catalog.lake, tx.names, wanted)
        adopt(house.catalog.lake, tx, found, make_namespaces=request.arguments.get("folder") is not None)
        rows.extend([*_columns(house, each), None] for each in found)

    made = requests.change(session, request, change)
    return answer_of([[*row, made] for row in rows])


def _wanted(requests: ProcedureRequests, session: Session, request: protocol.CallProcedure) -> list[Wanted]:
    """Return what is to be adopted: one table, or all those below a folder.

    Raises:
        InvalidError: neither is said, or both; or the folder has none.
    """
    house = requests.house(request)
    scope = requests.names_in(session, house)
    given = {key: str(value) for key, value in request.arguments.items() if value is not None and key != "dry_run"}
    if given.keys() == {"table", "location"}:
        return [Wanted(stored_name_in(request, given["table"], scope), given["location"])]
    if given.keys() in ({"folder"}, {"folder", "namespace"}):
        namespace = None if (said := given.get("namespace")) is None else _namespace(request, said, scope)
        return tables_below(house.catalog.lake.storage, given["folder"], namespace)
    raise InvalidError(
        "adopt: say which table, and its location; or a folder with Delta tables, and perhaps a namespace for them"
    )


def _release(requests: ProcedureRequests, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
    house = requests.house(request)
    table, namespace = (request.arguments.get(key) for key in ("table", "namespace"))
    if (table is None) == (namespace is None):
        raise InvalidError("release: say which table, or of which namespace all of them")
    gone: list[Table] = []

    def change(tx: Transaction) -> None:
        if table is not None:
            names = [stored_name_in(request, str(table), tx.names)]
        else:
            space = _namespace(request, str(namespace), tx.names)
            tx.names.check_namespace(space)
            names = sorted(names_in(tx.names.tables, space))
        gone.extend(release(house.catalog.lake, tx, names))

    made = requests.change(session, request, change)
    found = [Found(each.name, each.location, each.version) for each in gone]
    return answer_of([[*_columns(house, each), made] for each in found])


def _settle(requests: ProcedureRequests, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
    """Say what each choice takes from readers, or make one of them; a table is settled in a transaction of its own."""
    house = requests.house(request)
    if session.inside(house) is not None:
        raise ActiveTransactionError("settle is done in a transaction of its own: COMMIT first, or ROLLBACK")
    lake = house.catalog.lake
    found = divergence(lake, stored_name_in(request, str(request.arguments["table"]), lake.refresh()))
    said = request.arguments.get("keep")
    keep = None if said is None else side_of(str(said))
    offered = [each for each in choices(lake, found) if keep in (None, each.keep)]
    if request.arguments.get("dry_run"):
        return answer_of([[*_choice(found, each), None] for each in offered])
    if keep is None:
        raise InvalidError("settle: say which side to keep, ours or theirs, or dry_run => true to look what each means")

    def run(change: Callable[[Transaction], None]) -> int:
        made = requests.change(session, request, change)
        assert made is not None, "no transaction is open"
        return made

    made = settle(lake, found, keep, run)
    return answer_of([[*_choice(found, each), made] for each in offered])


def _choice(found: Divergence, choice: Choice) -> list[protocol.Value]:
    counts, name = choice.counts, found.table.name
    return [
        *(".".join(name.namespace), name.table, choice.keep, ", ".join(map(str, choice.lost_versions))),
        *map(known, (counts.files_added, counts.files_removed, counts.rows_added, counts.rows_removed)),
        choice.refused,
    ]


def _namespace(request: protocol.CallProcedure, text: str, scope: Names | Database) -> Namespace:
    space = tuple(parts_of(request, text, scope))
    return space if request.case_sensitive else spelled_namespace(space, scope)


def _columns(house: Lakehouse, table: Found) -> list[protocol.Value]:
    where = url_below(house.catalog.lake.storage.url, table.location) if table.version >= 0 else table.location
    return [".".join(table.name.namespace), table.name.table, where, table.version if table.version >= 0 else None]


_TABLE = {"namespace": "string", "table": "string", "location": "string", "table_version": "bigint"}

ADOPTION_PROCEDURES: Mapping[str, Procedure] = {
    "adopt": Procedure(
        says="Takes in a Delta table where it is, or all tables below a folder; nothing is copied.",
        parameters={
            "table": "string",
            "location": "string",
            "folder": "string",
            "namespace": "string",
            "dry_run": "boolean",
        },
        columns={**_TABLE, "refused": "string", "database_version": "bigint"},
        answers=_adopt,
        changes=True,
    ),
    "release": Procedure(
        says="Gives a table, or all of a namespace, back as they are: no tables of the lake any more.",
        parameters={"table": "string", "namespace": "string"},
        columns={**_TABLE, "database_version": "bigint"},
        answers=_release,
        changes=True,
    ),
    "settle": Procedure(
        says="Settles a table that has diverged: what the timeline has is kept, or what a plain Delta writer wrote.",
        parameters={"table": "string", "keep": "string", "dry_run": "boolean"},
        required=1,
        columns={
            "namespace": "string",
            "table": "string",
            "keep": "string",
            "lost_versions": "string",
            "files_added": "bigint",
            "files_removed": "bigint",
            "rows_added": "bigint",
            "rows_removed": "bigint",
            "refused": "string",
            "database_version": "bigint",
        },
        answers=_settle,
        changes=True,
    ),
}
"""The procedures, by name."""
