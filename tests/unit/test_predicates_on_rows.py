"""Conditions and statistics held against rows: what a row satisfies, no file that has it may be denied."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from lockstep.delta.pruning.predicates import FileValues, may_both_match, may_match

Row = dict[str, Any]
LONG = "c" * 31
POOLS: dict[str, list[Any]] = {
    "id": [-3, 0, 1, 2, 7],
    "part": [1, 2, 3],
    "name": ["", "a", "ab", "abc", "b%", "b_", LONG, LONG + "\U0001f600x", LONG + "cc\U0001f600", LONG + "cd"],
    "day": [date(2024, 1, day) for day in (1, 2, 15)],
    "at": [datetime(2024, 1, 1, 0, 0, 0, micros, UTC) for micros in (0, 1, 999, 1000, 123456)],
    "price": [Decimal("-1.50"), Decimal("0.00"), Decimal("2.25")],
    "score": [float("-inf"), -0.5, 0.0, 0.1, 3.5, float("inf"), float("nan")],
    "flag": [False, True],
}
rows = st.fixed_dictionaries({column: st.one_of(st.none(), st.sampled_from(pool)) for column, pool in POOLS.items()})


@dataclass(frozen=True)
class Written:
    """A predicate as SQL, and as what it gives of a row: True, False or None."""

    sql: str
    of: Callable[[Row], bool | None]


def rendered(value: Any) -> str:
    """Write a literal as Catalyst does."""
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case float():
            particular = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(str(value))
            return f"CAST('{particular}' AS DOUBLE)" if particular else f"{value}D"
        case Decimal():
            return f"{value}BD"
        case datetime():
            return f"TIMESTAMP '{value:%Y-%m-%d %H:%M:%S.%f}'"
        case date():
            return f"DATE '{value}'"
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return "NULL"


def ordered(value: Any) -> Any:
    """Return what Spark's order of a value is Python's order of."""
    if isinstance(value, float):
        return (True, 0.0) if math.isnan(value) else (False, value)
    return value


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
MIRROR = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def compare(left: Any, sign: str, right: Any) -> bool | None:
    return None if left is None or right is None else OPERATORS[sign](ordered(left), ordered(right))


def both(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def inverse(value: bool | None) -> bool | None:
    return None if value is None else not value


def either(left: bool | None, right: bool | None) -> bool | None:
    return inverse(both(inverse(left), inverse(right)))


def literals(column: str) -> st.SearchStrategy[Any]:
    return st.one_of(st.sampled_from(POOLS[column]), st.none())


@st.composite
def comparisons(draw: st.DrawFn) -> Written:
    column = draw(st.sampled_from(list(POOLS)))
    sign, value = draw(st.sampled_from(list(OPERATORS))), draw(literals(column))
    if draw(st.booleans()):
        return Written(f"({column} {sign} {rendered(value)})", lambda row: compare(row[column], sign, value))
    return Written(f"({rendered(value)} {MIRROR[sign]} {column})", lambda row: compare(row[column], sign, value))


@st.composite
def null_tests(draw: st.DrawFn) -> Written:
    column = draw(st.sampled_from(list(POOLS)))
    value = draw(literals(column))
    return draw(
        st.sampled_from(
            [
                Written(f"({column} IS NULL)", lambda row: row[column] is None),
                Written(f"({column} IS NOT NULL)", lambda row: row[column] is not None),
                Written(
                    f"({column} <=> {rendered(value)})",
                    lambda row: ordered(row[column]) == ordered(value),
                ),
            ]
        )
    )


@st.composite
def memberships(draw: st.DrawFn) -> Written:
    column = draw(st.sampled_from(list(POOLS)))
    values = draw(st.lists(literals(column), min_size=1, max_size=4))

    def of(row: Row) -> bool | None:
        found: bool | None = False
        for value in values:
            found = either(found, compare(row[column], "=", value))
        return found

    return Written(f"({column} IN ({', '.join(map(rendered, values))}))", of)


@st.composite
def ranges(draw: st.DrawFn) -> Written:
    column = draw(st.sampled_from(list(POOLS)))
    low, high = draw(literals(column)), draw(literals(column))
    return Written(
        f"({column} BETWEEN {rendered(low)} AND {rendered(high)})",
        lambda row: both(compare(row[column], ">=", low), compare(row[column], "<=", high)),
    )


TEXT_TESTS: list[Written] = [
    Written("startswith(name, 'a')", lambda row: row["name"] and row["name"].startswith("a")),
    Written("endswith(name, 'b')", lambda row: row["name"] and row["name"].endswith("b")),
    Written("contains(name, 'b')", lambda row: row["name"] and "b" in row["name"]),
    Written("name LIKE 'ab%'", lambda row: row["name"] and row["name"].startswith("ab")),
    Written("name LIKE 'ab'", lambda row: row["name"] and row["name"] == "ab"),
    Written("name LIKE 'ab_'", lambda row: row["name"] and row["name"] == "abc"),
    Written(r"name LIKE 'b\\%'", lambda row: row["name"] and row["name"] == "b%"),
    Written(r"name LIKE 'b\\_%'", lambda row: row["name"] and row["name"].startswith("b_")),
    Written(f"name LIKE '{LONG}_%'", lambda row: row["name"] and row["name"].startswith(LONG) and row["name"] != LONG),
    Written("flag", lambda row: row["flag"]),
    Written("true", lambda row: True),
    Written("NULL", lambda row: None),
    Written("(length(name) = 2)", lambda row: None if row["name"] is None else len(row["name"]) == 2),
    Written("(id = part)", lambda row: compare(row["id"], "=", row["part"])),
]
"""No pattern here matches the empty string, so `and` gives what SQL does: null of null, and false of empty."""


def joined(parts: st.SearchStrategy[Written]) -> st.SearchStrategy[Written]:
    pairs = st.tuples(parts, parts)
    return st.one_of(
        parts.map(lambda a: Written(f"(NOT {a.sql})", lambda row: inverse(truth(a.of(row))))),
        pairs.map(
            lambda p: Written(
                f"({p[0].sql} AND {p[1].sql})", lambda row: both(truth(p[0].of(row)), truth(p[1].of(row)))
            )
        ),
        pairs.map(
            lambda p: Written(
                f"({p[0].sql} OR {p[1].sql})", lambda row: either(truth(p[0].of(row)), truth(p[1].of(row)))
            )
        ),
    )


def truth(value: Any) -> bool | None:
    return None if value is None else bool(value)


written = st.recursive(
    st.one_of(comparisons(), null_tests(), memberships(), ranges(), st.sampled_from(TEXT_TESTS)),
    joined,
    max_leaves=6,
)


# --- a writer of statistics -------------------------------------------------------------------------------------------


def cut(text: str, mark: str) -> str:
    """Cut a string off at 32 UTF-16 units, as Delta's older writers do: through a character, if it comes so."""
    units = text.encode("utf-16-le")
    return text if len(units) <= 64 else units[:64].decode("utf-16-le", errors="replace").replace("\ufffd", "?") + mark


def bound(value: Any, mark: str) -> Any:
    """Write a bound as Delta does: `mark` is what a string that was cut ends in."""
    match value:
        case datetime():
            return f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03}Z"
        case date():
            return value.isoformat()
        case str():
            return cut(value, mark)
        case Decimal():
            return float(value)
        case float() if value in (float("inf"), float("-inf")):
            return "Infinity" if value > 0 else "-Infinity"
    return value


def written_statistics(table: list[Row], *, part: Any, wide: bool, left_out: set[str]) -> FileValues:
    """Write what a log says of a file with these rows, some of it left out."""
    body: dict[str, Any] = {
        "numRecords": len(table),
        "minValues": {},
        "maxValues": {},
        "nullCount": {},
        "tightBounds": not wide,
    }
    for column in POOLS.keys() - {"part"}:
        values = [row[column] for row in table if row[column] is not None]
        numbers = [value for value in values if not (isinstance(value, float) and math.isnan(value))]
        nulls = len(table) - len(values)
        body["nullCount"][column] = nulls
        if numbers and column != "flag":
            body["minValues"][column] = bound(min(numbers), "")
            body["maxValues"][column] = bound(max(numbers), "\ufffd")
    for name in left_out:
        where, _, column = name.partition(".")
        body[where].pop(column, None)
    return FileValues({"part": None if part is None else str(part)}, json.dumps(body))


omissions = st.sets(
    st.sampled_from([f"{where}.{column}" for where in ("minValues", "maxValues", "nullCount") for column in POOLS]),
    max_size=2,
)


@given(
    st.lists(rows, min_size=1, max_size=3),
    st.lists(rows, max_size=1),
    literals("part"),
    written,
    omissions,
)
@settings(max_examples=150, deadline=None)
def test_a_file_with_a_row_that_satisfies_a_condition_may_match(
    live: list[Row], deleted: list[Row], part: Any, predicate: Written, left_out: set[str]
) -> None:
    table = [{**row, "part": part} for row in live + deleted]
    file = written_statistics(table, part=part, wide=bool(deleted), left_out=left_out)
    satisfied = any(predicate.of(row) for row in table[: len(live)])
    judged = may_match(predicate.sql, file)
    event(f"satisfied {satisfied}, judged {judged}")
    assert judged or not satisfied, predicate.sql


@given(st.lists(rows, min_size=1, max_size=4), written, written)
@settings(max_examples=120, deadline=None)
def test_conditions_that_one_row_satisfies_may_both_match(table: list[Row], one: Written, other: Written) -> None:
    satisfied = any(one.of(row) and other.of(row) for row in table)
    judged = may_both_match(one.sql, other.sql)
    event(f"satisfied {satisfied}, judged {judged}")
    assert judged or not satisfied, (one.sql, other.sql)
