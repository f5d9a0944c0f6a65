"""Delta's actions as values: the lines of a commit, and what is said of one file or domain.

An action is a dictionary of one key, as it stands on a line of `_delta_log/<version>.json` (Protocol, "Actions").
Actions are never changed in place here: whoever changes one makes a new dictionary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from lockstep.errors import InvalidError
from lockstep.timeline.files import UNREADABLE

Action: TypeAlias = dict[str, Any]
LogicalFile: TypeAlias = tuple[str, str | None]
"""The primary key of a file in a table: its path, and the unique id of its deletion vector if it has one."""

ROW_TRACKING = "delta.rowTracking"
"""The metadata domain that holds the highest row id given out; every writer of a row-tracked table writes it."""

CLUSTERING = "delta.clustering"
"""The metadata domain that says which columns a table is clustered by."""

_KEYS = {"add": "path", "remove": "path", "cdc": "path", "txn": "appId", "domainMetadata": "domain"}
"""The field that says what an action is about; whoever compares commits goes by it."""

_decode = msgspec.json.Decoder(dict[str, Any | None]).decode


# --- lines ------------------------------------------------------------------------------------------------------------


def parse(text: bytes | str) -> list[Action]:
    """Read a commit's NDJSON: one action a line, empty lines allowed, null members dropped.

    Raises:
        InvalidError: a line is not a JSON object with exactly one action; the message gives the line's number from 1.
    """
    data = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    # Only \n separates: str.splitlines would also cut at U+2028, which may stand inside a JSON string.
    return [_parse_line(line, n) for n, line in enumerate(data.split(b"\n"), 1) if line.strip()]


def _parse_line(line: bytes, number: int) -> Action:
    try:
        members = _decode(line)
    except UNREADABLE as error:
        raise InvalidError(f"line {number} of the Delta commit is not a JSON object: {error}") from error
    action = {kind: body for kind, body in members.items() if body is not None}
    if len(action) != 1 or not isinstance(next(iter(action.values())), dict):
        raise InvalidError(f"line {number} of the Delta commit is not one action but has the keys {sorted(members)}")
    [(kind, body)] = action.items()
    if (key := _KEYS.get(kind)) is not None and not isinstance(body.get(key), str):
        raise InvalidError(f"line {number} of the Delta commit is an action {kind} whose {key} is no text")
    if not isinstance(body.get("stats") or "", str):
        raise InvalidError(f"line {number} of the Delta commit is an action {kind} whose stats are no text")
    return action


def render(actions: Iterable[Action]) -> bytes:
    """Write actions as NDJSON, each line ended by a newline; the inverse of `parse`."""
    return b"".join(msgspec.json.encode(action) + b"\n" for action in actions)


def split(action: Action) -> tuple[str, dict[str, Any]]:
    """Return an action's kind (`add`, `remove`, …) and its fields."""
    ((kind, body),) = action.items()
    return kind, body


def bodies(actions: Iterable[Action], kind: str) -> list[dict[str, Any]]:
    """Return the fields of all actions of one kind, in order."""
    return [action[kind] for action in actions if kind in action]


TRANSACTION_PARAMETER = "lockstepTransaction"
"""The operation parameter by which `DESCRIBE HISTORY` leads to the transaction, and so to its database version."""


def operation_on(table: object, commit: Iterable[Action]) -> str:
    """Return what a commit did to a table, for people: Delta's word for the operation, and the table's name."""
    names = [info.get("operation", "?") for info in bodies(commit, "commitInfo")]
    return f"{', '.join(names) or '?'} {table}"


def traced(actions: Iterable[Action], transaction_id: str) -> list[Action]:
    """Return a commit whose `commitInfo` names the transaction among the operation's parameters."""

    def with_parameter(info: dict[str, Any]) -> dict[str, Any]:
        parameters = {**(info.get("operationParameters") or {}), TRANSACTION_PARAMETER: transaction_id}
        return {**info, "operationParameters": parameters}

    return [{"commitInfo": with_parameter(a["commitInfo"])} if "commitInfo" in a else a for a in actions]


TABLES_PARAMETER = "lockstepTables"
"""The operation parameter that says which other tables a transaction wrote, for who reads one table's log alone."""

NAMED_TABLES = 20
"""So many of a transaction's tables each of its commits names; of more, it says how many there are."""


def participants(ids: Sequence[str]) -> str | None:
    """Return what commits of a transaction say of the tables that it wrote, as JSON; None for one table alone."""
    if len(ids) < 2:
        return None
    return msgspec.json.encode({"count": len(ids), "ids": list(ids[:NAMED_TABLES])}).decode()


def grouped(commit: Sequence[Action], told: str) -> list[Action]:
    """Return a commit, which begins with its `commitInfo`, that says what `participants` does."""
    info = commit[0]["commitInfo"]
    parameters = {**(info.get("operationParameters") or {}), TABLES_PARAMETER: told}
    return [{"commitInfo": {**info, "operationParameters": parameters}}, *commit[1:]]


def is_by(actions: Iterable[Action], transaction_id: str) -> bool:
    """Tell whether a commit is a transaction's of Lockstep: whether `traced` has named it there."""
    infos = bodies(actions, "commitInfo")
    return any((info.get("operationParameters") or {}).get(TRANSACTION_PARAMETER) == transaction_id for info in infos)


# --- files ------------------------------------------------------------------------------------------------------------


def logical_file(file: dict[str, Any]) -> LogicalFile:
    """Return the key of an add's or a remove's logical file (Protocol, "Add File and Remove File")."""
    return file["path"], deletion_vector_id(file.get("deletionVector"))


def deletion_vector_id(descriptor: dict[str, Any] | None) -> str | None:
    """Return a deletion vector's `uniqueId` (Protocol, "Derived Fields"), None without a vector."""
    if descriptor is None:
        return None
    file = f"{descriptor['storageType']}{descriptor['pathOrInlineDv']}"
    offset = descriptor.get("offset")
    return file if offset is None else f"{file}@{offset}"


def changes_rows(file: dict[str, Any]) -> bool:
    """Return an add's or a remove's `dataChange`; Delta reads an absent one as true."""
    return bool(file.get("dataChange", True))


def only_recommits(commit: Sequence[Action]) -> bool:
    """Return whether this commit's adds without data change are of files that the table already has.

    "When `false` the logical file must already be present in the table or the records in the added file must be
    contained in one or more `remove` actions in the same version" (Protocol, `add.dataChange`): with no such remove
    in the commit, only the first is left. Statistics and row-tracking backfills write such commits.
    """
    return all(changes_rows(remove) for remove in bodies(commit, "remove"))


def deleted_rows(file: dict[str, Any]) -> int:
    """Return how many rows of an add's or a remove's file its deletion vector takes away."""
    descriptor = file.get("deletionVector")
    return int(descriptor["cardinality"]) if descriptor else 0


class _Sized(msgspec.Struct):
    size: int = 0


class _Added(msgspec.Struct):
    add: _Sized | None = None
    cdc: _Sized | None = None


_decode_added = msgspec.json.Decoder(_Added).decode_lines


def size_of_added(text: str) -> int:
    """Return how many bytes the data and change files have that a commit, as NDJSON, adds; 0 if it is none."""
    try:
        lines = _decode_added(text)
    except (msgspec.MsgspecError, RecursionError):
        return 0
    return sum(file.size for line in lines for file in (line.add, line.cdc) if file is not None)


# --- domains ----------------------------------------------------------------------------------------------------------


class _RowTracking(msgspec.Struct):
    rowIdHighWaterMark: int


_decode_row_tracking = msgspec.json.Decoder(_RowTracking).decode


def row_id_mark(domain: dict[str, Any]) -> int:
    """Return the highest row id given out, from a `delta.rowTracking` domain (Protocol, "Row Tracking").

    Raises:
        InvalidError: its configuration is not what the protocol says.
    """
    try:
        return _decode_row_tracking(domain["configuration"]).rowIdHighWaterMark
    except (KeyError, TypeError, msgspec.DecodeError) as error:
        raise InvalidError(f"the domain {ROW_TRACKING} has no readable rowIdHighWaterMark: {error}") from error
