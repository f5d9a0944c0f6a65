"""Columns that have other names in files than in the table (Protocol, "Column Mapping"), by name.

A column, and each field within it, has a *physical* name, which stays when it is renamed: data files, partition values
and statistics go by that. It has a number, too, which stands in Parquet files as the field's id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import uuid4

import pyarrow as pa

from lockstep.tables.schema import DeltaType, arrow_type

MODE = "delta.columnMapping.mode"
LAST_ID = "delta.columnMapping.maxColumnId"
_ID = "delta.columnMapping.id"
_PHYSICAL = "delta.columnMapping.physicalName"

NewName = Callable[[], str]


def new_physical_name() -> str:
    """Return a name that no other column has, of the form of Delta's own."""
    return f"col-{uuid4()}"


def is_mapped_by(configuration: Mapping[str, str]) -> bool:
    """Tell whether the columns of a table with these properties have other names in its files."""
    return configuration.get(MODE, "none") != "none"


def physical_name(field: Mapping[str, Any], *, is_mapped: bool) -> str:
    """Return what a field of a Delta schema is called in files."""
    name = field["metadata"].get(_PHYSICAL) if is_mapped else None
    return str(name or field["name"])


def physical(rows: pa.Table, fields: Mapping[str, Mapping[str, Any]]) -> pa.Table:
    """Return rows of a mapped table as files have them.

    Args:
        rows: with the table's names, and its types.
        fields: by name, the columns as Delta's schema has them.
    """
    stored = [_field(fields[name]) for name in rows.column_names]
    columns = [
        pa.chunked_array([chunk.view(field.type) for chunk in column.chunks], type=field.type)
        for column, field in zip(rows.columns, stored, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(stored))


def _field(field: Mapping[str, Any]) -> pa.Field:
    number = field["metadata"].get(_ID)
    metadata = None if number is None else {b"PARQUET:field_id": str(number).encode()}
    name = physical_name(field, is_mapped=True)
    return pa.field(name, _type(field["type"]), nullable=field["nullable"], metadata=metadata)


def _type(type_: DeltaType) -> pa.DataType:
    if isinstance(type_, str):
        return arrow_type(type_)
    if type_["type"] == "struct":
        return pa.struct([_field(field) for field in type_["fields"]])
    if type_["type"] == "array":
        return pa.list_(pa.field("element", _type(type_["elementType"]), nullable=type_["containsNull"]))
    value = pa.field("value", _type(type_["valueType"]), nullable=type_["valueContainsNull"])
    return pa.map_(_type(type_["keyType"]), value)


def numbered(fields: list[dict[str, Any]], numbers: Iterator[int], new_name: NewName) -> list[dict[str, Any]]:
    """Return new fields of a Delta schema, and all within them, each with its number and its name in files."""
    made = []
    for field in fields:
        mapping = {_ID: next(numbers), _PHYSICAL: new_name()}
        inner = _numbered_type(field["type"], numbers, new_name)
        made.append({**field, "type": inner, "metadata": {**field["metadata"], **mapping}})
    return made


def _numbered_type(type_: DeltaType, numbers: Iterator[int], new_name: NewName) -> DeltaType:
    if isinstance(type_, str):
        return type_
    if type_["type"] == "struct":
        return {**type_, "fields": numbered(type_["fields"], numbers, new_name)}
    inner = {"array": ("elementType",), "map": ("keyType", "valueType")}[type_["type"]]
    return {**type_, **{key: _numbered_type(type_[key], numbers, new_name) for key in inner}}
