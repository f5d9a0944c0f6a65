"""`replaceOn` and `replaceUsing` of a DataFrame's writer, for which Delta looks for rows in a clone of the session."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException

R, S = "lake.default.r", "lake.default.s"
"""A table whose rows are replaced, and one that tells which."""

ON_S = f"r.id = new.id AND r.n < (SELECT max(n) FROM {S} WHERE id = 1)"
"""Which rows are replaced, where a row of the other table has a greater number."""


@pytest.fixture(autouse=True)
def tables(spark: Any) -> None:
    """Make the tables, with a row each."""
    for table in (R, S):
        spark.sql(f"CREATE TABLE {table} (id INT, n INT) USING delta")
        spark.sql(f"INSERT INTO {table} VALUES (1, 1)")


def replace(session: Any, query: str, **options: str) -> None:
    session.sql(query).alias("new").write.mode("overwrite").options(**options).insertInto(R)


def replace_on(session: Any, condition: str = ON_S) -> None:
    replace(session, "SELECT 1 AS id, 9 AS n", replaceOn=condition, targetAlias="r")


def rows(session: Any, table: str = R) -> list[tuple[int, int]]:
    return sorted(tuple(row) for row in session.table(table).collect())


def test_a_condition_sees_what_the_transaction_wrote(spark: Any, other: Any) -> None:
    spark.sql("BEGIN")
    replace_on(spark)
    assert rows(spark) == [(1, 1), (1, 9)]
    spark.sql(f"INSERT INTO {S} VALUES (1, 5)")
    replace_on(spark)
    assert rows(spark) == [(1, 9), (1, 9)]
    assert rows(other) == [(1, 1)]
    spark.sql("COMMIT")
    assert rows(other) == [(1, 9), (1, 9)]


def test_a_condition_does_not_see_what_came_after_the_snapshot(spark: Any, other: Any) -> None:
    spark.sql("BEGIN ISOLATION LEVEL SNAPSHOT")
    other.sql(f"INSERT INTO {S} VALUES (1, 5)")
    replace_on(spark)
    spark.sql("COMMIT")
    assert rows(spark) == [(1, 1), (1, 9)]


@pytest.mark.parametrize("begin", ["BEGIN", None])
def test_what_a_condition_reads_is_judged(spark: Any, other: Any, begin: str | None) -> None:
    """Write skew: each reads what the other writes."""
    other.sql("BEGIN")
    other.sql(f"SELECT * FROM {R}").collect()
    other.sql(f"INSERT INTO {S} VALUES (1, 5)")
    if begin:
        spark.sql(begin)
    replace_on(spark)
    if begin:
        spark.sql("COMMIT")
    with pytest.raises(PySparkException) as caught:
        other.sql("COMMIT")
    assert caught.value.getSqlState() == "40001"


def test_new_rows_may_come_from_what_the_transaction_wrote(spark: Any) -> None:
    spark.sql("BEGIN")
    spark.sql(f"INSERT INTO {S} VALUES (1, 7), (2, 8)")
    replace(spark, f"SELECT id, max(n) AS n FROM {S} GROUP BY id", replaceUsing="id")
    spark.sql("COMMIT")
    assert rows(spark) == [(1, 7), (2, 8)]


def test_of_two_that_found_no_row_to_replace_one_commits(spark: Any, other: Any) -> None:
    for session in (spark, other):
        session.sql("BEGIN")
        replace(session, "SELECT 3 AS id, 3 AS n", replaceUsing="id")
    other.sql("COMMIT")
    with pytest.raises(PySparkException) as caught:
        spark.sql("COMMIT")
    assert caught.value.getSqlState() == "40001"
    assert rows(spark) == [(1, 1), (3, 3)]


@pytest.mark.parametrize("condition", ["id = 1", "n = 1"])
def test_a_table_whose_rows_are_replaced_by_save_as_table_is_not_read_by_its_path(
    spark: Any, other: Any, condition: str
) -> None:
    """Delta opens it without the description by which it is known that a name led to it."""
    spark.sql("BEGIN")
    spark.sql(f"INSERT INTO {R} VALUES (2, 2)")
    new = spark.sql("SELECT 1 AS id, 1 AS n")
    new.write.format("delta").mode("overwrite").option("replaceWhere", condition).saveAsTable(R)
    assert rows(other) == [(1, 1)]
    spark.sql("COMMIT")
    assert rows(other) == [(1, 1), (2, 2)]
