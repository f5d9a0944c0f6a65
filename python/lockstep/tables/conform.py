"""Rows as a table takes them: columns by name, values of the columns' types, none null where none may be.

A value is taken if the column's type says the same: integers and decimals of other widths that have room for it, a
float as a double, a time of another resolution that loses nothing. What would change a value (a text as a number, a
time without a zone as one with) is refused, so nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lockstep.arguments import NOT_IN_REPERTOIRE
from lockstep.errors import InvalidError
from lockstep.tables.schema import plain

NULL_IN_NOT_NULL = "23502"
"""PostgreSQL's not_null_violation."""

WRONG_TYPE = "42804"
"""PostgreSQL's datatype_mismatch."""

OUT_OF_RANGE = "22003"
"""PostgreSQL's numeric_value_out_of_range."""

NO_COLUMN = "42703"
"""PostgreSQL's undefined_column."""

NO_SUCH_TIME = "22008"
"""PostgreSQL's datetime_field_overflow."""

KEY_TWICE = "23505"
"""Spark's DUPLICATED_MAP_KEY; PostgreSQL's unique_violation."""

_FIRST_DAY, _LAST_DAY = ((day - date(1970, 1, 1)).days for day in (date.min, date.max))
_DIGITS_OF_INTEGERS = 20
"""What the greatest integer of Arrow's has, of 64 bits without a sign."""
_DAY_MICROS = 24 * 60 * 60 * 10**6


def arrow_table(data: Any) -> pa.Table:
    """Return what a caller gives as an Arrow table.

    Args:
        data: Arrow (a table, a batch, a reader), Polars, pandas (an index with a name is a column, one without is left
            out), whatever exports an Arrow stream, a dictionary of columns, or a list of dictionaries.

    Raises:
        InvalidError: none of these, or values that make no column, or are none of its type, as a `date64` with a time
            (42804); a text that is no UTF-8 (22021).
    """
    table = _as_arrow(data)
    try:
        table.validate(full=True)
    except pa.ArrowException as error:
        raise InvalidError(
            f"these rows have values that are none of their types: {error}",
            sqlstate=NOT_IN_REPERTOIRE if "UTF8" in str(error) else WRONG_TYPE,
        ) from error
    return table


def _as_arrow(data: Any) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    try:
        if isinstance(data, pa.RecordBatch):
            return pa.Table.from_batches([data])
        if isinstance(data, pa.RecordBatchReader):
            return data.read_all()
        if type(data).__module__.partition(".")[0] == "pandas":
            return _of_pandas(data)
        if hasattr(data, "__arrow_c_stream__"):
            return pa.table(data)
        if isinstance(data, Mapping):
            return pa.table(dict(data))
        if isinstance(data, list | tuple):
            return _of_dictionaries(data)
    except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
        raise InvalidError(f"these rows make no Arrow table: {error}", sqlstate=WRONG_TYPE) from error
    raise InvalidError(
        f"rows of type {type(data).__name__}: expected Arrow, Polars, pandas, a dictionary of columns or a list of "
        "dictionaries",
        sqlstate=WRONG_TYPE,
    )


def _of_pandas(frame: Any) -> pa.Table:
    """Return a frame with a column for each level of its index that has a name; pandas refuses a name that is taken."""
    named = [name for name in frame.index.names if name is not None]
    return pa.Table.from_pandas(frame.reset_index(level=named) if named else frame, preserve_index=False)


def _of_dictionaries(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows with the columns of all of them; one that a row does not have is null there."""
    names = list(dict.fromkeys(name for row in rows for name in row.keys()))  # noqa: SIM118 (a text is no row)
    if not names:
        return pa.Table.from_struct_array(pa.array([{} for _ in rows], pa.struct([])))
    return pa.Table.from_pydict({name: [row.get(name) for row in rows] for name in names})


def conform(table: pa.Table, schema: pa.Schema, name: str) -> pa.Table:
    """Return rows with a table's columns, in its order; columns that they do not have are null.

    Args:
        table: the rows.
        schema: the table's.
        name: of the table, for messages.

    Raises:
        InvalidError: a column that the table has not (42703), one that is there twice, a value of another type
            (42804) or that has no room (22003), a null where none may be (23502), a time outside of the years 1 to 9999
            (22008), a map that has a key twice (23505).
    """
    names, known = table.column_names, {*schema.names}
    if unknown := [each for each in names if each not in known]:
        raise InvalidError(
            f"table {name} has no column {unknown[0]!r}; it has {', '.join(schema.names)}", sqlstate=NO_COLUMN
        )
    if len(set(names)) < len(names):
        raise InvalidError(
            f"rows for table {name} have two columns of one name: {', '.join(names)}", sqlstate=WRONG_TYPE
        )
    columns, given_names = [], {*names}
    for field in schema:
        what = f"column {field.name} of table {name}"
        if field.name not in given_names:
            column = pa.chunked_array([pa.nulls(table.num_rows, field.type)])
        else:
            try:
                chunks = [_as(chunk, field.type, what) for chunk in table.column(field.name).chunks]
            except pa.ArrowException as error:
                given = table.schema.field(field.name).type
                raise InvalidError(
                    f"{what} takes {field.type}, and Arrow makes none of {given}: {error}", sqlstate=WRONG_TYPE
                ) from error
            column = pa.chunked_array(chunks, type=field.type)
        if not all(has_no_forbidden_null(chunk, field) for chunk in column.chunks):
            there = "there" if not field.nullable else "in a field of it: nor has a struct that is null"
            raise InvalidError(f"{what} is NOT NULL, and a row has none {there}", sqlstate=NULL_IN_NOT_NULL)
        if any(not _has_known_years(part) for chunk in column.chunks for part in parts(chunk)):
            raise InvalidError(f"{what} has years 1 to 9999, and is given another, or infinity", sqlstate=NO_SUCH_TIME)
        if any(_has_key_twice(part) for chunk in column.chunks for part in parts(chunk)):
            raise InvalidError(f"{what} is given a map that has a key twice", sqlstate=KEY_TWICE)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


def nullable(field: pa.Field) -> pa.Field:
    """Return a field of a table without NOT NULL, also in the fields of structs within it."""
    type_ = field.type
    if pa.types.is_struct(type_):
        type_ = pa.struct([nullable(type_.field(i)) for i in range(type_.num_fields)])
    elif pa.types.is_list(type_):
        type_ = pa.list_(nullable(type_.value_field))
    elif pa.types.is_map(type_):
        type_ = pa.map_(nullable(type_.key_field).with_nullable(False), nullable(type_.item_field))
    return pa.field(field.name, type_)


def check_fields(given: pa.DataType, taken: pa.DataType, what: str) -> None:
    """Raise unless all fields of structs in a type are fields of a column's, however they are spelled.

    DuckDB casts structs by their fields' names, and leaves out those that the column has not. Those of `row(1, 2)`
    have no names of the column either.

    Raises:
        InvalidError (42703): one is none.
    """
    given = plain(given)
    if pa.types.is_struct(given) and pa.types.is_struct(taken):
        fields = {taken.field(i).name.lower(): taken.field(i) for i in range(taken.num_fields)}
        for each in (given.field(i) for i in range(given.num_fields)):
            if each.name.lower() not in fields:
                raise InvalidError(
                    f"{what} has no field {each.name!r}; it has {', '.join(field.name for field in fields.values())}",
                    sqlstate=NO_COLUMN,
                )
            check_fields(each.type, fields[each.name.lower()].type, f"{what}, field {each.name},")
    elif pa.types.is_list(given) and pa.types.is_list(taken):
        check_fields(given.value_type, taken.value_type, f"{what}, its elements,")
    elif pa.types.is_map(given) and pa.types.is_map(taken):
        check_fields(given.key_type, taken.key_type, f"{what}, its keys,")
        check_fields(given.item_type, taken.item_type, f"{what}, its values,")


def has_no_forbidden_null(array: pa.Array, field: pa.Field) -> bool:
    """Tell whether there is a value wherever a field, or one within it, says that there must be.

    As to Delta, a struct that is null has no value in a field of it that is NOT NULL.
    """
    if array.null_count and (not field.nullable or _has_not_null(field.type)):
        return False
    if pa.types.is_struct(field.type):
        present = array.drop_null() if array.null_count else array
        children = present.flatten()
        return all(has_no_forbidden_null(children[i], field.type.field(i)) for i in range(field.type.num_fields))
    if pa.types.is_list(field.type):
        return has_no_forbidden_null(array.flatten(), field.type.value_field)
    if pa.types.is_map(field.type):
        entries = array.drop_null() if array.null_count else array
        start, end = (entries.offsets[0].as_py(), entries.offsets[-1].as_py()) if len(entries) else (0, 0)
        return has_no_forbidden_null(entries.items.slice(start, end - start), field.type.item_field)
    return True


def _has_not_null(type_: pa.DataType) -> bool:
    """Tell whether a type is a struct with a field, or one in a struct within it, that is NOT NULL."""
    if not pa.types.is_struct(type_):
        return False
    fields = (type_.field(i) for i in range(type_.num_fields))
    return any(not field.nullable or _has_not_null(field.type) for field in fields)


def parts(array: pa.Array) -> Iterator[pa.Array]:
    """Yield an array and all that are within it, as far as what they are in is there."""
    yield array
    if pa.types.is_struct(array.type):
        for child in array.flatten():
            yield from parts(child)
    elif pa.types.is_list(array.type):
        yield from parts(array.flatten())
    elif pa.types.is_map(array.type) and len(entries := array.drop_null()):
        start, end = entries.offsets[0].as_py(), entries.offsets[-1].as_py()
        for child in (entries.keys, entries.items):
            yield from parts(child.slice(start, end - start))


def _has_known_years(array: pa.Array) -> bool:
    """Tell whether times are of the years 1 to 9999, which each reader has; DuckDB's infinity is of none."""
    if pa.types.is_date32(array.type):
        low, high, number = _FIRST_DAY, _LAST_DAY, pa.int32()
    elif pa.types.is_timestamp(array.type):
        low, high, number = _FIRST_DAY * _DAY_MICROS, (_LAST_DAY + 1) * _DAY_MICROS - 1, pa.int64()
    else:
        return True
    ends = pc.min_max(array.view(number))
    return ends["min"].as_py() is None or (ends["min"].as_py() >= low and ends["max"].as_py() <= high)


def _has_key_twice(array: pa.Array) -> bool:
    """Tell whether one of an array's maps has a key twice, to whom 0.0 and -0.0 are one key, as to Spark."""
    if not pa.types.is_map(array.type):
        return False
    entries = array.drop_null()
    lists = pa.ListArray.from_arrays(entries.offsets, entries.keys)
    keys = pc.list_flatten(lists)
    if pa.types.is_floating(keys.type):
        keys = pc.add(keys, pa.scalar(0, keys.type))
    if pa.types.is_nested(keys.type):
        keys = pa.array(map(repr, keys.to_pylist()))
    pairs = pa.table({"map": pc.list_parent_indices(lists), "key": keys})
    return bool(pairs.group_by(["map", "key"], use_threads=False).aggregate([]).num_rows < len(keys))


def _as(array: pa.Array, type_: pa.DataType, what: str) -> pa.Array:
    """Return an array as another type that says the same of each of its values."""
    if array.type == type_:
        return array
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), type_)
    kind = plain(array.type)
    if pa.types.is_struct(type_) and pa.types.is_struct(kind):
        return _struct(array, type_, what)
    if pa.types.is_list(type_) and pa.types.is_list(kind):
        return _list(array.cast(kind), type_, what)
    if pa.types.is_map(type_) and pa.types.is_map(kind):
        return _map(array, type_, what)
    if not _says_the_same(kind, type_):
        raise InvalidError(f"{what} takes {type_}, and is given {array.type}: cast it first", sqlstate=WRONG_TYPE)
    try:
        if pa.types.is_integer(kind) and pa.types.is_decimal(type_):
            # By its type alone Arrow takes a number for one of all digits that the type has, whatever it is.
            array = array.cast(pa.decimal256(_DIGITS_OF_INTEGERS + type_.scale, type_.scale))
        return array.cast(type_)
    except pa.ArrowException as error:
        raise InvalidError(
            f"{what} takes {type_}, which has no room for a value: {error}", sqlstate=OUT_OF_RANGE
        ) from error


def _says_the_same(given: pa.DataType, taken: pa.DataType) -> Any:
    """Tell whether a cast that Arrow checks changes no value; it may fail for one that has no room."""
    types = pa.types
    if given == taken:
        return True
    if types.is_integer(given):
        return types.is_integer(taken) or types.is_decimal(taken) or types.is_floating(taken)
    if types.is_decimal(given):
        return types.is_decimal(taken) or (types.is_integer(taken) and given.scale == 0)
    if types.is_floating(given):
        return types.is_floating(taken) and given.bit_width < taken.bit_width
    if types.is_timestamp(given) and types.is_timestamp(taken):
        return (given.tz is None) == (taken.tz is None)
    return types.is_date(given) and types.is_date(taken)


def _struct(array: pa.Array, type_: pa.StructType, what: str) -> pa.Array:
    given = {array.type.field(i).name: child for i, child in enumerate(array.flatten())}
    fields = [type_.field(i) for i in range(type_.num_fields)]
    if len(given) < array.type.num_fields or given.keys() - {field.name for field in fields}:
        raise InvalidError(f"{what} takes {type_}, and is given {array.type}", sqlstate=WRONG_TYPE)
    children = [
        _as(given[field.name], field.type, f"{what}, field {field.name},")
        if field.name in given
        else pa.nulls(len(array), field.type)
        for field in fields
    ]
    return pa.StructArray.from_arrays(children, fields=fields, mask=pc.is_null(array))


def _list(array: pa.Array, type_: pa.ListType, what: str) -> pa.Array:
    array = _whole(array)
    values = _as(array.values, type_.value_type, f"{what}, its elements,")
    return pa.ListArray.from_arrays(array.offsets, values, type=type_, mask=pc.is_null(array))


def _map(array: pa.Array, type_: pa.MapType, what: str) -> pa.Array:
    array = _whole(array)
    keys = _as(array.keys, type_.key_type, f"{what}, its keys,")
    items = _as(array.items, type_.item_type, f"{what}, its values,")
    return pa.MapArray.from_arrays(array.offsets, keys, items, type=type_, mask=pc.is_null(array))


def _whole(array: pa.Array) -> pa.Array:
    """Return an array that is no slice of another: Arrow makes no list of a slice's parts and nulls."""
    return array if array.offset == 0 else pa.concat_arrays([array, array.slice(0, 0)])
