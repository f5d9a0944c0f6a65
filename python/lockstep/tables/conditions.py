"""Which rows a predicate can be about, as the timeline records it and files are chosen by.

A predicate is DuckDB's SQL. What is recorded is Spark's, over physical columns (`lockstep.delta.pruning.predicates`).
It may say more rows than the predicate, never fewer: of an AND a part that is not understood is left out. Understood
are comparisons of a column with literals of its own type, for numbers without a fraction, texts and dates, and tests
for null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lockstep.delta.pruning.trees import is_read
from lockstep.errors import InvalidError, UnsupportedError
from lockstep.tables.conform import NO_COLUMN
from lockstep.tables.layout import RESERVED
from lockstep.tables.schema import DeltaType

SYNTAX = "42601"
"""PostgreSQL's syntax_error."""

MAX_VALUES = 100
"""So many keys of a MERGE are recorded one by one; of more, their least and greatest."""

_INTEGERS = frozenset({"long", "integer", "short", "byte"})
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_OPERATORS = {"eq": "=", "neq": "!=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class _Text:
    """A condition of Spark's that holds of every row of which a predicate does; of no others, if it is exact."""

    sql: str
    exact: bool


def checked(predicate: str, what: str = "the predicate", columns: Collection[str] = ()) -> str:
    """Return a predicate, or what a column is set to, that is one expression over the columns of one row.

    Args:
        columns: that it may name; what is called `target` or `source` must be one of them.

    Raises:
        InvalidError (42601): it is no expression.
        InvalidError (42703): it names what is Lockstep's own, a column by its place, or a whole row.
        UnsupportedError: it has a query in it, whose reads nobody would record; or what is not of one row: an
            aggregate, a window, what makes several rows of one, all columns at once.
    """
    tree = _parsed(predicate)
    if tree is None or not predicate.strip():
        raise InvalidError(f"{what} is no expression of DuckDB's SQL: {predicate!r:.200}", sqlstate=SYNTAX)
    from sqlglot import exp

    if tree.find(exp.Query) is not None:
        raise UnsupportedError(f"{what} has a query in it: ask `sql` first, and give its answer as values, or merge it")
    if (part := next(filter(_is_of_more_than_a_row, tree.walk()), None)) is not None:
        raise UnsupportedError(
            f"{what} is asked of each row by itself, and {part.sql('duckdb')[:100]} is no value of one row: "
            "aggregates, windows, unnest and all columns at once are for `sql`, whose answer can be merged"
        )
    if (part := next(filter(_is_no_name, tree.walk()), None)) is not None:
        raise InvalidError(f"{what} names {part.sql('duckdb')[:100]}, which is no column", sqlstate=NO_COLUMN)
    known = {name.lower() for name in columns}
    if (part := next((each for each in tree.find_all(exp.Column) if _is_whole_row(each, known)), None)) is not None:
        raise InvalidError(
            f"{what} names {part.sql('duckdb')[:100]}, a whole row, which is no column: name columns of it",
            sqlstate=NO_COLUMN,
        )
    return predicate


_SIDES = ("target", "source")


def _is_whole_row(column: Any, known: Collection[str]) -> bool:
    """Tell whether a name is of a row itself, as DuckDB takes that of a table: it has Lockstep's own columns in it."""
    first, *others = [part.name.lower() for part in column.parts]
    if first in known or (others and first in _SIDES):
        return False  # a column, or one of a side
    return [first, *others][-1] in _SIDES


def _is_of_more_than_a_row(tree: Any) -> bool:
    from sqlglot import exp

    return isinstance(tree, exp.AggFunc | exp.Window | exp.UDTF | exp.Columns | exp.Star)


def _is_no_name(tree: Any) -> bool:
    from sqlglot import exp

    own = isinstance(tree, exp.Identifier) and tree.name.lower().startswith(RESERVED)
    return own or isinstance(tree, exp.PositionalColumn)


def condition(predicate: str | None, types: Mapping[str, DeltaType]) -> str | None:
    """Return a condition for a predicate; None for any row.

    Args:
        predicate: as DuckDB takes it; None for any row.
        types: of the table's columns, whose names in files are the same.
    """
    if predicate is None or (tree := _parsed(predicate)) is None or not is_read(tree):
        return None
    try:
        found = _text(tree, types)
    except RecursionError:  # of a thousand conditions in a row; of so long a text nobody reads which rows it is about
        return None
    return None if found is None else found.sql


def condition_of_keys(keys: pa.Table, types: Mapping[str, DeltaType]) -> str | None:
    """Return a condition for rows that have one of some keys; None for any row.

    Args:
        keys: columns of the table, with the table's types.
    """
    texts = [text for name in keys.column_names if (text := _of_key(name, keys.column(name), types[name]))]
    return " AND ".join(texts) if texts else None


def _of_key(name: str, values: pa.ChunkedArray, type_: DeltaType) -> str | None:
    import pyarrow.compute as pc

    present = pc.unique(values.drop_null())
    if not len(present):
        return "false"  # a null equals nothing
    if type_ not in _INTEGERS | {"string", "date"}:
        return None
    try:
        if len(present) <= MAX_VALUES:
            literals = [_of_value(value, type_) for value in sorted(present.to_pylist())]
            return None if None in literals else f"({_column(name)} IN ({', '.join(map(str, literals))}))"
        ends = pc.min_max(present)
        low, high = (_of_value(ends[end].as_py(), type_) for end in ("min", "max"))
    except (ValueError, OverflowError):  # a day that Python has not
        return None
    return None if low is None or high is None else f"({_column(name)} BETWEEN {low} AND {high})"


def _of_value(value: Any, type_: DeltaType) -> str | None:
    return _literal(type_, str(value), is_text=type_ not in _INTEGERS)


# --- from DuckDB's SQL ------------------------------------------------------------------------------------------------


def _parsed(predicate: str) -> Any:
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    try:
        tree = parse_one(predicate, into=exp.Condition, read="duckdb")
    except (SqlglotError, RecursionError, TypeError):  # the last of what is no text
        return None
    return None if isinstance(tree, exp.Command) else tree  # a text that was not looked into


def _text(tree: Any, types: Mapping[str, DeltaType]) -> _Text | None:
    match tree.key:
        case "paren":
            return _text(tree.this, types)
        case "and" | "or":
            left, right = _text(tree.this, types), _text(tree.expression, types)
            return _both(left, right) if tree.key == "and" else _either(left, right)
        case "not":
            inner = _text(tree.this, types)
            return _Text(f"(NOT {inner.sql})", exact=True) if inner is not None and inner.exact else None
    return _CONDITIONS.get(tree.key, _unknown)(tree, types)


def _both(left: _Text | None, right: _Text | None) -> _Text | None:
    known = [each for each in (left, right) if each is not None]
    if len(known) < 2:
        return _Text(known[0].sql, exact=False) if known else None
    return _Text(f"({known[0].sql} AND {known[1].sql})", exact=known[0].exact and known[1].exact)


def _either(left: _Text | None, right: _Text | None) -> _Text | None:
    if left is None or right is None:
        return None
    return _Text(f"({left.sql} OR {right.sql})", exact=left.exact and right.exact)


def _unknown(_tree: Any, _types: Mapping[str, DeltaType]) -> None:
    return None


def _comparison(tree: Any, types: Mapping[str, DeltaType]) -> _Text | None:
    operator = _OPERATORS[tree.key]
    for left, right, said in (
        (tree.this, tree.expression, operator),
        (tree.expression, tree.this, _MIRRORED[operator]),
    ):
        if (name := _column_of(left, types)) is not None:
            literal = _literal_of(right, types[name])
            return None if literal is None else _Text(f"({_column(name)} {said} {literal})", exact=True)
    return None


def _between(tree: Any, types: Mapping[str, DeltaType]) -> _Text | None:
    if (name := _column_of(tree.this, types)) is None or tree.args.get("symmetric"):
        return None
    low, high = (_literal_of(tree.args[end], types[name]) for end in ("low", "high"))
    return None if low is None or high is None else _Text(f"({_column(name)} BETWEEN {low} AND {high})", exact=True)


def _in(tree: Any, types: Mapping[str, DeltaType]) -> _Text | None:
    if (name := _column_of(tree.this, types)) is None or not (members := tree.args.get("expressions")):
        return None
    literals = [_literal_of(member, types[name]) for member in members]
    if None in literals:
        return None
    return _Text(f"({_column(name)} IN ({', '.join(map(str, literals))}))", exact=True)


def _is(tree: Any, types: Mapping[str, DeltaType]) -> _Text | None:
    name = _column_of(tree.this, types)
    return _Text(f"({_column(name)} IS NULL)", exact=True) if name and tree.expression.key == "null" else None


_CONDITIONS: Mapping[str, Callable[[Any, Mapping[str, DeltaType]], _Text | None]] = {
    **dict.fromkeys(_OPERATORS, _comparison),
    "between": _between,
    "in": _in,
    "is": _is,
}
"""By sqlglot's name of an operator."""


def _column_of(tree: Any, types: Mapping[str, DeltaType]) -> str | None:
    """Return the column of the table that an expression is; DuckDB does not tell names apart by case."""
    if tree.key != "column" or any(tree.args.get(part) for part in ("table", "db", "catalog")):
        return None
    found = [name for name in types if name.lower() == str(tree.name).lower()]
    return found[0] if len(found) == 1 else None


def _literal_of(tree: Any, type_: DeltaType) -> str | None:
    while tree.key == "paren":
        tree = tree.this
    if tree.key == "neg" and tree.this.key == "literal" and not tree.this.is_string:
        return _literal(type_, f"-{tree.this.this}", is_text=False)
    if tree.key == "cast" and tree.args["to"].this.name == "DATE" and tree.this.key == "literal":
        return _literal(type_, tree.this.this, is_text=True) if type_ == "date" else None
    return _literal(type_, tree.this, is_text=tree.is_string) if tree.key == "literal" else None


def _literal(type_: DeltaType, text: str, *, is_text: bool) -> str | None:
    """Return a literal of a column's type in Spark's SQL, None if it is of another."""
    if not is_text:
        return text if type_ in _INTEGERS and re.fullmatch(r"-?[0-9]{1,19}", text) else None
    if type_ == "date":
        return f"DATE '{text}'" if _DATE.fullmatch(text) else None
    if type_ == "string":
        escaped = text.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    return None


def _column(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def all_of(conditions: Iterable[str | None]) -> str | None:
    """Return what all of some conditions together say; None for any row."""
    known = [each for each in conditions if each is not None]
    return " AND ".join(known) if known else None
