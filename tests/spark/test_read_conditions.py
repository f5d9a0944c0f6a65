"""Conditions whose text says something else than they do: what a query reads by them is not told by the text."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException

T, OUT = "lake.default.t", "lake.default.out"


@pytest.fixture
def tables(spark: Any) -> None:
    """Make a table that is read, with one row that no condition here finds, and one that is only written."""
    spark.sql(f"CREATE TABLE {T} (n DOUBLE, s STRUCT<a: STRING, b: STRING>) USING delta")
    spark.sql(f"INSERT INTO {T} VALUES (1, NAMED_STRUCT('a', '1', 'b', '1'))")
    spark.sql(f"CREATE TABLE {OUT} (who INT, n INT) USING delta PARTITIONED BY (who)")


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(
    "condition",
    [
        "CAST(s AS STRUCT<b: STRING, a: STRING>).b = 'xyz'",
        "TRY_CAST(s AS STRUCT<a: INT, b: INT>).a IS NULL",
        "s.a COLLATE UTF8_LCASE = 'XYZ'",
        "s.a COLLATE UTF8_LCASE IN ('XYZ', 'R')",
    ],
)
def test_a_row_that_a_condition_finds_is_a_row_that_was_read(spark: Any, other: Any, condition: str) -> None:
    query = f"SELECT * FROM {T} WHERE {condition}"
    for session in (spark, other):
        session.sql("BEGIN ISOLATION LEVEL SERIALIZABLE")
    assert spark.sql(query).collect() == []
    assert other.sql(f"SELECT * FROM {OUT} WHERE who = 2").collect() == []
    spark.sql(f"INSERT INTO {OUT} VALUES (2, 1)")
    other.sql(f"INSERT INTO {T} VALUES (10, NAMED_STRUCT('a', 'xyz', 'b', 'no'))")
    other.sql("COMMIT")
    with pytest.raises(PySparkException) as refused:
        spark.sql("COMMIT")
    assert refused.value.getSqlState() == "40001"
    assert spark.sql(query).count() == 1
