"""`FROM … INSERT INTO … INSERT INTO …`: a statement to its user, several to Spark: all or nothing in a transaction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from lockstep.catalog import TransactionalCatalog
from lockstep.timeline.entry import Entry
from tests.support.sparks import since

pytestmark = pytest.mark.long

ROWS = "FROM (SELECT explode(sequence(1, 3)) AS id)"
BOTH = f"{ROWS} INSERT INTO a SELECT id INSERT INTO b SELECT id + 10 WHERE id > 1"


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


@pytest.mark.parametrize(
    "text",
    [
        BOTH,
        f"WITH r AS (SELECT * {ROWS}) FROM r INSERT OVERWRITE a SELECT id INSERT INTO a SELECT id + 10",
        f"{ROWS} INSERT INTO a SELECT id INSERT INTO b REPLACE WHERE id > 1 SELECT id WHERE id > 1",
        pytest.param(f"{ROWS} INSERT INTO a BY NAME SELECT id INSERT INTO b BY NAME SELECT id", id="by name"),
        pytest.param(f"{ROWS} INSERT INTO IDENTIFIER('a') SELECT id INSERT INTO b SELECT id", id="identifier"),
        pytest.param(f"BEGIN {BOTH}; END", id="in a script"),
    ],
)
def test_outside_a_transaction_it_is_refused_before_anything_is_written(session: Any, text: str) -> None:
    before = newest(session).version
    with pytest.raises(PySparkException, match="between BEGIN and COMMIT") as refused:
        session.sql(text).collect()
    assert refused.value.getSqlState() == "0A000"
    assert (ids(session, "a"), ids(session, "b")) == ([], [])
    assert newest(session).version == before


def test_so_it_is_where_a_table_of_the_lake_is_named_by_its_path(session: Any, tmp_path: Path) -> None:
    """A path may be a table of the lake, so any is refused beside one that is; two paths are plain Delta's."""
    folder = session.sql("DESCRIBE DETAIL b").first().location
    plain = tmp_path / "plain"
    session.range(0).selectExpr("CAST(id AS INT) AS id").write.format("delta").save(str(plain))
    a, before = "lake.default.a", newest(session).version
    session.sql("USE spark_catalog")
    for first, second in ((a, f"delta.`{folder}`"), (f"delta.`{folder}`", a), (a, f"delta.`{plain}`")):
        with pytest.raises(PySparkException, match="each table by its name") as refused:
            session.sql(f"{ROWS} INSERT INTO {first} SELECT id INSERT INTO {second} SELECT id").collect()
        assert refused.value.getSqlState() == "0A000"
    session.sql("USE lake")
    assert (ids(session, "a"), ids(session, "b"), newest(session).version) == ([], [], before)


@since("4.1", "parameters for parsers")
def test_so_it_is_with_parameters(session: Any) -> None:
    with pytest.raises(PySparkException, match="between BEGIN and COMMIT"):
        session.sql(f"{ROWS} INSERT INTO a SELECT :n INSERT INTO b SELECT id WHERE id = :n", args={"n": 2})
    assert ids(session, "a") == []


def test_a_transaction_has_all_of_it_or_nothing(session: Any) -> None:
    before = newest(session).version
    session.sql("BEGIN")
    session.sql(BOTH)
    session.sql("COMMIT")
    assert (ids(session, "a"), ids(session, "b")) == ([1, 2, 3], [12, 13])
    entry = newest(session)
    assert entry.version == before + 1
    assert {write.name.table for write in entry.writes} == {"a", "b"}
    with pytest.raises((PySparkException, Py4JJavaError), match="boom"):
        session.sql(f"BEGIN ATOMIC {ROWS} INSERT INTO a SELECT id INSERT INTO b SELECT raise_error('boom'); END")
    assert (ids(session, "a"), ids(session, "b")) == ([1, 2, 3], [12, 13])
    assert newest(session).version == before + 1


def test_a_single_table_of_the_lake_is_written_as_ever(session: Any, tmp_path: Any) -> None:
    elsewhere = "spark_catalog.default.elsewhere"
    session.sql(f"CREATE TABLE {elsewhere} (id INT) USING delta")
    try:
        session.sql(f"{ROWS} INSERT INTO {elsewhere} SELECT id INSERT INTO a SELECT id")
        session.sql(f"{ROWS} INSERT OVERWRITE DIRECTORY '{tmp_path}/d' USING parquet SELECT id INSERT INTO b SELECT id")
        assert ids(session, "a") == ids(session, "b") == ids(session, elsewhere) == [1, 2, 3]
        session.sql(f"{ROWS} INSERT INTO {elsewhere} SELECT id INSERT INTO {elsewhere} SELECT id")
        assert len(ids(session, elsewhere)) == 9
    finally:
        session.sql(f"DROP TABLE {elsewhere}")
