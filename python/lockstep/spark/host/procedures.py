"""The procedures of a catalog: `CALL lake.system.<procedure>(…)`. What each takes and gives stands in a table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from lockstep.errors import InvalidError, NoTransactionError, UndefinedError
from lockstep.recovery.changes import restore_to, revert, undrop
from lockstep.recovery.diff import diff
from lockstep.recovery.dropped import dropped_tables
from lockstep.recovery.restore import Selection, TableRestore
from lockstep.spark.host.protocol import procedures as protocol
from lockstep.spark.host.protocol.base import RequestBase
from lockstep.spark.host.requests import Operation, Requests, operation
from lockstep.spark.host.times import micros_of, time_of
from lockstep.timeline.clock import to_millisecond
from lockstep.timeline.entry import Database, Name, Table, Tag, TagDdl, tag_key
from lockstep.transactions.ddl import spelled, spelled_namespace, spellings
from lockstep.transactions.transaction import Transaction

if TYPE_CHECKING:
    from lockstep.spark.host.host import Host
    from lockstep.spark.host.lakehouses import Lakehouse
    from lockstep.spark.host.sessions import Session

NO_PROCEDURE = "42883"
MOST_DAYS = 36_500
MOST_ROWS = 10_000
"""How many rows of history a procedure gives unless it is told how many."""

Rows: TypeAlias = list[list[protocol.Value]]
Answers: TypeAlias = "Callable[[ProcedureRequests, Session, protocol.CallProcedure], protocol.CallAnswer]"


@dataclass(frozen=True, slots=True)
class Procedure:
    """One procedure.

    Attributes:
        says: what it does.
        parameters: each with its type; the first `required` must be given.
        columns: of what it gives, each with its type.
        answers: what does it.
        changes: whether it may change something.
        needs_transaction: whether Delta has to do a part of it in the same transaction.
    """

    says: str
    parameters: Mapping[str, str]
    columns: Mapping[str, str]
    answers: Answers
    required: int = 0
    changes: bool = False
    needs_transaction: bool = False


class ProcedureRequests(Requests):
    """Answers about procedures, for one host."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.operations: Mapping[type[RequestBase], Operation] = dict(
            (
                operation(protocol.Procedures, self._list),
                operation(protocol.DescribeProcedure, self._describe),
                operation(protocol.BindProcedure, self._bind),
                operation(protocol.CallProcedure, self._call),
            )
        )

    def _list(self, _: Session, __: protocol.Procedures) -> protocol.ProceduresAnswer:
        return protocol.ProceduresAnswer(names=sorted(PROCEDURES))

    def _describe(self, _: Session, request: protocol.DescribeProcedure) -> protocol.ProcedureAnswer:
        name, procedure = _find(request.procedure)
        return protocol.ProcedureAnswer(
            name=name,
            says=procedure.says,
            parameters=_typed(procedure.parameters),
            required=procedure.required,
            columns=_typed(procedure.columns),
        )

    def _bind(self, _: Session, request: protocol.BindProcedure) -> protocol.BindAnswer:
        name, procedure = _find(request.procedure)
        arguments = bound(name, procedure, request.positional, request.named)
        return protocol.BindAnswer(
            name=name,
            arguments=_typed({argument: procedure.parameters[argument] for argument in arguments}),
            columns=_typed(procedure.columns),
            changes=procedure.changes,
            needs_transaction=procedure.needs_transaction,
        )

    def _call(self, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
        return PROCEDURES[request.procedure].answers(self, session, request)

    # --- tags ---------------------------------------------------------------------------------------------------------

    def create_tag(self, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
        """Give a database version a name: an older one, or the one that this makes."""
        house, given = self._house(request), request.arguments
        name, days = str(given["tag"]), given.get("retain_days")
        if isinstance(days, int) and not 0 < days <= MOST_DAYS:
            raise InvalidError(f"retain_days is {days}: expected 1 to {MOST_DAYS}")
        if given.get("if_not_exists") and (tag := self._tag(session, house, name)) is not None:
            return _answer([[tag.name, tag.version, _micros(tag.retain_until)]])
        when = _when(given, "version", "timestamp")
        until = to_millisecond(house.catalog.lake.clock() + timedelta(days=days)) if isinstance(days, int) else None
        ddl = TagDdl(
            action="create",
            name=name,
            version=None if when is None else house.catalog.as_of(when).version,
            retain_until=until,
            comment=str(given.get("comment") or ""),
        )
        made = self._change(session, request, lambda tx: tx.changing().create_tag(ddl), request.text)
        return _answer([[name, made if ddl.version is None else ddl.version, _micros(until)]])

    def drop_tag(self, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
        """Take a name from a database version."""
        name = str(request.arguments["tag"])
        tag = self._tag(session, self._house(request), name)
        if tag is None and request.arguments.get("if_exists"):
            return _answer([[name, False]])
        self._change(session, request, lambda tx: tx.changing().drop_tag(name), request.text)
        return _answer([[name if tag is None else tag.name, True]])

    def tags(self, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
        """List the tags."""
        house = self._house(request)
        tx = session.inside(house)
        if tx is None:
            tags: Iterable[Tag | TagDdl] = house.catalog.database().tags.values()
        else:
            keys = {*tx.base.tags, *(tag_key(ddl.name) for ddl in tx.names.tag_ddl())}
            tags = [tag for key in keys if (tag := tx.names.tag(key)) is not None]
        return _answer(
            [
                [
                    *(tag.name, tag.version, _micros(tag.created_at if isinstance(tag, Tag) else None)),
                    *(_micros(tag.retain_until), tag.comment),
                ]
                for tag in sorted(tags, key=lambda tag: tag_key(tag.name))
            ]
        )

    def _tag(self, session: Session, house: Lakehouse, name: str) -> Tag | TagDdl | None:
        tx = session.inside(house)
        return house.catalog.database().tag(name) if tx is None else tx.names.tag(name)

    # --- what was -----------------------------------------------------------------------------------------------------

    def dropped_tables(self, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
        """List the tables that were dropped, the last one first."""
        del session
        house = self._house(request)
        house.catalog.lake.refresh()
        most = request.arguments.get("most") or MOST_ROWS
        assert isinstance(most, int)
        return _answer(
            [
                [
                    *(".".join(table.name.namespace), table.name.table, table.id, table.version),
                    *(_micros(table.dropped_at), table.author, table.transaction),
                ]
                for table in islice(dropped_tables(house.catalog.timeline), max(0, most))
            ]
        )

    def undrop(self, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
        """Bring back a dropped table."""
        house, id_ = self._house(request), request.arguments.get("id")
        name = _name(request, str(request.arguments["table"]))
        tables: list[Table] = []

        def change(tx: Transaction) -> None:
            spelling = name if request.case_sensitive else spelled(name, tx.names)
            tables.append(undrop(house.catalog.timeline, tx, spelling, id=None if id_ is None else str(id_)))

        made = self._change(session, request, change, request.text)
        table = tables[-1]
        back = name if id_ is not None else table.name
        return _answer([[".".join(back.namespace), back.table, table.id, table.version, made]])

    def restore(self, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
        """Take the database, or a part of it, back to an older version."""
        tx, house = self._within(session, request)
        if (when := _when(request.arguments, "version", "timestamp", "tag")) is None:
            raise InvalidError("restore: say to which version, timestamp or tag")
        then = house.catalog.as_of(when, at_most=tx.base.version)
        selection = self._selection(request, tx, then)
        restores = restore_to(house.catalog.timeline, tx, then, selection)
        tx.note_statement(request.text)
        return _answer([[then.version, len(restores), None]], restores)

    def revert(self, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
        """Take back what one transaction changed."""
        tx, house = self._within(session, request)
        version = request.arguments["version"]
        assert isinstance(version, int)
        if version > tx.base.version:
            raise InvalidError(
                f"database version {version} does not exist for this transaction: it sees 0 to {tx.base.version}"
            )
        restores = revert(house.catalog.timeline, tx, version)
        tx.note_statement(request.text)
        return _answer([[version, len(restores), None]], restores)

    def diff(self, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
        """Say what changed between two database versions."""
        del session
        house = self._house(request)
        head = house.catalog.lake.refresh()
        older, newer = request.arguments["from"], request.arguments.get("to")
        assert isinstance(older, int)
        return _answer(
            [
                [
                    *(change.kind, change.name, change.change, change.old_name),
                    *(change.from_version, change.to_version, change.transactions),
                    *(change.counts.files_added, change.counts.files_removed),
                    *(_known(change.counts.rows_added), _known(change.counts.rows_removed)),
                ]
                for change in diff(house.catalog.timeline, older, newer if isinstance(newer, int) else head.version)
            ]
        )

    def _within(self, session: Session, request: protocol.CallProcedure) -> tuple[Transaction, Lakehouse]:
        house = self._house(request)
        if (tx := session.inside(house)) is None:
            raise NoTransactionError(f"{request.procedure} is done inside a transaction; none is open")
        tx.check_writable()
        return tx, house

    def _selection(self, request: protocol.CallProcedure, tx: Transaction, then: Database) -> Selection:
        tables, namespaces = request.arguments.get("tables"), request.arguments.get("namespaces")
        if tables is None and namespaces is None:
            return Selection(everything=True)
        names = {_name(request, text) for text in _texts(tables)}
        spaces = {tuple(_parts(request, text)) for text in _texts(namespaces)}
        if not request.case_sensitive:
            # What has the name now, and what had it then: the two may be spelled in two ways.
            known = {name: {*spellings(name, tx.names), *spellings(name, then)} for name in names}
            names = {spelling for name, each in known.items() for spelling in each or {name}}
            spaces = {spelled_namespace(space, scope) for space in spaces for scope in (tx.names, then)}
        return Selection(names=frozenset(names), namespaces=frozenset(spaces))


# --- calls ------------------------------------------------------------------------------------------------------------


def bound(name: str, procedure: Procedure, positional: int, named: Sequence[str]) -> list[str]:
    """Return which parameters the arguments of a call are for, in their order.

    Raises:
        InvalidError: there are too many, one is unknown or given twice, or one is missing.
    """
    parameters = list(procedure.parameters)
    usage = f"it takes {', '.join(parameters) or 'none'}"
    if positional > len(parameters):
        raise InvalidError(f"{name} was given {positional} arguments: {usage}")
    arguments = parameters[:positional]
    for each in named:
        if (argument := each.lower()) not in procedure.parameters:
            raise InvalidError(f"{name} has no parameter {each}: {usage}")
        if argument in arguments:
            raise InvalidError(f"{name} was given {argument} twice")
        arguments.append(argument)
    if missing := [each for each in parameters[: procedure.required] if each not in arguments]:
        raise InvalidError(f"{name} was not given {', '.join(missing)}: {usage}")
    return arguments


def _find(name: str) -> tuple[str, Procedure]:
    if (procedure := PROCEDURES.get(name.lower())) is None:
        raise UndefinedError(
            f"no procedure {name} in system: there are {', '.join(sorted(PROCEDURES))}", sqlstate=NO_PROCEDURE
        )
    return name.lower(), procedure


def _typed(types: Mapping[str, str]) -> list[protocol.Typed]:
    return [protocol.Typed(name=name, type=kind) for name, kind in types.items()]


def _answer(rows: Rows, restores: Iterable[TableRestore] = ()) -> protocol.CallAnswer:
    return protocol.CallAnswer(
        rows=rows,
        restores=[
            protocol.Restore(table=[*restore.name.namespace, restore.name.table], version=restore.version)
            for restore in restores
        ],
    )


def _when(given: Mapping[str, protocol.Value], *keys: str) -> int | datetime | str | None:
    """Return the version, the time or the tag that is said as one of these; None if none is.

    Raises:
        InvalidError: several are.
    """
    values = {key: value for key in keys if (value := given.get(key)) is not None}
    if len(values) > 1:
        raise InvalidError(f"{' and '.join(values)} are given: expected one of them")
    for key, value in values.items():
        assert isinstance(value, int | str)
        return time_of(value) if key == "timestamp" and isinstance(value, int) else value
    return None


def _texts(value: protocol.Value) -> list[str]:
    return value if isinstance(value, list) else []


def _parts(request: protocol.CallProcedure, text: str) -> list[str]:
    """Return the parts of a name as SQL writes it, without the catalog."""
    if not _NAME.fullmatch(text.strip()):
        raise InvalidError(f"{text!r} is no name: write namespace.table, a part with other characters in backquotes")
    parts = [part[1:-1].replace("``", "`") if part.startswith("`") else part for part in _PART.findall(text.strip())]
    return parts[1:] if len(parts) > 1 and parts[0] == request.catalog else parts


def _name(request: protocol.CallProcedure, text: str) -> Name:
    *namespace, table = _parts(request, text)
    return Name(namespace=tuple(namespace) or ("default",), table=table)


def _micros(time: datetime | None) -> int | None:
    return None if time is None else micros_of(time)


def _known(rows: int) -> int | None:
    return None if rows < 0 else rows


_PART = re.compile(r"`(?:[^`]|``)+`|[^.`]+")
_NAME = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern}))*")

_WHEN = {"version": "bigint", "timestamp": "timestamp"}
_RESTORED = {"restored_version": "bigint", "tables_restored": "bigint", "database_version": "bigint"}

PROCEDURES: Mapping[str, Procedure] = {
    "create_tag": Procedure(
        says="Gives a database version a name: the one that this makes, or an older one.",
        parameters={
            "tag": "string",
            **_WHEN,
            "retain_days": "int",
            "comment": "string",
            "if_not_exists": "boolean",
        },
        required=1,
        columns={"tag": "string", "database_version": "bigint", "retain_until": "timestamp"},
        answers=ProcedureRequests.create_tag,
        changes=True,
    ),
    "drop_tag": Procedure(
        says="Takes a name from a database version.",
        parameters={"tag": "string", "if_exists": "boolean"},
        required=1,
        columns={"tag": "string", "dropped": "boolean"},
        answers=ProcedureRequests.drop_tag,
        changes=True,
    ),
    "tags": Procedure(
        says="Lists the tags.",
        parameters={},
        columns={
            "tag": "string",
            "database_version": "bigint",
            "created_at": "timestamp",
            "retain_until": "timestamp",
            "comment": "string",
        },
        answers=ProcedureRequests.tags,
    ),
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
        answers=ProcedureRequests.dropped_tables,
    ),
    "undrop": Procedure(
        says="Brings back the table of a name that was dropped last, or one by its id under that name.",
        parameters={"table": "string", "id": "string"},
        required=1,
        columns={
            "namespace": "string",
            "table": "string",
            "id": "string",
            "table_version": "bigint",
            "database_version": "bigint",
        },
        answers=ProcedureRequests.undrop,
        changes=True,
    ),
    "restore": Procedure(
        says="Takes the database, or some namespaces and tables of it, back to an older version.",
        parameters={**_WHEN, "tag": "string", "namespaces": "array<string>", "tables": "array<string>"},
        columns=_RESTORED,
        answers=ProcedureRequests.restore,
        changes=True,
        needs_transaction=True,
    ),
    "revert": Procedure(
        says="Takes back what one database version changed, unless a later one changed it too.",
        parameters={"version": "bigint"},
        required=1,
        columns={"reverted_version": "bigint", "tables_restored": "bigint", "database_version": "bigint"},
        answers=ProcedureRequests.revert,
        changes=True,
        needs_transaction=True,
    ),
    "diff": Procedure(
        says="Says what changed from one database version to another, the newest if none is said.",
        parameters={"from": "bigint", "to": "bigint"},
        required=1,
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
        answers=ProcedureRequests.diff,
    ),
}
"""All procedures, by name."""
