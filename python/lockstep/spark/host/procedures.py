"""The procedures of a catalog: `CALL lake.system.<procedure>(…)`. What each takes and gives stands in a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import structs

from lockstep.commit.records import OpenRecord, abort, look_at_abort, with_own
from lockstep.errors import DuplicateError, InvalidError, NoTransactionError, UndefinedError
from lockstep.exports.tagged import create_tag
from lockstep.recovery.tags import new_tag
from lockstep.spark.host import upkeep
from lockstep.spark.host.adoption_procedures import ADOPTION_PROCEDURES
from lockstep.spark.host.calls import (
    WHEN,
    answer_of,
    micros,
    stored_name_in,
    stored_namespace_in,
    version_said,
)
from lockstep.spark.host.export_procedures import EXPORT_PROCEDURES
from lockstep.spark.host.procedure import Procedure
from lockstep.spark.host.protocol import procedures as protocol
from lockstep.spark.host.protocol.base import RequestBase
from lockstep.spark.host.recovery_procedures import RECOVERY_PROCEDURES
from lockstep.spark.host.requests import Change, Operation, Requests, operation
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Namespace, Tag, TagDdl
from lockstep.transactions.names import TAG_EXISTS, Names, tags_in
from lockstep.transactions.statements import shortened
from lockstep.transactions.transaction import Transaction

if TYPE_CHECKING:
    from lockstep.spark.host.host import Host
    from lockstep.spark.host.lakehouses import Lakehouse, Lakehouses
    from lockstep.spark.host.sessions import Session

NO_PROCEDURE = "42883"
DRY_RUN = "dry_run"


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

    @property
    def houses(self) -> Lakehouses:
        """All catalogs of the driver."""
        return self._host.lakehouses

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
        procedure = PROCEDURES[request.procedure]
        # Of what has a default NULL is as if it was not said. But nobody who asks for a dry run gets a real one.
        said = [DRY_RUN] if DRY_RUN in request.arguments else []
        for name in (*islice(procedure.parameters, procedure.required), *said):
            if request.arguments.get(name) is None:
                raise InvalidError(f"{request.procedure}: {name} is NULL: expected a {procedure.parameters[name]}")
        return procedure.answers(self, session, request)

    def house(self, request: protocol.CallProcedure) -> Lakehouse:
        """Return the catalog that is called."""
        return self._house(request)

    def change(self, session: Session, request: protocol.CallProcedure, change: Change) -> int | None:
        """Change names in the open transaction, or in one of its own, whose database version is returned."""
        return self._change(session, request, change, request.text)

    @contextmanager
    def looking(self, session: Session, request: protocol.CallProcedure) -> Iterator[Transaction]:
        """Give the open transaction, or one of its own, to see what a call would do in it; it is then as it was."""
        house = self._house(request)
        if (tx := session.inside(house)) is not None:
            with tx.looking():
                yield tx
            return
        tx = house.catalog.begin(dry_run=True, case_sensitive=request.case_sensitive)
        try:
            yield tx
        finally:
            house.catalog.rollback(tx)

    def names_in(self, session: Session, house: Lakehouse) -> Names | Database:
        """Return the names that a session sees now."""
        return self._names_in(session, house)

    def refuse_system(self, session: Session, house: Lakehouse, namespace: Namespace) -> None:
        """Refuse to make the namespace of the system tables, or one below it."""
        self._refuse_system(session, house, namespace)

    # --- tags ---------------------------------------------------------------------------------------------------------

    def create_tag(self, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
        """Give a database version a name: an older one, or the one that this makes."""
        house, given = self._house(request), request.arguments
        name, days = str(given["tag"]), given.get("retain_days")
        if given.get("if_not_exists") and (tag := self._tag(session, house, name)) is not None:
            if tag.retain_until is not None and tag.retain_until <= house.catalog.lake.clock():
                raise DuplicateError(
                    f"tag {tag.name} exists, and since {tag.retain_until.isoformat(timespec='seconds')} it keeps "
                    "nothing: DROP TAG first, or choose another name",
                    sqlstate=TAG_EXISTS,
                )
            return answer_of([[tag.name, tag.version, micros(tag.retain_until)]])
        when = version_said(given, "version", "timestamp")
        ddl = new_tag(
            name,
            version=None if when is None else house.catalog.as_of(when).version,
            days=days if isinstance(days, int) else None,
            comment=str(given.get("comment") or ""),
            now=house.catalog.lake.clock(),
        )
        check = given.get("check")
        make = partial(create_tag, house.catalog.lake, ddl=ddl, check=check if isinstance(check, bool) else None)
        made = self._change(session, request, make, request.text)
        return answer_of([[name, made if ddl.version is None else ddl.version, micros(ddl.retain_until)]])

    def drop_tag(self, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
        """Take a name from a database version."""
        name = str(request.arguments["tag"])
        tag = self._tag(session, self._house(request), name)
        if tag is None and request.arguments.get("if_exists"):
            return answer_of([[name, False]])
        if request.arguments.get("dry_run"):
            with self.looking(session, request) as tx:
                tx.change_names(lambda names: names.drop_tag(name))
        else:
            self._change(session, request, lambda tx: tx.changing().drop_tag(name), request.text)
        return answer_of([[name if tag is None else tag.name, True]])

    def tags(self, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
        """List the tags."""
        house = self._house(request)
        return answer_of(
            [
                [
                    *(tag.name, tag.version, micros(tag.created_at if isinstance(tag, Tag) else None)),
                    *(micros(tag.retain_until), tag.comment),
                ]
                for tag in tags_in(self._with_tags(session, house))
            ]
        )

    def _tag(self, session: Session, house: Lakehouse, name: str) -> Tag | TagDdl | None:
        return self._with_tags(session, house).tag(name)

    def _with_tags(self, session: Session, house: Lakehouse) -> Names | Database:
        """Return what says which tags there are; a transaction is told that, so it stays so."""
        if (tx := session.inside(house)) is not None:
            tx.seen.tags = True
        return self._names_in(session, house)

    # --- transactions -------------------------------------------------------------------------------------------------

    def transactions(self, _: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
        """List the open transactions, this driver's and those of others."""
        house = self._house(request)
        lake = house.catalog.lake
        found = with_own(lake, self._host.keeper.open_in(house))
        now = lake.clock()
        return answer_of(
            [
                [
                    *(each.transaction, each.state.value, each.author, each.application, each.process),
                    *(micros(each.began_at), micros(each.seen_at), each.is_alive(now), each.base_version),
                    *(each.isolation, ", ".join(map(str, each.names)), each.message),
                    *(each.bytes_staged, each.age_seconds(now)),
                ]
                for each in found
            ]
        )

    def abort(self, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
        """End an open transaction, of whatever process."""
        house, given = self._house(request), request.arguments
        id_ = str(given["transaction"])
        if session.has(id_):
            raise InvalidError(f"transaction {id_} is this session's own: ROLLBACK ends it")
        here = {record.transaction: record for record in self._host.keeper.open_in(house)}
        own = here.get(id_)
        if given.get("dry_run"):
            _, before = look_at_abort(house.catalog.lake, id_, own=own)
            return answer_of([[id_, None if before is None else before.version]])
        entry = abort(
            house.catalog.lake,
            id_,
            author=house.catalog.author if request.user is None else request.user,
            statement=shortened(request.text),
            reason=shortened(str(given.get("reason") or "")),
            snapshot=None if own is None else own.base_version,
            backoff=house.catalog.backoff,
        )
        self._host.keeper.look_for_ended()
        return answer_of([[id_, entry.version]])

    # --- upkeep -------------------------------------------------------------------------------------------------------

    def expire_snapshots(self, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
        """Make older database versions unreadable."""
        house, own = self._outside(session, request)
        return answer_of([upkeep.expire(house, own, request.arguments)])

    def vacuum(self, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
        """Delete files that no version needs."""
        house, own = self._outside(session, request)
        upkeep.check_one(request.arguments)
        table, namespace = (request.arguments.get(key) for key in ("table", "namespace"))
        head = house.catalog.lake.refresh()
        within = (
            None if table is None else stored_name_in(request, str(table), head),
            None if namespace is None else stored_namespace_in(request, str(namespace), head),
        )
        return answer_of([upkeep.vacuum(house, own, request.arguments, *within)])

    def remove_orphan_files(self, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
        """Delete litter."""
        house, own = self._outside(session, request)
        return answer_of([upkeep.orphans(house, own, request.arguments)])

    def maintain(self, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
        """Do all of it; Delta compacts the tables then."""
        house, own = self._outside(session, request)
        row = upkeep.maintain(house, own, request.arguments)
        answer = answer_of([row])
        return structs.replace(answer, compacts=upkeep.to_compact(house, request.arguments))

    def retention(self, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
        """Say what the lake keeps at least, or set it; nothing that ROLLBACK could take back."""
        house, given = self._house(request), request.arguments
        if any(given.get(argument) is not None for argument in upkeep.TYPES):
            upkeep.refuse_inside(session, house, request.procedure, "no ROLLBACK would take back what it sets")
        author = house.catalog.author if request.user is None else request.user
        return answer_of(upkeep.keep_at_least(house, author, shortened(request.text), given))

    def _outside(self, session: Session, request: protocol.CallProcedure) -> tuple[Lakehouse, list[OpenRecord]]:
        """Return the catalog, and what is open in it in this driver, of which others may not have been told."""
        house = self._house(request)
        upkeep.refuse_inside(session, house, request.procedure)
        return house, self._host.keeper.open_in(house)

    def within(self, session: Session, request: protocol.CallProcedure) -> tuple[Transaction, Lakehouse]:
        """Return the open transaction, and the catalog that is called.

        Raises:
            NoTransactionError: none is open. LockstepError: it may not write, see `Transaction.check_writable`.
        """
        house = self._house(request)
        if (tx := session.inside(house)) is None:
            raise NoTransactionError(f"{request.procedure} is done inside a transaction; none is open")
        tx.check_writable()
        return tx, house


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


PROCEDURES: Mapping[str, Procedure] = {
    "create_tag": Procedure(
        says="Gives a database version a name: the one that this makes, or an older one.",
        parameters={
            "tag": "string",
            **WHEN,
            "retain_days": "int",
            "comment": "string",
            "if_not_exists": "boolean",
            "check": "boolean",
        },
        required=1,
        columns={"tag": "string", "database_version": "bigint", "retain_until": "timestamp"},
        answers=ProcedureRequests.create_tag,
        changes=True,
    ),
    "drop_tag": Procedure(
        says="Takes a name from a database version.",
        parameters={"tag": "string", "if_exists": "boolean", "dry_run": "boolean"},
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
    "transactions": Procedure(
        says="Lists the open transactions: all of this driver, of others those that have written something.",
        parameters={},
        columns={
            "transaction_id": "string",
            "state": "string",
            "author": "string",
            "application": "string",
            "process": "string",
            "began_at": "timestamp",
            "seen_at": "timestamp",
            "is_alive": "boolean",
            "database_version": "bigint",
            "isolation": "string",
            "tables": "string",
            "comment": "string",
            "bytes_staged": "bigint",
            "age_seconds": "bigint",
        },
        answers=ProcedureRequests.transactions,
    ),
    "abort": Procedure(
        says="Ends an open transaction of any process, which can never commit from then on.",
        parameters={"transaction": "string", "reason": "string", "dry_run": "boolean"},
        required=1,
        columns={"transaction_id": "string", "aborted_by": "bigint"},
        answers=ProcedureRequests.abort,
    ),
    "expire_snapshots": Procedure(
        says="Makes older database versions unreadable, so that what only they need can be deleted.",
        parameters={"older_than": "timestamp", "retain_last": "int", "dry_run": "boolean"},
        columns=upkeep.EXPIRED,
        answers=ProcedureRequests.expire_snapshots,
    ),
    "vacuum": Procedure(
        says="Deletes files that no version needs which can be read: of a table, a namespace, or all.",
        parameters={"table": "string", "namespace": "string", "dry_run": "boolean"},
        columns=upkeep.SWEPT,
        answers=ProcedureRequests.vacuum,
    ),
    "remove_orphan_files": Procedure(
        says="Deletes what dead transactions left, and folders of tables that no version has.",
        parameters={"older_than": "timestamp", "dry_run": "boolean"},
        columns=upkeep.SWEPT,
        answers=ProcedureRequests.remove_orphan_files,
    ),
    "maintain": Procedure(
        says="Expires versions, deletes what nobody needs, and compacts the tables, as the settings say.",
        parameters={"dry_run": "boolean", "optimize": "boolean"},
        columns={**upkeep.EXPIRED, **upkeep.SWEPT, **upkeep.COMPACTED},
        answers=ProcedureRequests.maintain,
    ),
    "retention": Procedure(
        says="Says what the lake keeps at least, whoever looks after it, or sets it.",
        parameters={**upkeep.TYPES, "dry_run": "boolean"},
        columns=upkeep.KEPT,
        answers=ProcedureRequests.retention,
    ),
    **ADOPTION_PROCEDURES,
    **RECOVERY_PROCEDURES,
    **EXPORT_PROCEDURES,
}
"""All procedures, by name."""
