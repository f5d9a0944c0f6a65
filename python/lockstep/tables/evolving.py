"""What a table becomes when its columns, properties or constraints change: from a layout to the next one.

after = with_columns(before, pa.schema([("note", pa.string())]))
actions = difference(before, after)                 # [protocol, if it changes,] metaData
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import count
from typing import Any

import msgspec
import pyarrow as pa

from lockstep.delta.actions import Action
from lockstep.errors import CorruptTimelineError, DuplicateError, InvalidError, UndefinedError, UnsupportedError
from lockstep.tables.conform import NO_COLUMN
from lockstep.tables.identity import is_identity
from lockstep.tables.layout import (
    APPEND_ONLY,
    CONSTRAINT,
    INDEXED_BY_NAME,
    VECTORS,
    Layout,
    is_on,
    layout_of,
    with_features,
)
from lockstep.tables.mapping import LAST_ID, MODE, NewName, new_physical_name, numbered, physical_name
from lockstep.tables.properties import check_retention, check_set, check_unset, spelled, spelling
from lockstep.tables.schema import delta_struct, not_null_fields
from lockstep.tables.spark_sql import condition_in_duckdb

DUPLICATE_COLUMN = "42701"
"""PostgreSQL's duplicate_column."""

NO_OBJECT, DUPLICATE_OBJECT = "42704", "42710"
"""PostgreSQL's undefined_object and duplicate_object, of constraints."""


def difference(before: Layout, after: Layout) -> list[Action]:
    """Return the actions that make one layout of another; none where nothing changes."""
    if before == after:
        return []
    protocol: list[Action] = [{"protocol": dict(after.protocol)}] if before.protocol != after.protocol else []
    return [*protocol, {"metaData": dict(after.metadata)}]


def with_columns(layout: Layout, columns: pa.Schema, new_name: NewName = new_physical_name) -> Layout:
    """Return a layout with columns at its end; rows that are there are null in them.

    Args:
        new_name: what a column is called in files, where that is not what the table calls it.

    Raises:
        InvalidError: a column that the table has (42701), is NOT NULL or has a field that is, or cannot be one.
        UnsupportedError: a type that Delta has not.
    """
    added = delta_struct(columns)["fields"]
    names = {name.lower() for name in layout.types}
    for field in added:
        if field["name"].lower() in names:
            raise InvalidError(f"table {layout.name} has a column {field['name']}", sqlstate=DUPLICATE_COLUMN)
    if (path := next((path for path, _ in not_null_fields(added)), None)) is not None:
        raise InvalidError(
            f"column {path} cannot be NOT NULL: the rows that are in table {layout.name} have none there. Give its "
            "type nullable fields alone"
        )
    features = {"timestampNtz"} if '"timestamp_ntz"' in msgspec.json.encode(added).decode() else set()
    configuration = dict(layout.configuration)
    if layout.is_mapped:
        numbers = count(_last_id(layout) + 1)
        added = numbered(added, numbers, new_name)
        configuration[LAST_ID] = str(next(numbers) - 1)
    return _changed(layout, fields=[*layout.fields, *added], configuration=configuration, features=features)


def _last_id(layout: Layout) -> int:
    try:
        return int(layout.configuration[LAST_ID])
    except (KeyError, ValueError) as error:
        raise CorruptTimelineError(f"table {layout.name} has mapped columns, and no number in {LAST_ID}") from error


def with_name(layout: Layout, column: str, new_name: str) -> Layout:
    """Return a layout in which a column has another name; its files stay as they are.

    Raises:
        InvalidError: no such column (42703), a name that is taken (42701) or cannot be one.
        UnsupportedError: columns are not mapped; something of the table speaks of the column.
    """
    _check_free(layout, column, "renamed")
    delta_struct(pa.schema([(new_name, pa.int64())]))  # may it be a name?
    if new_name.lower() in {name.lower() for name in layout.types if name != column}:
        raise InvalidError(f"table {layout.name} has a column {new_name}", sqlstate=DUPLICATE_COLUMN)
    fields = [{**field, "name": new_name} if field["name"] == column else field for field in layout.fields]
    partitions = [new_name if name == column else name for name in layout.partitioned_by]
    return _changed(layout, fields=fields, partitions=partitions)


def without_columns(layout: Layout, columns: Collection[str]) -> Layout:
    """Return a layout without columns; what files have of them is not read any more.

    Raises:
        InvalidError: no such column (42703), all of them, or one that the table is partitioned or clustered by.
        UnsupportedError: see `with_name`.
    """
    for column in columns:
        _check_free(layout, column, "dropped")
        if column in layout.partitioned_by:
            raise InvalidError(f"table {layout.name} is partitioned by {column}, which cannot be dropped")
        [stored] = [physical_name(f, is_mapped=layout.is_mapped) for f in layout.fields if f["name"] == column]
        if any(path[0] == stored for path in layout.clustered_by):
            raise InvalidError(f"table {layout.name} is clustered by {column}, which cannot be dropped")
    fields = [field for field in layout.fields if field["name"] not in columns]
    if not {field["name"] for field in fields} - set(layout.partitioned_by):
        raise InvalidError(f"no column of table {layout.name} that lies in files would be left")
    return _changed(layout, fields=fields)


def _check_free(layout: Layout, column: str, verb: str) -> None:
    """Raise unless a column can have another name, or none, and nothing of the table speaks of it."""
    if column not in layout.types:
        raise InvalidError(f"table {layout.name} has no column {column!r}", sqlstate=NO_COLUMN)
    if not layout.is_mapped:
        raise UnsupportedError(
            f"column {column} cannot be {verb}: the files of table {layout.name} have its columns by their names. A "
            f"table with {MODE} = name has not; Spark sets that (ALTER TABLE … SET TBLPROPERTIES)"
        )
    if any(is_identity(field) for field in layout.fields if field["name"] == column):
        raise UnsupportedError(f"identity column {column} cannot be {verb} without Spark")
    if layout.generated:
        raise UnsupportedError(
            f"column {column} cannot be {verb}: table {layout.name} has generated columns, which may speak of it"
        )
    said = [*layout.constraints.values(), *(v for k, v in layout.configuration.items() if k == INDEXED_BY_NAME)]
    if any(column.lower() in text.lower() for text in said):
        raise UnsupportedError(f"column {column} cannot be {verb}: a constraint, or {INDEXED_BY_NAME}, speaks of it")


def with_properties(layout: Layout, properties: Mapping[str, str], gone: Iterable[str] = ()) -> Layout:
    """Return a layout with properties set, and others unset; to unset one that is not there is no error.

    Raises:
        UnsupportedError: one of Delta's own that may not be changed here.
        InvalidError: a key or a value that is none, see `lockstep.tables.properties`.
    """
    properties, gone = spelled(properties), list(gone)
    check_set(properties, layout.name, is_new=False)
    check_unset(gone, layout.name)
    gone = [spelling(key) for key in gone]
    kept = {key: value for key, value in layout.configuration.items() if key not in gone}
    configuration = {**kept, **properties}
    check_retention(configuration, [*properties, *gone], layout.name)
    features = {
        name for key, name in ((VECTORS, "deletionVectors"), (APPEND_ONLY, "appendOnly")) if is_on(configuration, key)
    }
    return _changed(layout, configuration=configuration, features=features)


def with_description(layout: Layout, text: str | None) -> Layout:
    """Return a layout with a comment on the table; None for none."""
    body = {key: value for key, value in layout.metadata.items() if key != "description"}
    said = body if text is None else {**body, "description": text}
    return layout_of(layout.name, layout.protocol, said, layout.domains)


def with_comment(layout: Layout, column: str, text: str | None) -> Layout:
    """Return a layout with a comment on a column; None for none.

    Raises:
        InvalidError (42703): it has no such column.
    """
    if column not in layout.types:
        raise InvalidError(f"table {layout.name} has no column {column!r}", sqlstate=NO_COLUMN)
    [commented] = [field for field in layout.fields if field["name"] == column]
    said = {key: value for key, value in commented["metadata"].items() if key != "comment"}
    after = {**commented, "metadata": said if text is None else {**said, "comment": text}}
    return _changed(layout, fields=[after if field is commented else field for field in layout.fields])


def with_marks(layout: Layout, marks: Mapping[str, Mapping[str, int]]) -> Layout:
    """Return a layout in which the metadata of columns says more: `lockstep.tables.identity` gave them values."""
    if not marks:
        return layout
    fields = [{**field, "metadata": {**field["metadata"], **marks.get(field["name"], {})}} for field in layout.fields]
    return _changed(layout, fields=fields)


def with_constraint(layout: Layout, name: str, condition: str) -> Layout:
    """Return a layout with a CHECK constraint, a condition of Spark's SQL.

    Raises:
        InvalidError: no name; DuplicateError (42710): it has one of that name.
        UnsupportedError: a condition that DuckDB may not take as Spark does.
    """
    key = f"{CONSTRAINT}{name.lower()}"
    if not name.isidentifier():
        raise InvalidError(f"{name!r:.100} cannot be the name of a constraint: use letters, digits and _")
    if key in layout.configuration:
        raise DuplicateError(f"table {layout.name} has a constraint {name}", sqlstate=DUPLICATE_OBJECT)
    if condition_in_duckdb(condition, layout.types) is None:
        raise UnsupportedError(
            f"the constraint {name} ({condition!s:.200}) is none of those that Spark and DuckDB certainly judge alike: "
            "comparisons of columns and literals of one kind, AND, OR, NOT, IN, BETWEEN, IS NULL. Add it in Spark"
        )
    return _changed(layout, configuration={**layout.configuration, key: condition}, features={"checkConstraints"})


def without_constraint(layout: Layout, name: str) -> Layout:
    """Return a layout without a CHECK constraint.

    Raises:
        UndefinedError (42704): it has none of that name.
    """
    key = f"{CONSTRAINT}{name.lower()}"
    if key not in layout.configuration:
        raise UndefinedError(f"table {layout.name} has no constraint {name}", sqlstate=NO_OBJECT)
    return _changed(layout, configuration={k: v for k, v in layout.configuration.items() if k != key})


def _changed(
    layout: Layout,
    *,
    fields: Iterable[Mapping[str, Any]] | None = None,
    configuration: Mapping[str, str] | None = None,
    partitions: Iterable[str] | None = None,
    features: Collection[str] = (),
) -> Layout:
    body = dict(layout.metadata)
    if fields is not None:
        body["schemaString"] = msgspec.json.encode({"type": "struct", "fields": list(fields)}).decode()
    if configuration is not None:
        body["configuration"] = dict(configuration)
    if partitions is not None:
        body["partitionColumns"] = list(partitions)
    return layout_of(layout.name, with_features(layout.protocol, features), body, layout.domains)
