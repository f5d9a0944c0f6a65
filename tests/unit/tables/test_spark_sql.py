"""Conditions and defaults of Spark's SQL that DuckDB may judge: those of which both certainly say the same."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lockstep.tables.queries import evaluate
from lockstep.tables.spark_sql import condition_in_duckdb, default_in_duckdb
from tests.support.spark_conditions import JUDGED, NOT_JUDGED, ROW, SCHEMA, TYPES


@pytest.mark.parametrize(("text", "expected"), JUDGED)
def test_what_is_judged(text: str, expected: bool) -> None:
    sql = condition_in_duckdb(text, TYPES)
    assert sql is not None
    row = pa.Table.from_pylist([ROW], schema=SCHEMA)
    assert evaluate({"target": row}, f"SELECT {sql} AS v FROM target").column("v")[0].as_py() is expected


@pytest.mark.parametrize("text", NOT_JUDGED)
def test_what_is_not(text: str) -> None:
    assert condition_in_duckdb(text, TYPES) is None


@pytest.mark.parametrize("more", ["IN (b, b2)", "BETWEEN b AND b2", "= b"])
def test_conditions_within_conditions_take_no_longer_than_their_texts(more: str) -> None:
    text = "b"
    for _ in range(60):
        text = f"({text}) {more}"
    sql = condition_in_duckdb(text, TYPES)
    assert (sql is not None) == (more == "= b"), "of IN and BETWEEN each says twice what it is asked of"


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
        ("CAST(5 AS BIGINT)", "long", "5"),
        ("cast(5 as tinyint)", "long", "5"),
        ("CAST('a' AS STRING)", "string", "'a'"),
        ("CAST('2024-02-29' AS DATE)", "date", "DATE '2024-02-29'"),
        ("CAST(1.5 AS DOUBLE)", "double", "1.5"),
        ("CAST(1.5 AS DECIMAL(10, 2))", "decimal(10,2)", "1.5"),
        ("CAST(NULL AS STRING)", "string", "NULL"),
        ("CAST(300 AS TINYINT)", "long", None),
        ("CAST('5' AS INT)", "long", None),
        ("CAST(1.5 AS INT)", "integer", None),
        ("CAST(1.555 AS DECIMAL(3, 2))", "decimal(3,2)", None),
        ("CAST(1.5 AS DOUBLE)", "decimal(10,2)", None),
        ("CAST('2024-02-30' AS DATE)", "date", None),
        ("CAST(current_timestamp() AS DATE)", "date", None),
        ("TRY_CAST(5 AS BIGINT)", "long", None),
        ("300", "byte", None),
        ("2147483648", "integer", None),
        ("1.555", "decimal(3,2)", None),
        ("10", "decimal(3,2)", None),
        ("DATE '2024-02-30'", "date", None),
        ("'a' 'b'", "string", None),
    ],
)
def test_defaults(text: str, type_: Any, expected: str | None) -> None:
    assert default_in_duckdb(text, type_) == expected
