"""Types of columns that were widened (Protocol, "Type Widening"): which changes are known, and old files' values.

    byte -> short -> integer -> long
    byte, short, integer -> double; float -> double
    byte, short, integer -> decimal(10 + k1, k2); long -> decimal(20 + k1, k2); decimal(p, s) -> decimal(p + k1, s + k2)
    date -> timestamp_ntz

where k1 >= k2 >= 0. Files from before a change have the narrower type; what the log says of their values does, too.
A reader must know each change that a table's schema tells, or refuse the table. Spark applies changes, Python none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from lockstep.errors import UnsupportedError

FEATURES = ("typeWidening", "typeWidening-preview")

CHANGES = "delta.typeChanges"
"""The key in a field's metadata that tells which types it had."""

_WHOLE = ("byte", "short", "integer", "long")
_DIGITS = {"byte": 10, "short": 10, "integer": 10, "long": 20}
"""Of the decimals that such a column can become: those of the integers that Parquet stores it as."""
_OTHERS = frozenset({("float", "double"), ("date", "timestamp_ntz"), *((whole, "double") for whole in _WHOLE[:3])})
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")


def is_widening(given: Any, taken: Any) -> bool:
    """Tell whether a change from one type to another, by their names in a schema, is one that the protocol has."""
    if not isinstance(given, str) or not isinstance(taken, str):
        return False
    if given == taken:
        return True
    if given in _WHOLE and taken in _WHOLE:
        return _WHOLE.index(given) < _WHOLE.index(taken)
    if (given, taken) in _OTHERS:
        return True
    if (after := _DECIMAL.fullmatch(taken)) is None:
        return False
    precision, scale = int(after[1]), int(after[2])
    if given in _DIGITS:
        before = _DIGITS[given], 0
    elif match := _DECIMAL.fullmatch(given):
        before = int(match[1]), int(match[2])
    else:
        return False
    return precision - before[0] >= scale - before[1] >= 0


def unknown_changes(fields: Iterable[Mapping[str, Any]], within: str = "") -> Iterator[str]:
    """Yield what a schema tells of changes of types that are not known here: the column, and from what to what."""
    for field in fields:
        name = f"{within}{field['name']}"
        changes = (field.get("metadata") or {}).get(CHANGES, [])
        if not isinstance(changes, list) or not all(isinstance(change, Mapping) for change in changes):
            yield f"{name}: {changes!r:.100}"
            continue
        for change in changes:
            given, taken = change.get("fromType"), change.get("toType")
            if not is_widening(given, taken):
                yield f"{name}: {given} to {taken}"
        yield from _unknown_in(field["type"], f"{name}.")


def _unknown_in(type_: Any, within: str) -> Iterator[str]:
    if not isinstance(type_, Mapping):
        return
    yield from unknown_changes(type_.get("fields") or (), within)
    for part in ("elementType", "keyType", "valueType"):
        yield from _unknown_in(type_.get(part), within)


def widened(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return values of a file as the type that their column has.

    Raises:
        UnsupportedError: a day that is no time, for it lies further away than times reach.
        ArrowException: a value that the column cannot have had.
    """
    try:
        return values.cast(type_)
    except pa.ArrowInvalid as error:
        if not (pa.types.is_date(values.type) and pa.types.is_timestamp(type_)):
            raise
        raise UnsupportedError(
            f"a column was widened from a date to a time, and has a day in an older file that is no time: {error}. "
            "Read it in Spark"
        ) from error
