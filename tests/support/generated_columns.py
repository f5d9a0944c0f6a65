"""Generated columns that are computed without Spark; a test has Spark compute the same over values at the edges."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pyarrow as pa

BASE = pa.schema(
    [
        ("id", pa.int64()),
        ("i", pa.int32()),
        ("s", pa.int16()),
        ("b", pa.int8()),
        ("x", pa.string()),
        ("y", pa.date32()),
        ("n", pa.timestamp("us")),
        ("z", pa.timestamp("us", "UTC")),
        ("g", pa.float64()),
    ]
)

EXPRESSIONS = {
    "id": "long",
    "id + 1": "long",
    "id + 1L": "long",
    "id + -1": "long",
    "id - i * 2": "long",
    "i * s": "integer",
    "s + b": "short",
    "-b": "byte",
    "b + 1": "integer",
    "(id + 1) * 3": "long",
    "CAST(id AS STRING)": "string",
    "CAST(i AS BIGINT)": "long",
    "CAST(b AS SMALLINT)": "short",
    "CAST(b + 1 AS SMALLINT)": "short",
    "CAST(y AS STRING)": "string",
    "CAST(n AS DATE)": "date",
    "CAST(y AS DATE)": "date",
    "DATE(n)": "date",
    "YEAR(y)": "integer",
    "month(y)": "integer",
    "DAY(y)": "integer",
    "YEAR(n)": "integer",
    "MONTH(n)": "integer",
    "day(n)": "integer",
    "YEAR(y) * 10000 + MONTH(y) * 100 + DAY(y)": "integer",
    "SUBSTRING(x, 1, 2)": "string",
    "substr(x, 2)": "string",
    "SUBSTRING(x FROM 3 FOR 0)": "string",
    "LENGTH(x)": "integer",
    "x || '-' || CAST(i AS STRING)": "string",
    "concat(x, 'it', CAST(y AS STRING))": "string",
    "string(i) || '\u2019{#} \"'": "string",
    "int(b) + len(x)": "integer",
    "CAST(i AS LONG) /* as a long */": "long",
}
"""By expression, its type."""

_TEXTS = ["", "a", "ab", "äöü", "e\u0301a", "👩‍👧x", "\u4e2d\u6587\u5b57", " a ", "%_'", None]
_DAYS = [
    date(1, 1, 1),
    date(1582, 10, 4),
    date(1582, 10, 15),
    date(1899, 12, 31),
    date(1969, 12, 31),
    date(1970, 1, 1),
    date(2000, 2, 29),
    date(2026, 12, 31),
    date(9999, 12, 31),
    None,
]
_TIMES = [
    "0001-01-01T00:00:00",
    "1582-10-04T23:59:59.999999",
    "1582-10-15T00:00:00.000001",
    "1900-01-01T00:00:00",
    "1969-12-31T23:59:59.999999",
    "1969-12-31T00:00:00",
    "1970-01-01T00:00:00",
    "2026-03-29T02:30:00",
    "9999-12-31T23:59:59.999999",
]


def edges() -> dict[str, list[Any]]:
    """Return rows with values at the edges, none of which overflows."""
    numbers = [0, 1, -1, 7, -7, 100, -100, 60, -60, None]
    return {
        "id": [2**60, -(2**60), 0, -1, 9, -9, 2**31, -(2**31), 123456789012, None],
        "i": [2**16, -(2**16), *numbers[2:]],
        "s": [32000, -32000, *numbers[2:]],
        "b": [127, -127, *numbers[2:]],
        "x": _TEXTS,
        "y": _DAYS,
        "n": [*map(datetime.fromisoformat, _TIMES), None],
    }
