"""Generated columns (Protocol, "Generated Columns"): their expressions in DuckDB's SQL, where both say the same.

Taken are columns, whole numbers and texts as literals, `+ - *` of whole numbers, CAST of whole numbers to whole numbers
and to STRING, of days to STRING and of times without a zone to DATE, YEAR, MONTH and DAY of days and of such times,
SUBSTRING from a place on that is written down, from 1 on, LENGTH, and `||` or CONCAT of texts. What overflows is an
error to DuckDB, as to Spark by default. All else is not: times with a zone, whose day depends on the session, UPPER and
LOWER, which know other languages, divisions, formats, hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from lockstep.caches import MIB, remembered
from lockstep.tables.schema import DeltaType, duckdb_type, quoted
from lockstep.tables.spark_texts import check_expression
from lockstep.tables.spark_types import INTEGERS, UnjudgedError

if TYPE_CHECKING:
    from sqlglot import exp

KEY = "delta.generationExpression"
FEATURE = "generatedColumns"

_CASTS = {"TINYINT": "byte", "SMALLINT": "short", "INT": "integer", "BIGINT": "long", "TEXT": "string", "DATE": "date"}
_DAYS = ("date", "timestamp_ntz")


class Typed(NamedTuple):
    """An expression in DuckDB's SQL, and its type in Delta's words."""

    sql: str
    type: str


def is_generated(field: Mapping[str, Any]) -> bool:
    """Tell whether a column of a schema is a generated column."""
    return KEY in field["metadata"]


def in_duckdb(field: Mapping[str, Any], others: Mapping[str, DeltaType]) -> str | None:
    """Return what a generated column is, as DuckDB's SQL; None if it may not mean the same.

    Args:
        others: by name, the types of the columns that are not generated.
    """
    text = field["metadata"][KEY]
    if not isinstance(text, str) or not isinstance(field["type"], str):
        return None
    plain = tuple((name, type_) for name, type_ in others.items() if isinstance(type_, str))
    return _in_duckdb((text, field["type"], plain))


_Asked: TypeAlias = tuple[str, str, tuple[tuple[str, str], ...]]
"""An expression, the type that it is to have, and the columns that it may name, with their types."""


def _characters(asked: _Asked) -> int:
    return len(asked[0]) + sum(100 + len(name) for name, _ in asked[2])


@remembered(4 * MIB, 2, _characters)
def _in_duckdb(asked: _Asked) -> str | None:
    text, type_, others = asked
    from sqlglot import parse_one
    from sqlglot.errors import SqlglotError

    try:
        check_expression(text)
        found = _Translation(dict(others)).of(parse_one(text, read="spark"))
    except (UnjudgedError, SqlglotError, RecursionError):
        return None
    return found.sql if found is not None and found.type == type_ else None


class _Translation:
    """Of expressions over columns of some types; what is not understood is None."""

    def __init__(self, types: Mapping[str, str]) -> None:
        from sqlglot import exp

        self._columns = {name.lower(): name for name in types}
        self._types = types
        self._by_kind: Mapping[type[exp.Expr], Callable[[Any], Typed | None]] = {
            exp.Column: self._column,
            exp.Literal: _literal,
            exp.Paren: lambda node: self.of(node.this),
            exp.Neg: self._negative,
            **dict.fromkeys((exp.Add, exp.Sub, exp.Mul), self._arithmetic),
            **dict.fromkeys((exp.Cast, exp.TryCast), self._cast),
            **dict.fromkeys((exp.Year, exp.Month, exp.Day), self._part),
            exp.Substring: self._substring,
            exp.Length: self._length,
            **dict.fromkeys((exp.Concat, exp.DPipe), self._joined),
        }

    def of(self, node: exp.Expr) -> Typed | None:
        kind = self._by_kind.get(type(node))
        return None if kind is None else kind(node)

    def _column(self, node: exp.Column) -> Typed | None:
        from sqlglot import exp

        name = self._columns.get(node.name.lower())
        if not isinstance(node.this, exp.Identifier) or len(node.parts) != 1 or name is None:
            return None
        return Typed(quoted(name), self._types[name])

    def _negative(self, node: exp.Neg) -> Typed | None:
        value = self.of(node.this)
        if value is None or value.type not in INTEGERS:
            return None
        return Typed(f"(CAST(0 AS {duckdb_type(value.type)}) - {value.sql})", value.type)

    def _arithmetic(self, node: exp.Binary) -> Typed | None:
        from sqlglot import exp

        left, right = self.of(node.left), self.of(node.right)
        if left is None or right is None or not {left.type, right.type} <= set(INTEGERS):
            return None
        type_ = max(left.type, right.type, key=INTEGERS.index)
        sign = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}[type(node)]
        sides = (f"CAST({each.sql} AS {duckdb_type(type_)})" for each in (left, right))
        return Typed(f"({f' {sign} '.join(sides)})", type_)

    def _cast(self, node: exp.Cast) -> Typed | None:
        value, to = self.of(node.this), _CASTS.get(node.to.this.value)
        if value is None or to is None or node.to.expressions or node.args.get("format"):
            return None
        known = (
            (value.type in INTEGERS and (to in INTEGERS or to == "string"))
            or (value.type in _DAYS and to == "date")
            or (value.type == "date" and to == "string")
            or value.type == to == "string"
        )
        return Typed(f"CAST({value.sql} AS {duckdb_type(to)})", to) if known else None

    def _part(self, node: exp.Func) -> Typed | None:
        from sqlglot import exp

        inner = node.this
        if isinstance(inner, exp.TsOrDsToDate):  # what the parser makes of the argument
            inner = inner.this
        value = self.of(inner)
        if value is None or value.type not in _DAYS:
            return None
        name = {exp.Year: "year", exp.Month: "month", exp.Day: "day"}[type(node)]
        return Typed(f"CAST({name}({value.sql}) AS INTEGER)", "integer")

    def _substring(self, node: exp.Substring) -> Typed | None:
        value, start, length = self.of(node.this), node.args.get("start"), node.args.get("length")
        places = [each.name if _is_number(each) else "" for each in (start, length) if each is not None]
        if value is None or value.type != "string" or not places or not all(places) or int(places[0]) < 1:
            return None
        return Typed(f"substring({value.sql}, {', '.join(places)})", "string")

    def _length(self, node: exp.Func) -> Typed | None:
        value = self.of(node.this)
        if value is None or value.type != "string":
            return None
        return Typed(f"CAST(length({value.sql}) AS INTEGER)", "integer")

    def _joined(self, node: exp.Expr) -> Typed | None:
        from sqlglot import exp

        parts = node.expressions if isinstance(node, exp.Concat) else [node.args["this"], node.args["expression"]]
        values = [self.of(each) for each in parts]
        if len(values) < 2 or any(value is None or value.type != "string" for value in values):
            return None
        return Typed(f"({' || '.join(value.sql for value in values if value is not None)})", "string")


def _is_number(node: exp.Expr) -> bool:
    from sqlglot import exp

    return isinstance(node, exp.Literal) and not node.is_string and node.name.isdecimal() and int(node.name) < 2**31


def _literal(node: exp.Literal) -> Typed | None:
    if node.is_string:
        return Typed("'" + str(node.this).replace("'", "''") + "'", "string")
    return Typed(f"CAST({node.name} AS INTEGER)", "integer") if _is_number(node) else None
