"""What a log says of a data file's rows: their number, and of each column the least and greatest value, and the nulls.

Readers leave files out by this (Protocol, "Per-file Statistics"), so a bound that is too tight loses rows, without a
word. Every doubt widens a bound here, or leaves it out, which is always right:

    float, double            no bounds where any value is NaN or infinite, which JSON has not
    string                   at most 32 characters; a maximum that is cut ends in the greatest character there is
    timestamp                to the millisecond, the minimum down and the maximum up
    date, timestamp          no bounds outside of the years 1 to 9999
    boolean, binary          the nulls alone, as Delta has it
    array, map               nothing
    struct                   of each of its fields
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

STRING_CHARACTERS = 32
"""Delta's own: how much of a text a bound keeps."""

GREATEST_CHARACTER = "\U0010ffff"
_MILLISECOND = timedelta(milliseconds=1)

_encode = msgspec.json.Encoder(decimal_format="number").encode


Bounds: TypeAlias = tuple[pa.Scalar, pa.Scalar]
"""The least and the greatest value of a column."""

NONE_KNOWN: Mapping[str, Bounds] = MappingProxyType({})


def statistics(table: pa.Table, *, columns: int, known: Mapping[str, Bounds] = NONE_KNOWN) -> str:
    """Return the statistics of a file with these rows, as the `stats` of its `add`.

    Args:
        table: the file's rows, without columns that are partition values.
        columns: how many columns to look at, fields of structs counted one by one; -1 for all.
        known: of columns, between which values they lie: see `bounds_in`. Of others that is computed.
    """
    collected = _Collected(columns if columns >= 0 else math.inf, known)
    for name, column in zip(table.column_names, table.columns, strict=True):
        collected.add(name, column, collected.lowest, collected.highest, collected.nulls)
    stats: dict[str, Any] = {"numRecords": table.num_rows}
    bounds = {"minValues": collected.lowest, "maxValues": collected.highest, "nullCount": collected.nulls}
    return str(_encode(stats | {key: values for key, values in bounds.items() if values}), "utf-8")


class _Collected:
    """The three objects of the statistics, as far as columns were looked at."""

    def __init__(self, room: float, known: Mapping[str, Bounds]) -> None:
        self.room = room
        self.known = known
        self.lowest: dict[str, Any] = {}
        self.highest: dict[str, Any] = {}
        self.nulls: dict[str, Any] = {}

    def add(
        self, name: str, column: pa.ChunkedArray, lowest: dict[str, Any], highest: dict[str, Any], nulls: dict[str, Any]
    ) -> None:
        """Look at a column, and write down what is found under its name."""
        if self.room <= 0:
            return
        if pa.types.is_struct(column.type):
            self._add_struct(name, column, lowest, highest, nulls)
            return
        self.room -= 1
        if pa.types.is_list(column.type) or pa.types.is_map(column.type):
            return
        nulls[name] = column.null_count
        known = self.known.get(name) if lowest is self.lowest else None  # of a field of a struct nothing is known
        if (found := _bounds(column, known)) is not None:
            low, high = found
            if low is not None:
                lowest[name] = low
            if high is not None:
                highest[name] = high

    def _add_struct(
        self, name: str, column: pa.ChunkedArray, lowest: dict[str, Any], highest: dict[str, Any], nulls: dict[str, Any]
    ) -> None:
        fields = [column.type.field(i) for i in range(column.type.num_fields)]
        # A field of a struct that is null is null: `flatten` says so, `field` would not.
        children = list(zip(*(chunk.flatten() for chunk in column.chunks), strict=True)) or [()] * len(fields)
        within: tuple[dict[str, Any], ...] = ({}, {}, {})
        for field, chunks in zip(fields, children, strict=True):
            self.add(field.name, pa.chunked_array(list(chunks), type=field.type), *within)
        for found, values in zip(within, (lowest, highest, nulls), strict=True):
            if found:
                values[name] = found


def _bounds(column: pa.ChunkedArray, known: Bounds | None) -> tuple[Any, Any] | None:
    """Return what a column's values lie between, as JSON has it; None, or None for one, if that is not to be said."""
    if (pair := _PAIRS.get(_kind(column.type))) is None or column.null_count == len(column):
        return None
    if known is None:
        if has_nan(column):
            return None
        ends = pc.min_max(column)
        known = ends["min"], ends["max"]
    try:
        low, high = (end.as_py() for end in known)
    except (ValueError, OverflowError):  # a day, or a time, that Python has not
        return None
    return pair(low, high)


def has_nan(column: pa.ChunkedArray) -> bool:
    """Tell whether any number of a column is none."""
    return pa.types.is_floating(column.type) and bool(pc.any(pc.is_nan(column)).as_py())


def bounds_in(file: pq.FileMetaData, schema: pa.Schema, names: Collection[str]) -> dict[str, Bounds]:
    """Return between which values columns lie by what their Parquet file says, which has looked at all of them.

    Args:
        file: what it says of itself.
        schema: of the rows that it was written from.
        names: columns of which that is right: of numbers, only where none of them is NaN.
    """
    found: dict[str, Bounds] = {}
    leaf = 0
    groups = [file.row_group(number) for number in range(file.num_row_groups)]
    for field in schema:
        storage = _STORED.get(_kind(field.type))
        if storage is not None and field.name in names:
            said = [group.column(leaf).statistics for group in groups]
            if said and all(each is not None and each.has_min_max for each in said):
                take = partial(_of_storage, storage(field.type), field.type)
                found[field.name] = take(min(each.min_raw for each in said)), take(max(each.max_raw for each in said))
        leaf += _leaves(field.type)
    return found


def _of_storage(storage: pa.DataType, type_: pa.DataType, value: Any) -> pa.Scalar:
    return pa.scalar(value, storage).cast(type_)


def _leaves(type_: pa.DataType) -> int:
    """Return how many columns of Parquet a type is."""
    if pa.types.is_struct(type_):
        return sum(_leaves(type_.field(i).type) for i in range(type_.num_fields))
    if pa.types.is_list(type_):
        return _leaves(type_.value_type)
    return _leaves(type_.key_type) + _leaves(type_.item_type) if pa.types.is_map(type_) else 1


_STORED: dict[str, Callable[[pa.DataType], pa.DataType]] = {
    "integer": lambda type_: type_,
    "float": lambda type_: type_,
    "string": lambda _: pa.binary(),
    "date": lambda _: pa.int32(),
    "timestamp": lambda _: pa.int64(),
}
"""By kind of type, as what Parquet says its bounds; those of decimals it says in bytes, and they are computed."""


def _kind(type_: pa.DataType) -> str:
    types = pa.types
    for kind, is_of in (
        ("integer", types.is_integer),
        ("float", types.is_floating),
        ("decimal", types.is_decimal),
        ("string", types.is_string),
        ("date", types.is_date),
        ("timestamp", types.is_timestamp),
    ):
        if is_of(type_):
            return kind
    return ""


def _same(low: Any, high: Any) -> tuple[Any, Any] | None:
    return low, high


def _floats(low: float, high: float) -> tuple[float, float] | None:
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def _decimals(low: Decimal, high: Decimal) -> tuple[msgspec.Raw, msgspec.Raw]:
    # Digits and a point: an exponent, which str() has for small ones, not every reader of JSON takes for a decimal.
    return msgspec.Raw(format(low, "f").encode()), msgspec.Raw(format(high, "f").encode())


def _strings(low: str, high: str) -> tuple[str, str | None]:
    return low[:STRING_CHARACTERS], _upper(high)


def _upper(text: str) -> str | None:
    """Return a short text that is no less than a long one, by their bytes in UTF-8; None if there is none."""
    if len(text) <= STRING_CHARACTERS:
        return text
    if text[STRING_CHARACTERS] == GREATEST_CHARACTER:  # what follows it may be greater than nothing at all
        return None
    return text[:STRING_CHARACTERS] + GREATEST_CHARACTER


def _dates(low: date, high: date) -> tuple[str, str]:
    return low.isoformat(), high.isoformat()


def _timestamps(low: datetime, high: datetime) -> tuple[str, str] | None:
    try:
        return _milliseconds(low), _milliseconds(high + _MILLISECOND if high.microsecond % 1000 else high)
    except OverflowError:
        return None


def _milliseconds(moment: datetime) -> str:
    text = moment.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return text if moment.tzinfo is None else f"{text}Z"


_PAIRS: dict[str, Callable[[Any, Any], tuple[Any, Any] | None]] = {
    "integer": _same,
    "float": _floats,
    "decimal": _decimals,
    "string": _strings,
    "date": _dates,
    "timestamp": _timestamps,
}
"""By kind of type, how its bounds are written; of kinds that are not here there are none."""
