"""Partition values (Protocol, "Partition Value Serialization"), and the folders that files lie in by them.

The log alone says what a file's partition values are; folders are for people, and for whoever lists them. So they may
say it in letters that every store takes: all but letters, digits and `_.-` stands there as `%` and the byte's hex
digits, once in the folder's name, and once more in the log, whose paths are URLs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from lockstep.errors import InvalidError, UnsupportedError
from lockstep.tables.conform import NULL_IN_NOT_NULL

MAX_PARTITIONS = 10_000
"""So many partitions one statement writes at most: each is a file."""

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
MAX_FOLDER_CHARACTERS = 200
"""File systems take 255 bytes a part; what is longer is cut, and told apart by a digest."""


def serialized(value: Any) -> str | None:
    """Return a partition value as the log says it; an empty text is null there, for it reads as null."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
        return text if value.tzinfo is None else f"{text.replace(' ', 'T')}Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    return str(value)


def _value(scalar: pa.Scalar) -> str | None:
    try:
        return serialized(scalar.as_py())
    except (ValueError, OverflowError) as error:
        raise InvalidError(f"a partition value is outside of the years 1 to 9999: {error}") from error


def array_of(text: str | None, type_: pa.DataType, rows: int) -> pa.Array:
    """Return a column of one partition value.

    Raises:
        UnsupportedError: a value that is not understood.
    """
    if text is None or text == "":
        return pa.nulls(rows, type_)
    try:
        value = _parsed(text, type_)
        return pa.repeat(pa.scalar(value, type_), rows)
    except (pa.ArrowException, ValueError, KeyError, ArithmeticError) as error:
        raise UnsupportedError(f"the partition value {text[:100]!r} is not understood as {type_}: {error}") from error


_BOOLEANS = {"true": True, "false": False}


def _parsed(text: str, type_: pa.DataType) -> Any:
    if pa.types.is_string(type_):
        return text
    if pa.types.is_boolean(type_):
        return _BOOLEANS[text.lower()]
    if pa.types.is_integer(type_):
        return int(text)
    if pa.types.is_decimal(type_):
        return Decimal(text)
    if pa.types.is_floating(type_):
        return float(text)
    if pa.types.is_date(type_):
        return date.fromisoformat(text)
    if pa.types.is_timestamp(type_):
        moment = datetime.fromisoformat(text)
        if (moment.tzinfo is None) != (type_.tz is None):
            raise ValueError("in the time zone of its writer, which nobody knows")
        return moment
    raise ValueError("no such partitions here")


def folder(values: Mapping[str, str | None]) -> str:
    """Return the folder of a partition, relative to the table's, with a slash at its end; nothing without any."""
    return "".join(f"{_part(name, value)}/" for name, value in values.items())


def _part(name: str, value: str | None) -> str:
    part = f"{_safe(name)}={NULL_FOLDER if value is None else _safe(value)}"
    if len(part) <= MAX_FOLDER_CHARACTERS:
        return part
    return f"{part[:MAX_FOLDER_CHARACTERS]}-{hashlib.sha256(part.encode()).hexdigest()[:16]}"


def _safe(text: str) -> str:
    return quote(text, safe="").replace("~", "%7E")


def logged(path: str) -> str:
    """Return a path as the log says it: URL-encoded."""
    return quote(path, safe="/=")


def as_stored(table: pa.Table, partitioned_by: tuple[str, ...]) -> pa.Table:
    """Return rows with null for an empty text in a column that the table is partitioned by: so it reads, once stored.

    Raises:
        InvalidError (23502): there is one, and the column is NOT NULL.
    """
    for name in partitioned_by:
        at = table.column_names.index(name)
        field, column = table.schema.field(at), table.column(at)
        if not pa.types.is_string(field.type) or not pc.any(pc.equal(column, "")).as_py():
            continue
        if not field.nullable:
            raise InvalidError(
                f"column {name} is NOT NULL, and an empty text in it is null, for the table is partitioned by it",
                sqlstate=NULL_IN_NOT_NULL,
            )
        table = table.set_column(at, field, pc.if_else(pc.equal(column, ""), pa.scalar(None, field.type), column))
    return table


def parted(table: pa.Table, partitioned_by: tuple[str, ...]) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """Yield rows partition by partition, each with its values as the log says them, without those columns.

    Raises:
        InvalidError: more than `MAX_PARTITIONS`.
    """
    if not partitioned_by:
        yield {}, table
        return
    if not table.num_rows:
        return
    numbers = pa.chunked_array([pa.array(range(table.num_rows), pa.int64())])
    keys = as_stored(table.select(list(partitioned_by)), partitioned_by)
    named = [f"key{i}" for i in range(len(partitioned_by))]
    grouped = (
        keys.rename_columns(named)
        .append_column("row", numbers)
        .group_by(named, use_threads=False)
        .aggregate([("row", "list")])
    )
    if grouped.num_rows > MAX_PARTITIONS:
        raise InvalidError(
            f"these rows are of {grouped.num_rows} partitions, and one statement writes {MAX_PARTITIONS} at most: "
            "write them in several, or partition by less"
        )
    rest = table.drop_columns(list(partitioned_by))
    for group in range(grouped.num_rows):
        values = [_value(grouped.column(name)[group]) for name in named]
        rows = grouped.column("row_list")[group].values
        yield dict(zip(partitioned_by, values, strict=True)), rest.take(rows)
