"""Expressions of Spark's SQL that a table holds, as DuckDB's: only those of which both certainly say the same.

Taken are comparisons of columns with one another and with literals, of one kind: whole numbers, decimals, doubles,
texts, dates, booleans; AND, OR, NOT, IN, BETWEEN, IS NULL, LIKE with `%` alone, and the length of a text. All else is
not: arithmetic (which overflows otherwise), functions (which know other languages), times (which depend on a session's
zone), comparisons of unlike kinds (which are cast otherwise). Both take NaN for the greatest number, and compare texts
by their bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from lockstep.tables.schema import DeltaType, quoted

_KINDS = {
    **dict.fromkeys(("long", "integer", "short", "byte"), "integer"),
    **{kind: kind for kind in ("string", "date", "boolean", "double")},
}
_COMPARED = {
    "eq": "=",
    "neq": "<>",
    "lt": "<",
    "lte": "<=",
    "gt": ">",
    "gte": ">=",
    "nullsafeeq": "IS NOT DISTINCT FROM",
}
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_WHOLE, _DECIMAL = re.compile(r"-?[0-9]{1,18}"), re.compile(r"-?[0-9]{0,18}\.[0-9]{1,18}")


class Typed(NamedTuple):
    """An expression in DuckDB's SQL, its kind, and what it says, if it is a literal."""

    sql: str
    kind: str
    literal: str | None = None


def condition_in_duckdb(text: str, types: Mapping[str, DeltaType]) -> str | None:
    """Return a condition of Spark's over a table's columns as DuckDB's; None if it may not mean the same."""
    from sqlglot import exp

    if (tree := _parsed(text)) is None or any(isinstance(each, exp.Query) for each in tree.walk()):
        return None
    found = _Translation(types).of(tree)
    return found.sql if found is not None and found.kind == "boolean" else None


def default_in_duckdb(text: str, type_: DeltaType) -> str | None:
    """Return the default of a column of some type as DuckDB's; None if it may not mean the same.

    Taken are literals of the column's kind, NULL, and the time at which a statement runs.
    """
    if (tree := _parsed(text)) is None:
        return None
    if tree.key == "null":
        return "NULL"
    if tree.key == "currenttimestamp" and not tree.args.get("this"):
        return "now()" if type_ == "timestamp" else None
    literal = _Translation({}).of(tree)
    if literal is None or literal.literal is None:
        return None
    kind = "float" if type_ == "float" else _kind(type_)
    taken = {"integer": ("integer", "decimal", "double", "float"), "decimal": ("decimal", "double")}
    return literal.sql if kind in taken.get(literal.kind, (literal.kind,)) else None


def _parsed(text: str) -> Any:
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    if "\\" in text:  # what it escapes depends on what comes after it, and on settings
        return None
    try:
        return parse_one(text, into=exp.Condition, read="spark")
    except (SqlglotError, RecursionError):
        return None


def _kind(type_: DeltaType) -> str | None:
    if not isinstance(type_, str):
        return None
    return "decimal" if type_.startswith("decimal") else _KINDS.get(type_)


class _Translation:
    """Of expressions over columns of some types; what is not understood is None."""

    def __init__(self, types: Mapping[str, DeltaType]) -> None:
        self._types = types
        self._by_key: Mapping[str, Callable[[Any], Typed | None]] = {
            **dict.fromkeys(_COMPARED, self._comparison),
            "and": self._connected,
            "or": self._connected,
            "not": self._not,
            "in": self._in,
            "between": self._between,
            "is": self._is,
            "like": self._like,
            "length": self._length,
            "column": self._column,
            "literal": _literal,
            "neg": _negative,
            "boolean": lambda tree: Typed("true" if tree.this else "false", "boolean", str(tree.this)),
            "cast": _date,
        }

    def of(self, tree: Any) -> Typed | None:
        while tree.key == "paren":
            tree = tree.this
        return self._by_key.get(tree.key, _unknown)(tree)

    def _connected(self, tree: Any) -> Typed | None:
        left, right = self.of(tree.this), self.of(tree.expression)
        if left is None or right is None or {left.kind, right.kind} != {"boolean"}:
            return None
        return Typed(f"({left.sql} {tree.key.upper()} {right.sql})", "boolean")

    def _not(self, tree: Any) -> Typed | None:
        inner = self.of(tree.this)
        return None if inner is None or inner.kind != "boolean" else Typed(f"(NOT {inner.sql})", "boolean")

    def _comparison(self, tree: Any) -> Typed | None:
        return self._compared(tree.this, _COMPARED[tree.key], tree.expression)

    def _compared(self, one: Any, operator: str, other: Any) -> Typed | None:
        left, right = self.of(one), self.of(other)
        if left is None or right is None:
            return None
        left, right = _like_the_other(left, right), _like_the_other(right, left)
        return Typed(f"({left.sql} {operator} {right.sql})", "boolean") if left.kind == right.kind else None

    def _in(self, tree: Any) -> Typed | None:
        if any(tree.args.get(other) for other in ("query", "unnest", "field")) or not tree.expressions:
            return None
        found = [self._compared(tree.this, "=", each) for each in tree.expressions]
        texts = [each.sql for each in found if each is not None]
        return Typed(f"({' OR '.join(texts)})", "boolean") if len(texts) == len(found) else None

    def _between(self, tree: Any) -> Typed | None:
        if tree.args.get("symmetric"):
            return None
        low, high = (
            self._compared(tree.this, ">=", tree.args["low"]),
            self._compared(tree.this, "<=", tree.args["high"]),
        )
        return None if low is None or high is None else Typed(f"({low.sql} AND {high.sql})", "boolean")

    def _is(self, tree: Any) -> Typed | None:
        inner = self.of(tree.this)
        if inner is None or tree.expression.key != "null":
            return None
        return Typed(f"({inner.sql} IS NULL)", "boolean")

    def _like(self, tree: Any) -> Typed | None:
        text, pattern = self.of(tree.this), self.of(tree.expression)
        if text is None or pattern is None or pattern.literal is None or {text.kind, pattern.kind} != {"string"}:
            return None
        if re.search(r"[\\_]", pattern.literal):
            return None
        return Typed(f"({text.sql} LIKE {pattern.sql})", "boolean")

    def _length(self, tree: Any) -> Typed | None:
        inner = self.of(tree.this)
        return Typed(f"length({inner.sql})", "integer") if inner is not None and inner.kind == "string" else None

    def _column(self, tree: Any) -> Typed | None:
        if any(tree.args.get(part) for part in ("table", "db", "catalog")):
            return None
        found = [name for name in self._types if name.lower() == str(tree.name).lower()]
        kind = _kind(self._types[found[0]]) if len(found) == 1 else None
        return None if kind is None else Typed(quoted(found[0]), kind)


def _unknown(_tree: Any) -> None:
    return None


def _literal(tree: Any) -> Typed | None:
    text = str(tree.this)
    if tree.is_string:
        return None if "\0" in text else Typed("'" + text.replace("'", "''") + "'", "string", text)
    return _number(text)


def _negative(tree: Any) -> Typed | None:
    return _number(f"-{tree.this.this}") if tree.this.key == "literal" and not tree.this.is_string else None


def _number(text: str) -> Typed | None:
    if _WHOLE.fullmatch(text):
        return Typed(text, "integer", text)
    return Typed(text, "decimal", text) if _DECIMAL.fullmatch(text) else None


def _date(tree: Any) -> Typed | None:
    if tree.args["to"].this.name != "DATE" or tree.this.key != "literal" or not tree.this.is_string:
        return None
    return _of_day(str(tree.this.this))


def _of_day(text: str) -> Typed | None:
    return Typed(f"DATE '{text}'", "date", text) if _DATE.fullmatch(text) else None


def _like_the_other(one: Typed, other: Typed) -> Typed:
    """Return a literal as the kind of what it is compared with, where both take it for that."""
    if one.literal is None or one.kind == other.kind:
        return one
    if one.kind == "integer" and other.kind == "decimal":
        return one._replace(kind="decimal")
    if one.kind in ("integer", "decimal") and other.kind == "double":
        return Typed(f"CAST('{one.literal}' AS DOUBLE)", "double", one.literal)
    if one.kind == "string" and other.kind == "date":
        return _of_day(one.literal) or one
    return one
