"""Types of Spark's SQL, as a view's query gives them: numbers, what is compared with what, and CAST."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date
from typing import TYPE_CHECKING, Any, NamedTuple

from lockstep.tables.schema import DeltaType

if TYPE_CHECKING:
    from sqlglot import exp

INTEGERS = ("byte", "short", "integer", "long")
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 20}
"""So many a whole number counts for beside a decimal."""

DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
MAX_DIGITS = 38
_ORDERED = frozenset({*INTEGERS, "float", "double", "string", "date", "timestamp", "timestamp_ntz", "boolean"})
_TOLD_APART = _ORDERED | {"binary", "void"}
_CAST_TO = {
    "TINYINT": "byte",
    "SMALLINT": "short",
    "INT": "integer",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    "TEXT": "string",
    "DATE": "date",
}
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class UnjudgedError(Exception):
    """What is not certain of a query, in words that follow its text."""


class Value(NamedTuple):
    """What an expression gives.

    Attributes:
        type: as Delta's schemas have it.
        nullable: whether there can be nulls.
        metadata: of the column that it is; none of any other expression.
        literal: the text of a whole number that is one.
    """

    type: DeltaType
    nullable: bool
    metadata: Mapping[str, Any] = {}
    literal: str | None = None


def number_type(value: Value, node: exp.Expr) -> str:
    """Return the type of a number."""
    type_ = value.type
    if isinstance(type_, str) and (type_ in (*INTEGERS, "float", "double") or DECIMAL.fullmatch(type_)):
        return type_
    raise UnjudgedError(f"has {node.sql('spark'):.100}, which is not of numbers")


def digits_of(value: Value, node: exp.Expr) -> tuple[int, int]:
    """Return how many digits a number counts for beside a decimal, and how many of them are behind the point."""
    if value.literal is not None:
        return len(value.literal.lstrip("0")) or 1, 0
    type_ = number_type(value, node)
    match = DECIMAL.fullmatch(type_)
    return (int(match[1]), int(match[2])) if match else (_DIGITS[type_], 0)


def kind_of(value: Value, node: exp.Expr) -> str:
    """Return what values are compared as."""
    type_ = value.type
    if not isinstance(type_, str) or not (type_ in _ORDERED or DECIMAL.fullmatch(type_)):
        raise UnjudgedError(f"compares {type_!s:.100} in {node.sql('spark'):.100}")
    return "number" if DECIMAL.fullmatch(type_) or type_ in (*INTEGERS, "float", "double") else type_


def are_told_apart(value: Value) -> bool:
    """Tell whether rows can be grouped by values; by structs some can be too, and by variants none."""
    return isinstance(value.type, str) and (value.type in _TOLD_APART or DECIMAL.fullmatch(value.type) is not None)


def have_common_type(values: Iterable[Value]) -> bool:
    """Tell whether numbers that are compared are cast to a type that holds all of them; else Spark makes nulls of some.

    Of a whole number that is a literal, Spark counts its own digits in some places, and those of its type in others.
    """
    types = [str(value.type) for value in values]
    if not any(DECIMAL.fullmatch(type_) for type_ in types) or {"float", "double"} & set(types):
        return True
    places = [_places(type_) for type_ in types]
    return max(before for before, _ in places) + max(behind for _, behind in places) <= MAX_DIGITS


def is_narrowed(one: Value, other: Value) -> bool:
    """Tell whether of two numbers that are computed or compared one is cast to fewer digits than its type has.

    So Spark does with a whole number that is a literal beside a decimal, and says that the cast may give null.
    """
    return any(DECIMAL.fullmatch(str(value.type)) for value in (one, other)) and any(
        value.literal is not None and (len(value.literal.lstrip("0")) or 1) < _DIGITS[str(value.type)]
        for value in (one, other)
    )


def _places(type_: str) -> tuple[int, int]:
    """Return how many digits a whole number or a decimal has before its point, and behind it."""
    match = DECIMAL.fullmatch(type_)
    return (int(match[1]) - int(match[2]), int(match[2])) if match else (_DIGITS[type_], 0)


def is_day(text: str) -> bool:
    """Tell whether a text is a day, as dates are written."""
    try:
        return bool(_DAY.fullmatch(text) and date.fromisoformat(text))
    except ValueError:
        return False


def may_make_null(given: str, to: str) -> bool:
    """Tell whether Spark says of a CAST that it may give null of what is none, though by its defaults it raises."""
    if given == "void":
        return False
    if to in INTEGERS and given not in INTEGERS:
        return True
    if to == "date":
        return given == "timestamp_ntz"
    if not DECIMAL.fullmatch(to):
        return False
    if given in ("float", "double"):
        return True
    (before, behind), (room, room_behind) = _places(given), _places(to)
    holds_all = room >= before and room_behind >= behind
    # Of decimals with more room before the point Spark says so too, though digits behind it are rounded away.
    return not holds_all and not (DECIMAL.fullmatch(given) and room > before)


def cast_type(value: Value, wanted: exp.DataType, node: exp.Expr) -> str:
    """Return the type of a CAST that Spark has, and that gives no null of what is none."""
    name = wanted.this.value
    numbers = [each.name for each in wanted.expressions]
    type_ = str(value.type)
    is_null = type_ == "void"
    is_number = is_null or type_ in (*INTEGERS, "float", "double") or bool(DECIMAL.fullmatch(type_))
    if name == "DECIMAL" and len(numbers) == 2 and all(text.isdigit() for text in numbers) and is_number:
        digits, scale = int(numbers[0]), int(numbers[1])
        if 0 < digits <= MAX_DIGITS and scale <= digits:
            return f"decimal({digits},{scale})"
    to = None if numbers else _CAST_TO.get(name)
    if to is not None and (is_null or (is_number and to != "date")):
        return to
    if to == "string" and (type_ in _ORDERED):
        return to
    if to == "date" and type_ in ("timestamp", "timestamp_ntz", "date"):
        return to
    raise UnjudgedError(f"has {node.sql('spark'):.100}, of {type_:.100}")
