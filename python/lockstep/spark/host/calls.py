"""What calls of procedures give and get: names, times and versions as arguments, and rows as answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec import structs

from lockstep.errors import InvalidError
from lockstep.recovery.restore import TableRestore
from lockstep.spark.host.procedure import Rows
from lockstep.spark.host.protocol import procedures as protocol
from lockstep.spark.host.times import micros_of, time_of
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Name, Namespace
from lockstep.transactions.ddl import spelled, spelled_namespace
from lockstep.transactions.names import Names

AMBIGUOUS = "42702"


def answer_of(
    rows: Rows, restores: Iterable[TableRestore] = (), looks: Iterable[Name] = (), *, nothing: bool = False
) -> protocol.CallAnswer:
    """Return the answer to a call: rows, which logs Delta is left to restore, and which tables it is to look at.

    Args:
        nothing: whether the transaction that the call has of its own is left with nothing to commit.
    """
    return protocol.CallAnswer(
        rows=rows,
        compacts=[],
        restores=[
            protocol.Restore(table=[*restore.name.namespace, restore.name.table], version=restore.version)
            for restore in restores
        ],
        looks=[[*name.namespace, name.table] for name in looks],
        checkpoints=[],
        nothing=nothing,
        lists=None,
    )


def list_first(schema: str) -> protocol.CallAnswer:
    """Return the answer to a call that has to know first what is in a schema of Spark's session catalog."""
    return structs.replace(answer_of([]), lists=schema)


def version_said(given: Mapping[str, protocol.Value], *keys: str) -> int | datetime | str | None:
    """Return the version, the time or the tag that is said as one of these; None if none is.

    Raises:
        InvalidError: several are.
    """
    values = {key: value for key in keys if (value := given.get(key)) is not None}
    if len(values) > 1:
        raise InvalidError(f"{' and '.join(values)} are given: expected one of them")
    for key, value in values.items():
        assert isinstance(value, int | str)
        return time_of(value) if key.endswith("timestamp") and isinstance(value, int) else value
    return None


def texts_in(value: protocol.Value) -> list[str]:
    """Return the texts of a list; none, if nothing was given.

    Raises:
        InvalidError: one is NULL.
    """
    texts = value if isinstance(value, list) else []
    if None in texts:
        raise InvalidError("one of the names is NULL")
    return [text for text in texts if text is not None]


def written_parts(text: str) -> list[str]:
    """Return all parts of a name as SQL writes it.

    Raises:
        InvalidError: it is no name.
    """
    if not _NAME.fullmatch(text.strip()):
        raise InvalidError(f"{text!r} is no name: write namespace.table, a part with other characters in backquotes")
    return [part[1:-1].replace("``", "`") if part.startswith("`") else part for part in _PART.findall(text.strip())]


def parts_of(request: protocol.CallProcedure, text: str, *scopes: Names | Database) -> list[str]:
    """Return the parts of a name as SQL writes it, without the catalog.

    Raises:
        InvalidError: it is no name; or its first part may be the catalog, and a namespace that is called alike (42702).
    """
    parts = written_parts(text)
    if len(parts) == 1 or parts[0] != request.catalog:
        return parts
    if len(parts) == 2 and any((request.catalog,) in scope.namespaces for scope in scopes):
        raise InvalidError(
            f"{text} may be {parts[1]} of the namespace {parts[0]} or of the catalog that is called alike: write "
            f"{parts[0]}.{parts[0]}.{parts[1]}, or {parts[0]}.default.{parts[1]}",
            sqlstate=AMBIGUOUS,
        )
    return parts[1:]


def name_in(request: protocol.CallProcedure, text: str, *scopes: Names | Database) -> Name:
    """Return the name of a table or a view as SQL writes it, see `parts_of`."""
    *namespace, table = parts_of(request, text, *scopes)
    return Name(namespace=tuple(namespace) or ("default",), table=table)


def stored_name_in(request: protocol.CallProcedure, text: str, scope: Names | Database) -> Name:
    """Return the name that a text says; where case does not count, as it is stored in what a session sees.

    Raises:
        InvalidError (42702): several names may be meant. See `parts_of`.
    """
    name = name_in(request, text, scope)
    return name if request.case_sensitive else spelled(name, scope)


def stored_namespace_in(request: protocol.CallProcedure, text: str, scope: Names | Database) -> Namespace:
    """Return the namespace that a text says; where case does not count, as it is stored in what a session sees.

    Raises:
        InvalidError (42702): several namespaces may be meant. See `parts_of`.
    """
    space = tuple(parts_of(request, text, scope))
    return space if request.case_sensitive else spelled_namespace(space, scope)


def micros(time: datetime | None) -> int | None:
    """Return a time as answers have it; None stays None."""
    return None if time is None else micros_of(time)


def known(rows: int) -> int | None:
    """Return a number of rows, None where nobody knows it."""
    return None if rows < 0 else rows


_PART = re.compile(r"`(?:[^`]|``)+`|[^.`]+")
_NAME = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern}))*")

WHEN = {"version": "bigint", "timestamp": "timestamp"}
"""The parameters by which a database version is said, as `version_said` reads them."""
