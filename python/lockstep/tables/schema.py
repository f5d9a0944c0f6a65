"""Delta's types (Protocol, "Schema Serialization Format") as Arrow's and DuckDB's, and Arrow's as Delta's.

    Delta                       Arrow                     DuckDB
    byte short integer long     int8 int16 int32 int64    TINYINT SMALLINT INTEGER BIGINT
    float double decimal(p,s)   float double decimal128   FLOAT DOUBLE DECIMAL(p,s)
    string binary boolean date  string binary bool date32 VARCHAR BLOB BOOLEAN DATE
    timestamp                   timestamp(us, UTC)        TIMESTAMPTZ
    timestamp_ntz               timestamp(us)             TIMESTAMP
    struct array map            struct list map           STRUCT [] MAP

All else (variant, intervals, unsigned integers, times of day, …) is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from lockstep.errors import InvalidError, UnsupportedError

DeltaType: TypeAlias = str | dict[str, Any]
"""A type as a schema's JSON has it: a name, or an object for struct, array and map."""

_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")
_NOT_IN_NAMES = re.compile(r"[ ,;{}()\n\t=]")
"""What Delta refuses in names of columns, unless they are mapped: Parquet's writers of old could not have it."""

MAX_DEPTH = 32
"""Of types in types."""

_ARROW: dict[str, Any] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DELTA = {type_: name for name, type_ in _ARROW.items()}
_DUCKDB = {
    "string": "VARCHAR",
    "long": "BIGINT",
    "integer": "INTEGER",
    "short": "SMALLINT",
    "byte": "TINYINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMPTZ",
    "timestamp_ntz": "TIMESTAMP",
}


def arrow_type(type_: DeltaType, column: str = "a column") -> pa.DataType:
    """Return the Arrow type of a Delta type.

    Args:
        column: what to call it in an error.

    Raises:
        UnsupportedError: a type that has none here.
    """
    if isinstance(type_, str):
        if type_ in _ARROW:
            return _ARROW[type_]
        if match := _DECIMAL.fullmatch(type_):
            return pa.decimal128(int(match[1]), int(match[2]))
    elif type_.get("type") == "struct":
        return pa.struct([arrow_field(field, f"{column}.{field['name']}") for field in type_["fields"]])
    elif type_.get("type") == "array":
        element = arrow_type(type_["elementType"], f"{column}.element")
        return pa.list_(pa.field("element", element, nullable=type_["containsNull"]))
    elif type_.get("type") == "map":
        key, value = arrow_type(type_["keyType"], f"{column}.key"), arrow_type(type_["valueType"], f"{column}.value")
        return pa.map_(key, pa.field("value", value, nullable=type_["valueContainsNull"]))
    raise UnsupportedError(f"column {column} has the type {str(type_)[:100]}, which only Spark can read and write here")


def arrow_field(field: dict[str, Any], column: str) -> pa.Field:
    """Return a field of a Delta schema as Arrow's."""
    return pa.field(field["name"], arrow_type(field["type"], column), nullable=field["nullable"])


def duckdb_type(type_: DeltaType) -> str:
    """Return the DuckDB type of a Delta type that `arrow_type` knows."""
    if isinstance(type_, str):
        return _DUCKDB.get(type_) or type_.upper()
    if type_["type"] == "struct":
        fields = (f"{quoted(field['name'])} {duckdb_type(field['type'])}" for field in type_["fields"])
        return f"STRUCT({', '.join(fields)})"
    if type_["type"] == "array":
        return f"{duckdb_type(type_['elementType'])}[]"
    return f"MAP({duckdb_type(type_['keyType'])}, {duckdb_type(type_['valueType'])})"


def quoted(name: str) -> str:
    """Return a name as DuckDB takes it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


# --- of new tables ----------------------------------------------------------------------------------------------------


def delta_struct(schema: pa.Schema) -> dict[str, Any]:
    """Return an Arrow schema as Delta's, as its JSON has it.

    Raises:
        InvalidError: no columns, a name that a Delta table cannot have, or two that differ in case alone.
        UnsupportedError: a type that Delta has not.
    """
    if not len(schema):
        raise InvalidError("a table has at least one column, and this schema has none")
    return _struct(list(schema), "", 0)


def _struct(fields: list[pa.Field], within: str, depth: int) -> dict[str, Any]:
    if depth > MAX_DEPTH:
        raise InvalidError(f"column {within[:100]} has types more than {MAX_DEPTH} deep in one another")
    seen: dict[str, str] = {}
    for field in fields:
        if not field.name or _NOT_IN_NAMES.search(field.name):
            raise InvalidError(
                f"{field.name!r} cannot be the name of a column: none of ' ,;{{}}()=', a tab or a line's end may be "
                "in it, and it may not be empty"
            )
        if (other := seen.get(field.name.lower())) is not None:
            raise InvalidError(f"the columns {other!r} and {field.name!r} would have one name to Delta")
        seen[field.name.lower()] = field.name
    return {
        "type": "struct",
        "fields": [
            {
                "name": field.name,
                "type": _delta_type(field.type, f"{within}.{field.name}" if within else field.name, depth + 1),
                "nullable": field.nullable,
                "metadata": {},
            }
            for field in fields
        ],
    }


def _delta_type(type_: pa.DataType, column: str, depth: int) -> DeltaType:
    type_ = plain(type_)
    if type_ in _DELTA:
        return _DELTA[type_]
    if pa.types.is_timestamp(type_):
        return "timestamp_ntz" if type_.tz is None else "timestamp"
    if pa.types.is_decimal128(type_) and 0 <= type_.scale <= type_.precision:
        return f"decimal({type_.precision},{type_.scale})"
    if pa.types.is_struct(type_) and type_.num_fields:
        return _struct([type_.field(i) for i in range(type_.num_fields)], column, depth)
    if pa.types.is_list(type_):
        field = type_.value_field
        element = _delta_type(field.type, f"{column}.element", depth + 1)
        return {"type": "array", "elementType": element, "containsNull": field.nullable}
    if pa.types.is_map(type_):
        return {
            "type": "map",
            "keyType": _delta_type(type_.key_type, f"{column}.key", depth + 1),
            "valueType": _delta_type(type_.item_type, f"{column}.value", depth + 1),
            "valueContainsNull": type_.item_field.nullable,
        }
    advice = "; give it a signed type" if pa.types.is_unsigned_integer(type_) else ""
    raise UnsupportedError(f"column {column} has the Arrow type {type_}, which Delta tables do not have{advice}")


def not_null_fields(fields: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, bool]]:
    """Yield the path of each field of a Delta schema that is NOT NULL, and whether it is within an array or a map."""
    for field in fields:
        if not field["nullable"]:
            yield field["name"], False
        for path, is_within in _not_null_in(field["type"]):
            yield f"{field['name']}.{path}", is_within


def _not_null_in(type_: DeltaType) -> Iterator[tuple[str, bool]]:
    if isinstance(type_, str):
        return
    if type_["type"] == "struct":
        yield from not_null_fields(type_["fields"])
    for part, name in (("elementType", "element"), ("keyType", "key"), ("valueType", "value")):
        if part in type_:
            yield from ((f"{name}.{path}", True) for path, _ in _not_null_in(type_[part]))


def plain(type_: pa.DataType) -> pa.DataType:
    """Return the type that says the same without a way of its own to lay out values."""
    if pa.types.is_dictionary(type_):
        return plain(type_.value_type)
    if pa.types.is_large_string(type_) or type_ == pa.string_view():
        return pa.string()
    if pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_) or type_ == pa.binary_view():
        return pa.binary()
    if pa.types.is_date64(type_):
        return pa.date32()
    if pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return pa.list_(type_.value_field)
    return type_
