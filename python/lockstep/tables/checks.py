"""What a table asks of rows beyond their types: CHECK constraints, and defaults of columns that rows do not have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lockstep.errors import InvalidError
from lockstep.tables.conform import conform
from lockstep.tables.generated import KEY as EXPRESSION
from lockstep.tables.layout import RESERVED, Layout
from lockstep.tables.partitions import as_stored
from lockstep.tables.queries import evaluate
from lockstep.tables.schema import duckdb_type, quoted

CHECK_VIOLATION = "23514"
"""PostgreSQL's check_violation."""

_INDEX = f"{RESERVED}_index"


def taken(rows: pa.Table, layout: Layout) -> pa.Table:
    """Return rows as a table takes them, and as they read once they are stored: see `conform` and `as_stored`.

    Raises:
        InvalidError: it does not take them.
    """
    return as_stored(conform(rows, layout.schema, layout.name), layout.partitioned_by)


def check_rows(rows: pa.Table, layout: Layout) -> None:
    """Raise unless rows keep a table's CHECK constraints: one that is null does not hold, as in Delta.

    Raises:
        InvalidError (23514): a row does not.
    """
    checks = layout.checks
    if not checks or not rows.num_rows:
        return
    counts = ", ".join(f"count(*) FILTER (WHERE ({sql}) IS NOT TRUE)" for sql in checks.values())
    answer = evaluate({"target": rows}, f"SELECT {counts} FROM target")
    for name, column in zip(checks, answer.columns, strict=True):
        if count := column[0].as_py():
            raise InvalidError(
                f"the constraint {name} ({layout.constraints[name]}) of table {layout.name} does not hold of {count} "
                "of the rows; nothing was written",
                sqlstate=CHECK_VIOLATION,
            )


def check_generated(rows: pa.Table, layout: Layout) -> None:
    """Raise unless generated columns are what their expressions say of the rows, null where those are null.

    Raises:
        InvalidError (23514): of a row one is not.
    """
    generated = layout.generated
    if not generated or not rows.num_rows:
        return
    counts = (f"count(*) FILTER (WHERE {quoted(name)} IS DISTINCT FROM ({sql}))" for name, sql in generated.items())
    answer = evaluate({"target": rows}, f"SELECT {', '.join(counts)} FROM target")
    for name, column in zip(generated, answer.columns, strict=True):
        if count := column[0].as_py():
            expression: Any = _expression(layout, name)
            raise InvalidError(
                f"column {name} of table {layout.name} is GENERATED ALWAYS AS ({expression}), and {count} of the rows "
                "bring another value; nothing was written. Leave the column out",
                sqlstate=CHECK_VIOLATION,
            )


def _expression(layout: Layout, column: str) -> Any:
    [field] = [field for field in layout.fields if field["name"] == column]
    said: Mapping[str, Any] = field["metadata"]
    return said[EXPRESSION]


def with_generated(rows: pa.Table, layout: Layout) -> pa.Table:
    """Return rows with the generated columns that they do not have, by the columns that they have.

    Raises:
        InvalidError: another column does not take its values; or an expression has no value, as where it overflows.
    """
    generated = layout.generated
    wanted = {name: sql for name, sql in generated.items() if name not in rows.column_names}
    if not wanted:
        return rows
    others = pa.schema([field for field in layout.schema if field.name not in generated])
    given = rows.drop_columns([name for name in rows.column_names if name in generated])
    base = conform(given, others, layout.name).append_column(_INDEX, pa.arange(0, rows.num_rows))
    asked = ", ".join(f"({sql}) AS {quoted(name)}" for name, sql in wanted.items())
    values = evaluate({"target": base}, f"SELECT {asked}, {_INDEX} FROM target").sort_by(_INDEX)
    for name in wanted:
        rows = rows.append_column(name, values.column(name))
    return rows


def with_defaults(rows: pa.Table, layout: Layout) -> pa.Table:
    """Return rows with the defaults of columns that they do not have; all are of one moment, as in one statement.

    Raises:
        UnsupportedError: a default that DuckDB may not take as Spark does.
    """
    given = {*rows.column_names}
    lacking = [name for name in layout.types if name not in given]
    defaults = {name: sql for name in lacking if (sql := default_of(layout, name)) is not None}
    if not defaults:
        return rows
    values = evaluate({}, f"SELECT {', '.join(f'{sql} AS {quoted(name)}' for name, sql in defaults.items())}")
    for name, column in zip(defaults, values.columns, strict=True):
        rows = rows.append_column(name, pa.repeat(column[0], rows.num_rows))
    return rows


def default_of(layout: Layout, column: str) -> str | None:
    """Return what a column is in rows that do not have it, of its type, as DuckDB's SQL; None if it is null.

    Raises:
        UnsupportedError: a default that DuckDB may not take as Spark does.
    """
    sql = layout.default(column)
    return None if sql is None else f"CAST(({sql}) AS {duckdb_type(layout.types[column])})"
