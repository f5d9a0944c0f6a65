"""Conditions, defaults and properties of tables that are judged without Spark: Spark says the same of them."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from lockstep.tables.queries import evaluate
from lockstep.tables.spark_sql import condition_in_duckdb, default_in_duckdb
from tests.support.spark_conditions import JUDGED, NOT_JUDGED, ROW, SCHEMA, TYPES
from tests.support.table_properties import VALUES

pytestmark = pytest.mark.long

ROWS: list[dict[str, Any]] = [
    ROW,
    dict.fromkeys(ROW),
    {
        "id": -(2**63), "n": 2**31 - 1, "s": "", "t": "it's", "day": dt.date(1, 1, 1), "x": -0.0,
        "dec": Decimal("-99999999.99"), "b": False, "b2": None, 'o"d': 0, "a`b": -1, "y": -128,
        "wide": Decimal("-99999999.990000"),
    },
    {
        "id": 1, "n": 1, "s": "A%_\n\u00a0", "t": "\uffff", "day": dt.date(9999, 12, 31), "x": float("inf"),
        "dec": Decimal("1.00"), "b": False, "b2": True, 'o"d': 1, "a`b": 1, "y": 1,
        "wide": Decimal("123456789012345678901234.000001"),
    },
    {"id": 5, "n": 5, "s": "a", "t": "a", "x": 0.1, "dec": Decimal("0.10"), "b": True, "b2": True, "y": 127},
]  # fmt: skip

NUMBERED = pa.schema([("place", pa.int64()), *SCHEMA])
TABLE = pa.Table.from_pylist([{"place": i, **row} for i, row in enumerate(ROWS)], NUMBERED)

OPERANDS = [
    *("id", "n", "y", "s", "t", "day", "x", "dec", "wide", "b", "b2", "`a``b`", "DEC", "length(s)", "len(t)"),
    *("1", "-1", "5", "0.1", "-.5", "1.00", "0.123456789", "123456789012345678", "'a'", "''", "'A%'", '"a"', "true"),
    *("DATE '2024-02-29'", "'2024-02-29'", "'0001-01-01'", "(b)", "(id)", "(b = b2)", "(s IS NULL)"),
    *("NULL", "1L", "x + 1"),
]  # fmt: skip
PATTERNS = ["'%'", "'a%'", "'%A'", "''", "'%%a%'", "('it%')", "'a_'", "t"]
OPERATORS = ["=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"]


def made_up(chance: random.Random, depth: int = 3) -> str:
    """Return a condition of which no one knows whether Spark takes it."""

    def operand() -> str:
        return chance.choice(OPERANDS)

    match chance.randrange(12 if depth else 8):
        case 0 | 1 | 2:
            return f"{operand()} {chance.choice(OPERATORS)} {operand()}"
        case 3:
            return f"{operand()} {chance.choice(OPERATORS)} {operand()} {chance.choice(OPERATORS)} {operand()}"
        case 4:
            return f"{operand()} IS {chance.choice(['', 'NOT '])}NULL"
        case 5:
            return f"{operand()} {chance.choice(['', 'NOT '])}IN ({operand()}, {operand()})"
        case 6:
            return f"{operand()} {chance.choice(['', 'NOT '])}BETWEEN {operand()} AND {operand()}"
        case 7:
            return f"{operand()} {chance.choice(['', 'NOT '])}LIKE {chance.choice(PATTERNS)}"
        case 8 | 9:
            return f"{made_up(chance, depth - 1)} {chance.choice(['AND', 'OR'])} {made_up(chance, depth - 1)}"
        case 10:
            return f"{chance.choice(['NOT ', '!', 'NOT NOT '])}{made_up(chance, depth - 1)}"
    return f"({made_up(chance, depth - 1)}) {chance.choice(['', '= b', 'IS NULL', 'IN (b, b2)', 'AND b'])}"


def in_duckdb(conditions: list[str]) -> list[tuple[bool | None, ...]]:
    """Return, row by row, what the conditions come to without Spark."""
    texts = [condition_in_duckdb(each, TYPES) for each in conditions]
    asked = ", ".join(f"{text} AS c{i}" for i, text in enumerate(texts))
    answer = evaluate({"target": TABLE}, f"SELECT {asked} FROM target ORDER BY place")
    return list(zip(*(column.to_pylist() for column in answer.columns), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_spark_says_the_same_of_what_is_judged_without_it(spark: Any, ansi: str) -> None:
    """Those of the table of cases, and those of a thousand made up ones that are judged at all."""
    chance = random.Random(20)
    listed = [text for text, _ in JUDGED] + NOT_JUDGED
    texts = [*listed, *(made_up(chance) for _ in range(3000))]
    conditions = [text for text in dict.fromkeys(texts) if condition_in_duckdb(text, TYPES) is not None]
    assert len(conditions) > len(JUDGED) + 400
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    frame = spark.createDataFrame(TABLE).coalesce(1)
    for first in range(0, len(conditions), 60):
        some = conditions[first : first + 60]
        found = frame.orderBy("place").selectExpr(*(f"{text} AS c{i}" for i, text in enumerate(some))).collect()
        expected = in_duckdb(some)
        for place, (theirs, ours) in enumerate(zip(found, expected, strict=True)):
            judged = zip(some, theirs, ours, strict=True)
            differing = [(text, said, taken) for text, said, taken in judged if said is not taken]
            assert not differing, ROWS[place]


@pytest.mark.slow
def test_spark_gives_the_defaults_that_are_given_without_it(spark: Any) -> None:
    defaults = {
        "long": ["5", "-5", "CAST(5 AS INT)", "CAST(NULL AS BIGINT)", "cast(-5 as tinyint)"],
        "double": ["5", "1.5", "0.1", "CAST(1.5 AS DOUBLE)"],
        "float": ["5", "123456789"],
        "decimal(10,2)": ["5", "1.5", "CAST(1.5 AS DECIMAL(10, 2))"],
        "string": ["'it is'", "CAST('a' AS STRING)"],
        "date": ["DATE '2024-02-29'", "CAST('2024-02-29' AS DATE)"],
        "boolean": ["true"],
    }
    names = {"long": "BIGINT"}
    cases = [(type_, text) for type_, texts in defaults.items() for text in texts]
    columns = ", ".join(f"c{i} {names.get(type_, type_)} DEFAULT {text}" for i, (type_, text) in enumerate(cases))
    spark.sql("CREATE NAMESPACE lake.py")
    spark.sql(
        f"CREATE TABLE lake.py.d (id INT, {columns}) TBLPROPERTIES (delta.feature.allowColumnDefaults = 'supported')"
    )
    spark.sql("INSERT INTO lake.py.d (id) VALUES (1)")
    [row] = spark.table("lake.py.d").drop("id").toArrow().to_pylist()
    for (type_, text), value in zip(cases, row.values(), strict=True):
        sql = default_in_duckdb(text, type_)
        assert sql is not None, text
        given = evaluate({}, f"SELECT CAST({sql} AS {names.get(type_, type_)}) AS v").column("v")[0].as_py()
        assert given == value, text


def is_taken_by_delta(spark: Any, key: str, value: str) -> bool:
    """Tell whether Delta's own table of properties takes a value."""
    jvm = spark._jvm
    said = jvm.java.util.HashMap()
    said.put(key, value)
    try:
        jvm.org.apache.spark.sql.delta.DeltaConfigs.validateConfigurations(
            jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(said)
        )
    except (Py4JJavaError, PySparkException):
        return False
    return True


def test_delta_takes_the_values_of_properties_that_are_taken_without_it(spark: Any) -> None:
    """And no others, but for a mode that is spelled in other letters than the one which is stored."""
    for key, (taken, refused) in VALUES.items():
        if key.startswith("delta."):
            assert [value for value in taken if not is_taken_by_delta(spark, key, value)] == [], key
            assert [value for value in refused if is_taken_by_delta(spark, key, value) and value != "NAME"] == [], key
    assert not is_taken_by_delta(spark, "delta.targetFileSize", "1")
