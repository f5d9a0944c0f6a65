"""May a data file hold a row that satisfies a condition? May one row satisfy two conditions?

    >>> may_match("((id = 5) AND (name IS NOT NULL))", FileValues({}, '{"minValues": {"id": 7}}'))
    False
    >>> may_both_match("(id = 5)", "(id BETWEEN 1 AND 9)")
    True

"No" is a proof, "yes" is not: a wrong "no" would lose a conflict, and with it serializability. So whatever is not
understood here, in the text or in the statistics, may match.

A condition is the text that Catalyst's `Expression.sql` gives of an *analyzed* expression over columns by their
physical names, unqualified. Relied upon is, of such texts, that

- both sides of a comparison have the same type, so that a literal tells its column's: the analyzer casts what has not;
- a literal of a collated string says so (`'a' collate UTF8_LCASE`), and is not understood here;
- `TIMESTAMP '…'` is in UTC, which must be the session's time zone when the text is made;
- a column stands for what is stored: one of type CHAR, which Spark pads when it reads, must not be given;
- a column called `true`, `false` or `null` stands in backquotes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from lockstep.caches import MIB, remembered
from lockstep.delta.pruning import conditions
from lockstep.delta.pruning.conditions import (
    FALSE,
    NULL,
    TRUE,
    UNKNOWN,
    Comparison,
    Condition,
    Conjunction,
    Constant,
    Disjunction,
)
from lockstep.delta.pruning.file_bounds import NAN, FileValues, Path, possible, read_date, read_number, read_timestamp
from lockstep.delta.pruning.ranges import (
    EVERYTHING,
    NOTHING,
    Kind,
    Range,
    Ranges,
    above,
    below,
    complement,
    points,
    starting_with,
)
from lockstep.delta.pruning.trees import is_read

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = ["FileValues", "may_any_both_match", "may_any_match", "may_both_match", "may_match"]

_CHARACTERS_AT_MOST = 16 * 1024
_DEPTH_AT_MOST = 32
"""Of AND, OR and NOT in one another."""
_VALUES_AT_MOST = 128
"""Of an IN list; a longer one is judged by its least and its greatest value."""

_KEPT_BYTES = 16 * MIB
_FACTOR = 80
"""So many bytes of conditions are kept; one takes so many for each character of its text at most, as measured."""


def may_match(predicate: str, file: FileValues) -> bool:
    """Return whether a file may hold a row that satisfies a predicate; false only if it surely holds none.

    A predicate is compiled once, and the statistics of the last files are kept decoded: of two loops over predicates
    and files, the one over the files should be outside.

    Args:
        predicate: Spark SQL as the module describes it. An empty one, one that cannot be read or one of more than
            16,384 characters matches everything.
        file: what the log says of the file; deleted rows count as rows.
    """
    return bool(conditions.outcomes(_compiled(predicate), partial(possible, file)) & TRUE)


def may_any_match(predicates: frozenset[str], file: FileValues) -> bool:
    """Return whether a file may hold a row that satisfies one of some predicates, each as `may_match` takes it."""
    return bool(conditions.outcomes(_united(predicates), partial(possible, file)) & TRUE)


def may_any_both_match(predicates: frozenset[str], other: str) -> bool:
    """Return whether one row can satisfy one of some predicates and another one; false only if surely none can."""
    return conditions.may_both_be_true(_united(predicates), _compiled(other))


def _characters(predicates: frozenset[str]) -> int:
    return sum(map(len, predicates))


@remembered(_KEPT_BYTES, _FACTOR, _characters)
def _united(predicates: frozenset[str]) -> Condition:
    return conditions.united(_compiled(predicate) for predicate in sorted(predicates))


def may_both_match(one: str, other: str) -> bool:
    """Return whether one row can satisfy both predicates; false only if surely none can."""
    return conditions.may_both_be_true(_compiled(one), _compiled(other))


# --- from text --------------------------------------------------------------------------------------------------------

_OTHER_ESCAPE = re.compile(r"(?s)(?:[^\\]|\\[\\'])*+\\")
"""A backslash before anything but itself or a quote: Catalyst escapes nothing else, and readings of others differ."""
_NOT_A_COLUMN = re.compile(r"(?i)\bnot\s+(?:and|or|is|in|like)\b")
"""What a column called `not` comes to, which Catalyst does not quote: it reads as NOT of what follows."""


def _compiled(predicate: str) -> Condition:
    return UNKNOWN if len(predicate) > _CHARACTERS_AT_MOST else _parsed(predicate)


@remembered(_KEPT_BYTES, _FACTOR)
def _parsed(predicate: str) -> Condition:
    if _OTHER_ESCAPE.match(predicate) or _NOT_A_COLUMN.search(predicate):
        return UNKNOWN
    from sqlglot import exp, parse_one

    try:
        tree = parse_one(predicate, into=exp.Condition, read="spark")
        return _condition(tree, _DEPTH_AT_MOST) if is_read(tree) else UNKNOWN
    except Exception:  # noqa: BLE001  # whatever a parser of others stumbles over, the answer is known: unknown
        return UNKNOWN


def _condition(tree: exp.Expr, depth: int) -> Condition:
    tree = _bare(tree)
    if not depth:
        return UNKNOWN
    if tree.key in ("and", "or"):
        parts = tuple(_condition(part, depth - 1) for part in _operands(tree))
        return Conjunction(parts) if tree.key == "and" else Disjunction(parts)
    if tree.key == "not":
        return conditions.negated(_condition(tree.this, depth - 1))
    if tree.key == "null":
        return Constant(NULL)
    if tree.key == "boolean":
        return Constant(TRUE if tree.this else FALSE)
    if column := _column(tree):
        return _compared(column, "eq", _Literal(Kind.BOOLEAN, value=True))
    return _CONDITIONS.get(tree.key, _unknown)(tree)


def _bare(tree: exp.Expr) -> exp.Expr:
    while tree.key == "paren":
        tree = tree.this
    return tree


def _operands(tree: exp.Expr) -> list[exp.Expr]:
    """Return what a chain of one operator joins, however it is nested: Catalyst nests a long AND deeply."""
    operands = []
    stack = [tree]
    while stack:
        each = _bare(stack.pop())
        if each.key == tree.key:
            stack += [each.expression, each.this]
        else:
            operands.append(each)
    return operands


def _column(tree: exp.Expr) -> Path | None:
    """Return the path of a column or of a field of a struct, None if the tree is something else."""
    names: list[str] = []
    tree = _bare(tree)
    while tree.key == "dot":
        names.insert(0, _name(tree.expression))
        tree = tree.this
    if tree.key != "column":
        return None
    names[:0] = [_name(tree.args[part]) for part in ("catalog", "db", "table", "this") if tree.args.get(part)]
    return tuple(names) if all(names) else None


def _name(tree: exp.Expr) -> str:
    return str(tree.this) if tree.key == "identifier" else ""


# --- tests ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Literal:
    """A value and its kind; the kind is None for NULL."""

    kind: Kind | None
    value: Any = None


_MIRRORED = {"eq": "eq", "neq": "neq", "nullsafeeq": "nullsafeeq", "lt": "gt", "lte": "gte", "gt": "lt", "gte": "lte"}
_TRUE_IN: Mapping[str, Callable[[Any], Ranges]] = {
    "eq": lambda value: points([value]),
    "nullsafeeq": lambda value: points([value]),
    "neq": lambda value: complement(points([value])),
    "lt": partial(below, inclusive=False),
    "lte": partial(below, inclusive=True),
    "gt": partial(above, inclusive=False),
    "gte": partial(above, inclusive=True),
}


def _unknown(_tree: exp.Expr) -> Condition:
    return UNKNOWN


def _comparison(tree: exp.Expr) -> Condition:
    for left, right, operator in (
        (tree.this, tree.expression, tree.key),
        (tree.expression, tree.this, _MIRRORED[tree.key]),
    ):
        if (column := _column(left)) and (literal := _literal(right)):
            return _compared(column, operator, literal)
    return UNKNOWN


def _compared(column: Path, operator: str, literal: _Literal) -> Condition:
    if literal.kind is None:
        return _is_null(column) if operator == "nullsafeeq" else Constant(NULL)
    true_in = _TRUE_IN[operator](literal.value)
    return Comparison(column, literal.kind, true_in, complement(true_in), FALSE if operator == "nullsafeeq" else NULL)


def _is_null(column: Path) -> Condition:
    return Comparison(column, None, NOTHING, EVERYTHING, TRUE)


def _is(tree: exp.Expr) -> Condition:
    column = _column(tree.this)
    return _is_null(column) if column and tree.expression.key == "null" else UNKNOWN


def _between(tree: exp.Expr) -> Condition:
    column, low, high = _column(tree.this), _literal(tree.args["low"]), _literal(tree.args["high"])
    if column is None or low is None or high is None or tree.args.get("symmetric"):
        return UNKNOWN
    return Conjunction((_compared(column, "gte", low), _compared(column, "lte", high)))


def _in(tree: exp.Expr) -> Condition:
    column = _column(tree.this)
    members = tree.args.get("expressions")
    if column is None or not members:  # a query has no members
        return UNKNOWN
    literals = [_literal(member) for member in members]
    values = [literal.value for literal in literals if literal and literal.kind]
    kinds = {literal.kind if literal else None for literal in literals if literal is None or literal.kind}
    parts: list[Condition] = [Constant(NULL)] if len(values) < len(literals) else []
    if kinds:
        kind = kinds.pop()
        if kinds or kind is None:
            return UNKNOWN
        parts.append(_among(column, kind, points(values)))
    return Disjunction(tuple(parts))


def _among(column: Path, kind: Kind, values: Ranges) -> Condition:
    if len(values) <= _VALUES_AT_MOST:
        return Comparison(column, kind, values, complement(values), NULL)
    hull = (Range(values[0].lower, values[-1].upper),)
    return Comparison(column, kind, hull, EVERYTHING, NULL)


def _text_test(tree: exp.Expr) -> Condition:
    column, literal = _column(tree.this), _literal(tree.expression)
    if column is None or literal is None or literal.kind not in (None, Kind.STRING):
        return UNKNOWN
    if literal.kind is None:
        return Constant(NULL)
    if tree.key == "like":
        return _like(column, literal.value)
    true_in = starting_with(literal.value) if tree.key == "startswith" else EVERYTHING
    false_in = complement(true_in) if tree.key == "startswith" else EVERYTHING
    return Comparison(column, Kind.STRING, true_in, false_in, NULL)


_LIKE = re.compile(r"(?s)((?:[^\\%_]|\\[\\%_])*+)(.*)")


def _like(column: Path, pattern: str) -> Condition:
    r"""Judge a pattern by what stands before its first wildcard; a backslash makes one of `%`, `_` and `\` ordinary."""
    beginning, rest = _LIKE.fullmatch(pattern).groups()  # type: ignore[union-attr]  # it matches every text
    if rest.startswith("\\"):
        return UNKNOWN
    prefix = re.sub(r"(?s)\\(.)", r"\1", beginning)
    true_in = starting_with(prefix) if rest else points([prefix])
    return Comparison(column, Kind.STRING, true_in, complement(true_in) if rest in ("", "%") else EVERYTHING, NULL)


_CONDITIONS: Mapping[str, Callable[[exp.Expr], Condition]] = {
    **dict.fromkeys(_TRUE_IN, _comparison),
    "is": _is,
    "between": _between,
    "in": _in,
    **dict.fromkeys(("like", "startswith", "endswith", "contains"), _text_test),
}
"""By sqlglot's name of an operator."""


# --- literals ---------------------------------------------------------------------------------------------------------


def _literal(tree: exp.Expr, *, minus: bool = False) -> _Literal | None:
    """Return a literal's value, None if the tree is no literal or one that is not understood."""
    tree = _bare(tree)
    match tree.key:
        case "null":
            return _Literal(None)
        case "boolean":
            return _Literal(Kind.BOOLEAN, bool(tree.this))
        case "literal":
            return _Literal(Kind.STRING, tree.this) if tree.args["is_string"] else _number(tree.this)
        case "hexstring":
            return _Literal(Kind.BINARY, bytes.fromhex(tree.this))
        case "neg":
            return None if minus else _negative(_literal(tree.this, minus=True))
        case "cast" | "trycast":
            return _cast(tree, minus=minus)
    return None


def _negative(literal: _Literal | None) -> _Literal | None:
    match literal:
        case _Literal(Kind.NUMBER, number):
            return _Literal(Kind.NUMBER, -number if isinstance(number, int) else number.copy_negate())
        case _Literal(Kind.FLOAT | Kind.DOUBLE as kind, (is_nan, number)):
            return _Literal(kind, NAN if is_nan else (False, -number))
    return None


def _number(text: str) -> _Literal | None:
    """Read a number without a suffix: one with an exponent is a double."""
    if re.fullmatch("[0-9]{1,40}", text):
        return _Literal(Kind.NUMBER, int(text))
    if re.fullmatch(r"[0-9]{1,40}\.[0-9]{0,40}", text):
        return _Literal(Kind.NUMBER, Decimal(text))
    return _double(text)


def _cast(tree: exp.Expr, *, minus: bool) -> _Literal | None:
    """Read CAST of a literal, which is how sqlglot also reads DATE '…' and suffixes such as 5L."""
    inner = _literal(tree.this)
    type_name = tree.args["to"].this.name
    if inner is None or inner.kind is None:
        return inner
    if type_name in _INTEGER_BITS:
        return inner if _is_integer(inner, _INTEGER_BITS[type_name], minus=minus) else None
    if type_name == "DECIMAL":
        return _decimal(inner, [int(each.this.this) for each in tree.args["to"].expressions] or [10])
    if type_name == "DOUBLE" and inner.kind is Kind.DOUBLE:
        return inner
    text = inner.value if inner.kind is Kind.STRING else str(inner.value) if inner.kind is Kind.NUMBER else ""
    if type_name == "DOUBLE":
        return _double(text)
    if type_name == "FLOAT":
        return _float(text)
    return _moment(tree, type_name, text)


_INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_PARTICULAR = {
    "NaN": NAN,
    "Infinity": (False, float("inf")),
    "-Infinity": (False, float("-inf")),
}
_FLOAT_CHARACTERS_AT_MOST = 16
"""Java rounds a text to a float at once; by way of a double the same comes out for as many digits as a double has."""


def _is_integer(literal: _Literal, bits: int, *, minus: bool) -> bool:
    """Return whether an integer type holds a value as it is; below a minus that of -128Y is 128."""
    lowest, highest = (0, 2 ** (bits - 1)) if minus else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return literal.kind is Kind.NUMBER and isinstance(literal.value, int) and lowest <= literal.value <= highest


def _decimal(inner: _Literal, parameters: list[int]) -> _Literal | None:
    """Read a decimal that its type holds as it is: others are rounded, or overflow."""
    if inner.kind not in (Kind.NUMBER, Kind.STRING) or (value := read_number(str(inner.value))) is None:
        return None
    precision, scale = [*parameters, 0][:2]
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)  # not so of infinities and NaN alone
    fits = -exponent <= scale and len(digits) + exponent <= precision - scale
    return _Literal(Kind.NUMBER, value) if fits else None


def _double(text: str) -> _Literal | None:
    if text in _PARTICULAR:
        return _Literal(Kind.DOUBLE, _PARTICULAR[text])
    number = read_number(text)
    return None if number is None else _Literal(Kind.DOUBLE, (False, float(number)))


def _float(text: str) -> _Literal | None:
    if text in _PARTICULAR:
        return _Literal(Kind.FLOAT, _PARTICULAR[text])
    number = read_number(text) if len(text) <= _FLOAT_CHARACTERS_AT_MOST else None
    if number is None:
        return None
    (rounded,) = struct.unpack("<f", struct.pack("<f", number))  # one that is too large raises, and is unknown
    return _Literal(Kind.FLOAT, (False, rounded))


def _moment(tree: exp.Expr, type_name: str, text: str) -> _Literal | None:
    """Read a date or a timestamp.

    `TIMESTAMP '…'` alone is known to be in UTC; a cast of a string takes it to be in the session's time zone, which the
    text does not tell.
    """
    if type_name == "DATE":
        kind, value = Kind.DATE, read_date(text)
    elif type_name == "TIMESTAMPNTZ":
        kind, value = Kind.TIMESTAMP_NTZ, read_timestamp(text, zoned=False)
    elif type_name in ("TIMESTAMPTZ", "TIMESTAMPLTZ") and tree.key == "cast":
        kind, value = Kind.TIMESTAMP, read_timestamp(text, zoned=False)
    else:
        return None
    return None if value is None else _Literal(kind, value)
