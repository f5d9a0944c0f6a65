"""Conditions and defaults of Spark's SQL that DuckDB may judge: those of which both certainly say the same."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lockstep.tables.queries import evaluate
from lockstep.tables.spark_sql import condition_in_duckdb, default_in_duckdb

TYPES: dict[str, Any] = {
    "id": "long",
    "n": "integer",
    "s": "string",
    "t": "string",
    "day": "date",
    "x": "double",
    "f": "float",
    "dec": "decimal(10,2)",
    "b": "boolean",
    "ts": "timestamp",
    "st": {"type": "struct", "fields": []},
    'o"d': "long",
}

ROW = {
    "id": 5,
    "n": 7,
    "s": "it's",
    "t": "é\U0001f600",
    "day": dt.date(2024, 2, 29),
    "x": float("nan"),
    "dec": Decimal("0.50"),
    "b": True,
    'o"d': 1,
    "null": None,
}

JUDGED: list[tuple[str, bool]] = [
    ("id > 0", True),
    ("ID >= 6", False),
    ("id <> 5", False),
    ("id != n", True),
    ("id == 5", True),
    ("id <=> 5", True),
    ("id > -5", True),
    ("`id` < n", True),
    ('`o"d` = 1', True),
    ("5 = id", True),
    ("NOT (id = 5)", False),
    ('s = "it\'s"', True),
    ("s IN ('a', \"it's\")", True),
    ("s NOT IN ('a')", True),
    ("s LIKE 'it%'", True),
    ("s LIKE '%x%'", False),
    ("length(t) = 2", True),
    ("char_length(s) <= 3", False),
    ("s < t", True),
    ("day >= '2024-02-29'", True),
    ("day < DATE '2024-02-29'", False),
    ("day BETWEEN '2024-01-01' AND '2024-12-31'", True),
    ("x > 1.5", True),
    ("x > 1", True),
    ("x = x", True),
    ("dec = 0.5", True),
    ("dec > 0", True),
    ("dec < 0.49", False),
    ("b", True),
    ("NOT b", False),
    ("b = true", True),
    ("id IS NOT NULL AND s IS NULL", False),
    ("id IS NULL OR (b AND id > 1)", True),
    ("id IN (1, 5)", True),
]

NOT_JUDGED = [
    "id + 1 > 0",
    "id % 2 = 0",
    "id / 2 > 1",
    "-id < 0",
    "abs(id) > 0",
    "upper(s) = 'A'",
    "s = 5",
    "id = '5'",
    "id > 0.5",
    "id > x",
    "f > 1",
    "f = f",
    "ts > '2024-01-01'",
    "ts = ts",
    "day > 'today'",
    "day > current_date()",
    "s RLIKE 'a'",
    "s LIKE 'a_'",
    r"s = 'it\'s'",
    r"s LIKE 'a\%'",
    "s = 'it''s'",
    "s LIKE t",
    "st IS NULL",
    "st.a > 1",
    "nosuch > 1",
    "id",
    "1",
    "NULL",
    "id > (SELECT 1)",
    "id IN (SELECT 1)",
    "id > 5L",
    "x > 1e3",
    "CASE WHEN b THEN true END",
    "id > 0; SELECT 1",
    "",
    "(",
    "id > ALL(1)",
    "exists(array(1), y -> y > 0)",
    "id > 99999999999999999999",
    "t.id > 0",
    "cast(s AS INT) > 1",
    "b > 0",
    "length(id) > 1",
    "s || t = 'x'",
    "coalesce(id, 0) > 0",
    "id > NULL",
    "rand() > 0.5",
    "s COLLATE UTF8_LCASE = 'a'",
]


@pytest.mark.parametrize(("text", "expected"), JUDGED)
def test_what_is_judged(text: str, expected: bool) -> None:
    sql = condition_in_duckdb(text, TYPES)
    assert sql is not None
    row = pa.Table.from_pylist([ROW])
    assert evaluate({"target": row}, f"SELECT {sql} AS v FROM target").column("v")[0].as_py() is expected


@pytest.mark.parametrize("text", NOT_JUDGED)
def test_what_is_not(text: str) -> None:
    assert condition_in_duckdb(text, TYPES) is None


@pytest.mark.parametrize(
    ("text", "type_", "expected"),
    [
        ("5", "long", "5"),
        ("-5", "byte", "-5"),
        ("5", "double", "5"),
        ("5", "float", "5"),
        ("5", "decimal(10,2)", "5"),
        ("1.5", "double", "1.5"),
        ("1.5", "decimal(3,1)", "1.5"),
        ("'it is'", "string", "'it is'"),
        ("NULL", "long", "NULL"),
        ("true", "boolean", "true"),
        ("DATE '2024-01-01'", "date", "DATE '2024-01-01'"),
        ("current_timestamp()", "timestamp", "now()"),
        ("CURRENT_TIMESTAMP", "timestamp", "now()"),
        ("5", "string", None),
        ("'5'", "long", None),
        ("1.5", "long", None),
        ("'2024-01-01'", "date", None),
        ("current_timestamp()", "timestamp_ntz", None),
        ("current_date()", "date", None),
        ("uuid()", "string", None),
        ("1 + 1", "long", None),
        (r"'a\n'", "string", None),
        ("array(1)", {"type": "array"}, None),
        ("id", "long", None),
    ],
)
def test_defaults(text: str, type_: Any, expected: str | None) -> None:
    assert default_in_duckdb(text, type_) == expected
