"""Views and functions in a DataFrame that is used after what it was made in: which definition it has is judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from lockstep.spark.raised import from_spark
from tests.support.sparks import since

pytestmark = since("4.2", "views and functions in catalogs")

VIEW, FUNCTION = "TABLE lake.default.v", "SELECT lake.default.f(1) AS id"


@pytest.fixture(autouse=True)
def definitions(spark: Any) -> None:
    """Make a table, a view and a function that read no table, so that nothing but they can tell."""
    spark.sql("CREATE TABLE lake.default.u AS SELECT 1 AS id")
    spark.sql("CREATE VIEW lake.default.v AS SELECT 7 AS id")
    spark.sql("CREATE FUNCTION lake.default.f(x INT) RETURNS INT RETURN x")


def defines(session: Any, number: int) -> None:
    session.sql(f"CREATE OR REPLACE VIEW lake.default.v AS SELECT {number} AS id")
    session.sql(f"CREATE OR REPLACE FUNCTION lake.default.f(x INT) RETURNS INT RETURN {number}")


def replaces(session: Any, number: int) -> None:
    """Define them anew in a transaction that has read the table."""
    session.sql("BEGIN")
    session.sql("SELECT * FROM lake.default.u").collect()
    defines(session, number)
    session.sql("COMMIT")


def refused(frame: Any, table: str = "lake.default.u") -> str:
    with pytest.raises(PySparkException) as caught:
        frame.write.insertInto(table)
    error = from_spark(caught.value)
    assert error is not None, str(caught.value)
    return error.sqlstate


def rows(session: Any) -> list[int]:
    return sorted(row.id for row in session.sql("SELECT * FROM lake.default.u").collect())


@pytest.mark.parametrize("query", [VIEW, FUNCTION])
def test_what_a_rolled_back_transaction_had_defined_is_written_by_nobody(spark: Any, query: str) -> None:
    spark.sql("BEGIN")
    defines(spark, 1000)
    frame = spark.sql(query)
    assert [row.id for row in frame.collect()] == [1000]
    spark.sql("ROLLBACK")
    assert refused(frame) == "25P01"
    spark.sql("BEGIN")
    assert refused(frame) == "25P01"
    spark.sql("ROLLBACK")
    assert rows(spark) == [1]


@pytest.mark.parametrize("query", [VIEW, FUNCTION])
def test_what_a_transaction_had_defined_is_not_taken_for_what_is_defined_now(
    spark: Any, other: Any, query: str
) -> None:
    spark.sql("BEGIN")
    defines(spark, 50)
    inside = spark.sql(query)
    spark.sql("COMMIT")
    outside = spark.sql(query)
    replaces(other, 60)
    assert (refused(outside), refused(inside)) == ("40001", "25P01")
    assert rows(spark) == [1]


@pytest.mark.parametrize("query", [VIEW, FUNCTION])
def test_what_was_defined_after_a_savepoint_is_gone_with_it(spark: Any, query: str) -> None:
    spark.sql("BEGIN")
    defines(spark, 70)
    before = spark.sql(query)
    spark.sql("SAVEPOINT s")
    defines(spark, 80)
    after = spark.sql(query)
    after.write.insertInto("lake.default.u")
    assert rows(spark) == [1, 80]
    spark.sql("ROLLBACK TO s")
    assert refused(after) == "25P01"
    before.write.insertInto("lake.default.u")
    spark.sql("COMMIT")
    assert rows(spark) == [1, 70]


@pytest.mark.parametrize("query", [VIEW, FUNCTION])
def test_a_cache_of_what_a_transaction_had_defined_is_no_definition_to_others(
    spark: Any, other: Any, query: str
) -> None:
    """A cache answers every plan that is the same but for names: whoever asks for a 7 has used no definition."""
    spark.sql("BEGIN")
    defines(spark, 7)
    frame = spark.sql(query).cache()
    assert [row.id for row in frame.collect()] == [7]
    for session in (spark, other):
        assert session.sql("SELECT 7 AS id").collect() == [(7,)]
    with pytest.raises(PySparkException) as caught:
        spark.newSession().sql("SELECT 1 AS id").union(frame).collect()
    assert caught.value.getSqlState() in ("25001", "25P01")
    spark.sql("COMMIT")
    for session in (spark, other):
        assert session.sql("SELECT 7 AS id").collect() == session.sql(query).collect() == [(7,)]
    assert refused(frame) == "25P01", "cached or not"
    spark.sql(query).write.insertInto("lake.default.u")
    frame.unpersist()
    assert rows(spark) == [1, 7]


def test_a_transaction_may_use_what_it_has_defined_anew_since(spark: Any) -> None:
    """As in Spark: a DataFrame has the definition of when it was made."""
    spark.sql("BEGIN")
    defines(spark, 70)
    before = spark.sql(VIEW)
    defines(spark, 80)
    spark.sql("SAVEPOINT s")
    spark.sql("INSERT INTO lake.default.u VALUES (5)")
    spark.sql("ROLLBACK TO s")
    before.write.insertInto("lake.default.u")
    spark.sql("COMMIT")
    assert rows(spark) == [1, 70]


@pytest.fixture
def two(spark: Any, root: Path) -> Any:
    """The session, with another catalog of the same root."""
    spark.conf.set("spark.sql.catalog.zwei", "lockstep.spark.LockstepCatalog")
    spark.conf.set("spark.sql.catalog.zwei.root", str(root))
    spark.sql("SHOW NAMESPACES IN zwei").collect()  # so that it is there, whichever session is asked next
    return spark


@pytest.mark.parametrize("catalog", ["lake", "zwei"])
@pytest.mark.parametrize("target", ["lake", "zwei"])
def test_two_catalogs_of_a_root_have_one_definition(two: Any, other: Any, catalog: str, target: str) -> None:
    frame = two.sql(f"TABLE {catalog}.default.v")
    replaces(other, 8)
    assert refused(frame, f"{target}.default.u") == "40001"
    two.sql("BEGIN")
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    assert caught.value.getSqlState() == "25001"
    two.sql("ROLLBACK")


def test_a_default_means_the_same_however_the_others_are_given(spark: Any) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.sql(
        "CREATE FUNCTION lake.default.at(x INT, y BIGINT DEFAULT unix_seconds(CAST('2024-01-01' AS TIMESTAMP)), "
        "z INT DEFAULT 5, a INT DEFAULT 6) RETURNS STRING RETURN concat_ws(' ', x, y, z, a)"
    )
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    call = "SELECT lake.default.at({})"
    for arguments in ("1", "x => 1"):
        assert spark.sql(call.format(arguments)).collect() == [("1 1704067200 5 6",)], arguments
    assert spark.sql(call.format("x => 1, y => 2, a => 3")).collect() == [("1 2 5 3",)], "a literal means one thing"
    with pytest.raises(PySparkException, match="without its parameter y") as caught:
        spark.sql(call.format("x => 1, a => 3")).collect()
    assert caught.value.getSqlState() == "0A000"


@pytest.mark.parametrize("query", [VIEW, FUNCTION])
def test_what_was_defined_after_an_older_version_is_not_used_as_of_it(spark: Any, query: str) -> None:
    (before,) = spark.sql("SELECT max(version) FROM lake.system.history").first()
    same = spark.sql(query)
    defines(spark, 8)
    frame = spark.sql(query)
    spark.sql(f"BEGIN READ ONLY AS OF VERSION {before}")
    assert [row.id for row in same.collect()] == [7 if query == VIEW else 1]
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    assert caught.value.getSqlState() == "25001"
    spark.sql("COMMIT")
    assert [row.id for row in frame.collect()] == [8]
