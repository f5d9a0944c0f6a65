"""`FROM … INSERT INTO … INSERT INTO …`: one statement, so one database version or none, though Spark runs several."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from lockstep.catalog import TransactionalCatalog
from lockstep.timeline.entry import Entry
from tests.support.sparks import since

ROWS = "FROM (SELECT explode(sequence(1, 3)) AS id)"
HALF = f"{ROWS} INSERT INTO a SELECT id INSERT INTO b SELECT raise_error('boom')"

FAILED = (PySparkException, Py4JJavaError)
"""What PySpark raises where a task fails."""


@pytest.fixture
def session(spark: Any) -> Any:
    """Return a session whose lake has two empty tables."""
    spark.sql("USE lake")
    spark.sql("CREATE TABLE a (id INT)")
    spark.sql("CREATE TABLE b (id INT)")
    return spark


def ids(session: Any, table: str) -> list[int]:
    return sorted(row.id for row in session.table(table).collect())


def newest(session: Any) -> Entry:
    timeline = TransactionalCatalog.open(session.conf.get("spark.sql.catalog.lake.root")).timeline
    return timeline.entries(timeline.head.version - 1)[0]


def test_all_of_them_are_one_database_version(session: Any) -> None:
    before = newest(session).version
    assert session.sql(f"{ROWS} INSERT INTO a SELECT id INSERT INTO b SELECT id + 10 WHERE id > 1").collect() == []
    assert (ids(session, "a"), ids(session, "b")) == ([1, 2, 3], [12, 13])
    entry = newest(session)
    assert entry.version == before + 1
    assert {write.name.table for write in entry.writes} == {"a", "b"}
    assert "INSERT INTO b" in entry.transaction.statements[0]


def test_what_fails_leaves_nothing_of_any(session: Any) -> None:
    before = newest(session).version
    with pytest.raises(FAILED, match="boom"):
        session.sql(HALF).collect()
    assert (ids(session, "a"), ids(session, "b")) == ([], [])
    assert newest(session).version == before
    session.sql("INSERT INTO a VALUES (7)")  # no transaction is left open
    assert newest(session).version == before + 1


def test_overwrites_of_one_table_and_common_table_expressions(session: Any) -> None:
    session.sql("INSERT INTO a VALUES (0)")
    before = newest(session).version
    session.sql(f"WITH r AS (SELECT * {ROWS}) FROM r INSERT OVERWRITE a SELECT id INSERT INTO a SELECT id + 10")
    assert ids(session, "a") == [1, 2, 3, 11, 12, 13]
    assert newest(session).version == before + 1


def test_inside_a_transaction_it_is_a_part_of_that(session: Any) -> None:
    session.sql("BEGIN")
    session.sql(f"{ROWS} INSERT INTO a SELECT id INSERT INTO b SELECT id")
    assert ids(session, "a") == ids(session, "b") == [1, 2, 3]
    session.sql("ROLLBACK")
    assert ids(session, "a") == ids(session, "b") == []
    session.sql(f"BEGIN ATOMIC {ROWS} INSERT INTO a SELECT id INSERT INTO b SELECT id; INSERT INTO a VALUES (9); END")
    assert (ids(session, "a"), ids(session, "b")) == ([1, 2, 3, 9], [1, 2, 3])


@since("4.1", "parameters for parsers")
def test_with_parameters(session: Any) -> None:
    before = newest(session).version
    session.sql(f"{ROWS} INSERT INTO a SELECT :n INSERT INTO b SELECT id WHERE id = :n", args={"n": 2})
    assert (ids(session, "a"), ids(session, "b")) == ([2, 2, 2], [2])
    assert newest(session).version == before + 1


def test_names_that_are_found_later_are_refused_or_taken_along(session: Any) -> None:
    """Whatever `IDENTIFIER` is to this Spark when the statement begins: nothing of it is seen without the rest."""
    before = newest(session).version
    text = f"{ROWS} INSERT INTO IDENTIFIER('a') SELECT id INSERT INTO IDENTIFIER('b') SELECT raise_error('boom')"
    with pytest.raises(FAILED, match=r"boom|one after the other"):
        session.sql(text).collect()
    assert newest(session).version == before


def test_a_table_elsewhere_is_refused_as_in_a_transaction(session: Any) -> None:
    other = "spark_catalog.default.elsewhere"
    session.sql(f"CREATE TABLE {other} (id INT) USING delta")
    try:
        with pytest.raises(PySparkException, match="transaction"):
            session.sql(f"{ROWS} INSERT INTO {other} SELECT id INSERT INTO a SELECT id").collect()
        assert ids(session, "a") == ids(session, other) == []
    finally:
        session.sql(f"DROP TABLE {other}")


def test_tables_that_are_all_elsewhere_are_spark_s_affair(session: Any) -> None:
    for name in ("one", "two"):
        session.sql(f"CREATE TABLE spark_catalog.default.{name} (id INT) USING delta")
    try:
        into = "INSERT INTO spark_catalog.default"
        before = newest(session).version
        session.sql(f"{ROWS} {into}.one SELECT id {into}.two SELECT id")
        assert ids(session, "spark_catalog.default.one") == ids(session, "spark_catalog.default.two") == [1, 2, 3]
        assert newest(session).version == before
    finally:
        for name in ("one", "two"):
            session.sql(f"DROP TABLE spark_catalog.default.{name}")
