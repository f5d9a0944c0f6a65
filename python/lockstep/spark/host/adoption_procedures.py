"""The procedures about tables that others made, or write: `CALL lake.system.adopt`, `release` and `settle`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from lockstep.adoption.adopt import Found, Wanted, adopt, look, look_at_claims, look_at_names
from lockstep.adoption.definitions import Defined, Held, Move, Named, one_of, with_definitions
from lockstep.adoption.finding import tables_below
from lockstep.adoption.release import release
from lockstep.adoption.schemas import (
    SESSION_CATALOG,
    Listed,
    Sorted,
    check_implementation,
    definition_said,
    nothing_in,
    schema_said,
    sort_out,
)
from lockstep.adoption.session_names import Held as InLake
from lockstep.adoption.session_names import differs
from lockstep.errors import ActiveTransactionError, InvalidError, UndefinedError, UnsupportedError
from lockstep.recovery.choices import Choice, choices
from lockstep.recovery.divergence import Divergence, divergence
from lockstep.recovery.settle import settle, side_of
from lockstep.spark.host.calls import (
    answer_of,
    known,
    list_first,
    stored_name_in,
    stored_namespace_in,
    written_parts,
)
from lockstep.spark.host.procedure import Procedure
from lockstep.spark.host.protocol import procedures as protocol
from lockstep.storage.urls import url_below
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Name, Namespace, Table, names_in
from lockstep.transactions.ddl import spelled, spelled_namespace
from lockstep.transactions.names import NO_NAMESPACE, Names

if TYPE_CHECKING:
    from lockstep.spark.host.lakehouses import Lakehouse
    from lockstep.spark.host.procedures import ProcedureRequests
    from lockstep.spark.host.sessions import Session
    from lockstep.transactions.transaction import Transaction


def _adopt(requests: ProcedureRequests, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
    house = requests.house(request)
    lake = house.catalog.lake
    said = _said(request)
    if request.listed is None and (schema := _schema_said(said)) is not None:
        return list_first(schema)
    asked = _asked(requests, session, request, said)
    if "table" not in said:
        for namespace in {each.name.namespace for each in asked.wanted} | {name.namespace for name, _ in asked.views}:
            requests.refuse_system(session, house, namespace)
    left = [[*_columns(house, each), each.reason, None] for each in asked.left]
    views = [Found(name, "") for name, _ in asked.views]
    if request.arguments.get("dry_run"):
        names = requests.names_in(session, house)
        found = look_at_claims(lake, look(lake, names, asked.wanted))
        found = look_at_names(found, names, case_sensitive=request.case_sensitive)
        return answer_of([*([*_columns(house, each), each.reason, None] for each in (*found, *views)), *left])
    rows: list[list[protocol.Value]] = []

    def change(tx: Transaction) -> None:
        found = look(lake, tx.names, asked.wanted)
        adopt(lake, tx, found, make_namespaces="table" not in said, views=asked.views)
        rows.extend([*_columns(house, each), None] for each in (*found, *views))

    made = requests.change(session, request, change)
    return answer_of([*([*row, made] for row in rows), *left])


def _said(request: protocol.CallProcedure) -> dict[str, str]:
    """Return what is given to `adopt` of what it is to take in.

    Raises:
        InvalidError: that is too little, or too much.
    """
    given = {key: str(value) for key, value in request.arguments.items() if value is not None and key != "dry_run"}
    if given.keys() not in _WAYS:
        raise InvalidError(
            "adopt: say which table, and its location; or a folder with Delta tables, or a schema of "
            f"{SESSION_CATALOG}, or a view or a function there, and perhaps a namespace for them"
        )
    return given


def _schema_said(said: Mapping[str, str]) -> str | None:
    """Return which schema of the session catalog has to be looked at; None if none has."""
    if "schema" in said:
        return schema_said(written_parts(said["schema"]))
    return next((definition_said(written_parts(said[kind]), kind)[0] for kind in _KINDS if kind in said), None)


_KINDS = ("view", "function")
"""What may be adopted by itself and is no table."""

_WAYS = (
    {"table", "location"},
    *({way, *more} for way in ("folder", "schema", *_KINDS) for more in ((), ("namespace",))),
)
"""What may be given to `adopt` together."""


def _asked(
    requests: ProcedureRequests, session: Session, request: protocol.CallProcedure, said: Mapping[str, str]
) -> Sorted:
    """Return what is to be adopted: one table, all those below a folder, or those of a schema.

    Args:
        said: see `_said`.

    Raises:
        InvalidError: the folder, or the schema, has none. UndefinedError (3F000): there is no such schema.
    """
    house = requests.house(request)
    scope = requests.names_in(session, house)
    if "table" in said:
        return Sorted([Wanted(stored_name_in(request, said["table"], scope), said["location"])], [])
    namespace = None if (text := said.get("namespace")) is None else stored_namespace_in(request, text, scope)
    if "folder" in said:
        return Sorted(tables_below(house.catalog.lake.storage, said["folder"], namespace), [])
    return _in_schema(request, house, scope, namespace, said)


def _in_schema(
    request: protocol.CallProcedure,
    house: Lakehouse,
    scope: Names | Database,
    namespace: Namespace | None,
    said: Mapping[str, str],
) -> Sorted:
    """Return what is to be adopted of a schema that was listed; a dry run may find other things alone."""
    listed = request.listed
    assert listed is not None
    check_implementation(listed.implementation)
    if listed.name is None:
        raise UndefinedError(
            f"no schema {SESSION_CATALOG}.{_schema_said(said)}: SHOW SCHEMAS IN {SESSION_CATALOG} lists those that "
            "there are",
            sqlstate=NO_NAMESPACE,
        )
    if namespace is None:
        namespace = (listed.name,) if request.case_sensitive else spelled_namespace((listed.name,), scope)
    move = Move(listed.name, house.name, namespace, str if request.case_sensitive else str.casefold)
    tables = [Listed(**structs.asdict(each)) for each in listed.tables]
    definitions = [_defined(each) for each in listed.definitions]
    one = next((kind for kind in _KINDS if kind in said), None)
    held = _held(house, scope, namespace, tables if one else ())
    is_looked_at = bool(request.arguments.get("dry_run"))
    if one is not None:
        last = definition_said(written_parts(said[one]), one)[1]
        found = one_of(last, is_function=one == "function", listed=definitions, move=move, held=held)
        if found.left and not is_looked_at:
            raise UnsupportedError(f"adopt: {said[one]} stays where it is: {found.left[0].reason}")
        return found
    found = with_definitions(sort_out(tables, listed.name, namespace), definitions, move, held.names)
    if not found.wanted and not found.views and not (found.left and is_looked_at):
        raise nothing_in(listed.name, found.left)
    return found


def _held(house: Lakehouse, scope: Names | Database, namespace: Namespace, listed: Sequence[Listed]) -> Held:
    """Return what the lake has in a namespace already, and which of its tables are among those that are listed."""
    tables = {name.table: scope.tables[name] for name in names_in(scope.tables, namespace)}
    views = {name.table: scope.views[name].definition for name in names_in(scope.views, namespace)}
    same = [
        each.name
        for each in listed
        if (name := spelled(Name(namespace=namespace, table=each.name), scope)).table in tables
        and differs(InLake(house.uris.real(tables[name.table].location)), each) is None
    ]
    return Held(tables, same, views)


def _defined(each: protocol.ListedDefinition) -> Defined:
    named = {key: [Named(name.written, name.meaning) for name in getattr(each, key)] for key in ("reads", "calls")}
    return Defined(each.name, each.is_function, each.view, each.function, each.problem, **named)


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
            space = stored_namespace_in(request, str(namespace), tx.names)
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
    offered = choices(lake, found, keep)
    if request.arguments.get("dry_run"):
        return answer_of([[*_choice(found, each), None] for each in offered])
    if keep is None:
        raise InvalidError(
            "settle: say which side to keep, ours, theirs or both, or dry_run => true to look what each means"
        )

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


def _columns(house: Lakehouse, table: Found) -> list[protocol.Value]:
    where = url_below(house.catalog.lake.storage.url, table.location) if table.version >= 0 else table.location or None
    return [".".join(table.name.namespace), table.name.table, where, table.version if table.version >= 0 else None]


_TABLE = {"namespace": "string", "table": "string", "location": "string", "table_version": "bigint"}

ADOPTION_PROCEDURES: Mapping[str, Procedure] = {
    "adopt": Procedure(
        says="Takes in a Delta table where it is, or all those below a folder or of a schema; nothing is copied.",
        parameters={
            "table": "string",
            "location": "string",
            "folder": "string",
            "namespace": "string",
            "dry_run": "boolean",
            "schema": "string",
            "view": "string",
            "function": "string",
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
        says="Settles a table that has diverged: the timeline's side is kept, a plain Delta writer's, or both.",
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
