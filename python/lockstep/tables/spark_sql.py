"""Expressions of Spark's SQL that a table holds, as DuckDB's: only those of which both certainly say the same.

Taken are comparisons of columns with one another and with literals, of one kind: whole numbers, decimals, doubles,
texts, dates, booleans; AND, OR, NOT, IN, BETWEEN, IS NULL, LIKE with `%` alone, and the length of a text. All else is
not: arithmetic (which overflows otherwise), functions (which know other languages), times (which depend on a session's
zone), comparisons of unlike kinds (which are cast otherwise), decimals that no common one holds. Both take NaN for the
greatest number, and compare texts by their bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import NamedTuple

from lockstep.tables.schema import DeltaType, quoted
from lockstep.tables.spark_grammar import Node, condition_tree, default_tree

_BITS = {"long": 64, "integer": 32, "short": 16, "byte": 8}
_KINDS = {
    **dict.fromkeys(_BITS, "integer"),
    **{kind: kind for kind in ("string", "date", "boolean", "double")},
}
_OPERATORS = {"=": "=", "<>": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "<=>": "IS NOT DISTINCT FROM"}
_LENGTHS = frozenset({"length", "char_length", "character_length", "len"})
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_WHOLE, _FRACTION = re.compile(r"-?[0-9]{1,18}"), re.compile(r"-?([0-9]{0,18})\.([0-9]{1,18})")
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")

MAX_DIGITS = 38
"""Of a decimal, to both."""

_OF_WHOLE = 20
"""So many digits a whole number counts for beside a decimal: to Spark, in some places, whatever the literal says."""

_MAX_CHARACTERS = 2**20
"""Of what a condition becomes: IN and BETWEEN say again and again what they are asked of."""

_SPARK_TYPES = {
    **{name: name for name in ("string", "date", "boolean", "double", "float", "timestamp")},
    **dict.fromkeys(("bigint", "long"), "long"),
    **dict.fromkeys(("int", "integer"), "integer"),
    **dict.fromkeys(("smallint", "short"), "short"),
    **dict.fromkeys(("tinyint", "byte"), "byte"),
    "real": "float",
}
"""How types are called in Spark's SQL, and in Delta's schemas."""


class Typed(NamedTuple):
    """An expression in DuckDB's SQL.

    Attributes:
        kind: what it is compared as.
        literal: what it says, if it is a literal.
        digits: of a decimal, before its point and behind it.
    """

    sql: str
    kind: str
    literal: str | None = None
    digits: tuple[int, int] = (0, 0)


def condition_in_duckdb(text: str, types: Mapping[str, DeltaType]) -> str | None:
    """Return a condition of Spark's over a table's columns as DuckDB's; None if it may not mean the same."""
    if (tree := condition_tree(text)) is None:
        return None
    found = _Translation(types).of(tree)
    return found.sql if found is not None and found.kind == "boolean" else None


def default_in_duckdb(text: str, type_: DeltaType) -> str | None:
    """Return the default of a column of some type as DuckDB's; None if it may not mean the same.

    Taken are literals that the column has room for, such literals CAST to a type that has it too, NULL, and the time
    at which a statement runs.
    """
    if (tree := default_tree(text)) is None:
        return None
    if tree.kind == "now":
        return "now()" if type_ == "timestamp" else None
    if tree.kind == "cast":
        cast_to = _SPARK_TYPES.get(tree.text, tree.text)
        [tree] = tree.parts
        if tree.kind == "null":
            return "NULL" if _is_type(cast_to) else None
        if not _is_widened(cast_to, type_):
            return None
        if tree.kind == "string" and cast_to == "date":
            tree = Node("date", tree.text)
        if _as_default(tree, cast_to) is None:
            return None
    return "NULL" if tree.kind == "null" else _as_default(tree, type_)


def _as_default(tree: Node, type_: DeltaType) -> str | None:
    literal = _Translation({}).of(tree)
    if literal is None or literal.literal is None or not isinstance(type_, str):
        return None
    match literal.kind:
        case "integer" if type_ in _BITS:
            reach = 2 ** (_BITS[type_] - 1)
            return literal.sql if -reach <= int(literal.literal) < reach else None
        case "integer" if type_ in ("double", "float"):
            return literal.sql
        case "integer" | "decimal" if (match := _DECIMAL.fullmatch(type_)) is not None:
            digits = literal.digits if literal.kind == "decimal" else (len(literal.literal.lstrip("-0")), 0)
            precision, scale = int(match[1]), int(match[2])
            return literal.literal if digits[0] <= precision - scale and digits[1] <= scale else None
        case "decimal" if type_ == "double":
            return literal.literal
        case kind if kind == type_:
            return literal.sql
    return None


def _is_type(name: str) -> bool:
    return name in _SPARK_TYPES.values() or _DECIMAL.fullmatch(name) is not None


def _is_widened(given: str, taken: DeltaType) -> bool:
    """Tell whether a column takes all values of a type as they are."""
    if given in _BITS:
        return isinstance(taken, str) and taken in _BITS
    return given == (taken.replace(" ", "") if isinstance(taken, str) else taken)


class _Translation:
    """Of expressions over columns of some types; what is not understood is None."""

    def __init__(self, types: Mapping[str, DeltaType]) -> None:
        self._types = types
        self._known: dict[int, tuple[Node, Typed | None]] = {}
        self._by_kind: Mapping[str, Callable[[Node], Typed | None]] = {
            "or": self._connected,
            "and": self._connected,
            "not": self._not,
            "compare": self._comparison,
            "in": self._in,
            "between": self._between,
            "is_null": self._is_null,
            "like": self._like,
            "call": self._length,
            "column": self._column,
            "quoted": self._quoted,
            "string": _string,
            "number": _number,
            "date": lambda tree: _of_day(tree.text),
            "boolean": lambda tree: Typed(tree.text, "boolean", tree.text),
            "null": lambda _tree: None,
        }

    def of(self, tree: Node) -> Typed | None:
        """Return what a part is; each is looked at once, however often it is asked for."""
        if (known := self._known.get(id(tree))) is None:
            found = self._by_kind[tree.kind](tree)
            fits = found is not None and len(found.sql) <= _MAX_CHARACTERS
            known = self._known[id(tree)] = tree, found if fits else None
        return known[1]

    def _all_of(self, parts: tuple[Node, ...]) -> list[Typed] | None:
        found = [each for each in map(self.of, parts) if each is not None]
        return found if len(found) == len(parts) else None

    def _connected(self, tree: Node) -> Typed | None:
        parts = self._all_of(tree.parts)
        if parts is None or {part.kind for part in parts} != {"boolean"}:
            return None
        return Typed(f"({f' {tree.kind.upper()} '.join(part.sql for part in parts)})", "boolean")

    def _not(self, tree: Node) -> Typed | None:
        inner = self.of(tree.parts[0])
        return None if inner is None or inner.kind != "boolean" else Typed(f"(NOT {inner.sql})", "boolean")

    def _comparison(self, tree: Node) -> Typed | None:
        return self._compared(tree.parts[0], _OPERATORS[tree.text], tree.parts[1])

    def _compared(self, one: Node, operator: str, other: Node) -> Typed | None:
        if (both := self._all_of((one, other))) is None:
            return None
        left, right = _like_the_other(both[0], both[1]), _like_the_other(both[1], both[0])
        if not _are_of_one_kind([left, right]):
            return None
        return Typed(f"({left.sql} {operator} {right.sql})", "boolean")

    def _in(self, tree: Node) -> Typed | None:
        operand, *members = tree.parts
        if (kind := self._common_kind(tree.parts)) is None or kind == "double":  # which Spark may find by its bits
            return None
        found = [self._compared(operand, "=", each) for each in members]
        texts = [each.sql for each in found if each is not None]
        return Typed(f"({' OR '.join(texts)})", "boolean") if len(texts) == len(found) else None

    def _between(self, tree: Node) -> Typed | None:
        operand, *ends = tree.parts
        low, high = self._compared(operand, ">=", ends[0]), self._compared(operand, "<=", ends[1])
        if low is None or high is None or self._common_kind(tree.parts) is None:
            return None
        return Typed(f"({low.sql} AND {high.sql})", "boolean")

    def _common_kind(self, parts: tuple[Node, ...]) -> str | None:
        """Return the one kind of some expressions; None if they have several: Spark casts all of a list to one type."""
        if (members := self._all_of(parts)) is None:
            return None
        [kind, *others] = {each.kind for each in members if each.literal is None} or {members[0].kind}
        alike = [_like_the_other(each, Typed("", kind)) for each in members]
        return None if others or not _are_of_one_kind(alike) else kind

    def _is_null(self, tree: Node) -> Typed | None:
        inner = self.of(tree.parts[0])
        return None if inner is None else Typed(f"({inner.sql} IS NULL)", "boolean")

    def _like(self, tree: Node) -> Typed | None:
        if (both := self._all_of(tree.parts)) is None:
            return None
        text, pattern = both
        if pattern.literal is None or {text.kind, pattern.kind} != {"string"} or "_" in pattern.literal:
            return None
        return Typed(f"({text.sql} LIKE {pattern.sql})", "boolean")

    def _length(self, tree: Node) -> Typed | None:
        inner = self.of(tree.parts[0])
        if tree.text not in _LENGTHS or inner is None or inner.kind != "string":
            return None
        return Typed(f"length({inner.sql})", "integer")

    def _column(self, tree: Node) -> Typed | None:
        found = [name for name in self._types if _is_called(name, tree.text)]
        if len(found) != 1 or not isinstance(type_ := self._types[found[0]], str):
            return None
        if match := _DECIMAL.fullmatch(type_):
            return Typed(quoted(found[0]), "decimal", digits=(int(match[1]) - int(match[2]), int(match[2])))
        return Typed(quoted(found[0]), _KINDS[type_]) if type_ in _KINDS else None

    def _quoted(self, tree: Node) -> Typed | None:
        """Return a text in double quotes: to a session with `ansi.doubleQuotedIdentifiers` it would be a column."""
        is_column = any(_is_called(name, tree.text) for name in self._types)
        return None if is_column else _string(tree)


def _is_called(column: str, name: str) -> bool:
    """Tell whether a name is a column's; of letters that are no ASCII, which case they have is not passed over."""
    return column == name or (column.isascii() and name.isascii() and column.lower() == name.lower())


def _string(tree: Node) -> Typed:
    return Typed("'" + tree.text.replace("'", "''") + "'", "string", tree.text)


def _number(tree: Node) -> Typed | None:
    if _WHOLE.fullmatch(tree.text):
        return Typed(tree.text, "integer", tree.text)
    if (match := _FRACTION.fullmatch(tree.text)) is None:
        return None
    digits = len(match[1].lstrip("0")), len(match[2])
    return _decimal(tree.text, digits)


def _decimal(text: str, digits: tuple[int, int]) -> Typed:
    sql = f"CAST('{text}' AS DECIMAL({max(sum(digits), 1)},{digits[1]}))"
    return Typed(sql, "decimal", text, digits)


def _of_day(text: str) -> Typed | None:
    try:
        date.fromisoformat(text if _DATE.fullmatch(text) else "")
    except ValueError:  # there is no such day
        return None
    return Typed(f"DATE '{text}'", "date", text)


def _are_of_one_kind(members: list[Typed]) -> bool:
    """Tell whether what is compared is of one kind; of decimals, whether one holds all: each cuts another otherwise."""
    before, behind = (max(digits) for digits in zip(*(each.digits for each in members), strict=True))
    return len({each.kind for each in members}) == 1 and before + behind <= MAX_DIGITS


def _like_the_other(one: Typed, other: Typed) -> Typed:
    """Return a literal as the kind of what it is compared with, where both take it for that."""
    if one.literal is None or one.kind == other.kind:
        return one
    if one.kind == "integer" and other.kind == "decimal":
        return _decimal(one.literal, (_OF_WHOLE, 0))
    if one.kind in ("integer", "decimal") and other.kind == "double":
        return Typed(f"CAST('{one.literal}' AS DOUBLE)", "double", one.literal)
    if one.kind == "string" and other.kind == "date":
        return _of_day(one.literal) or one
    return one
