"""All that a statement reads is of one database version, whatever is committed while Spark analyzes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from tests.support.both import Both
from tests.support.interposed import Interposer, host_of
from tests.support.sparks import since

pytestmark = pytest.mark.long

IN_BOTH = [
    "SELECT a.id FROM a, b WHERE a.id = b.id",
    "SELECT id FROM a WHERE id IN (TABLE b)",
    "SELECT id FROM a WHERE id = (TABLE b)",
    "SELECT id FROM a WHERE EXISTS (SELECT * FROM (TABLE b) x WHERE x.id = a.id)",
    "SELECT DISTINCT id FROM (TABLE a UNION ALL TABLE b)",
    "WITH x AS (TABLE b) SELECT a.id FROM a JOIN x USING (id)",
    "SELECT a.id FROM a, LATERAL (SELECT * FROM b WHERE b.id = a.id)",
    "SELECT a.id FROM IDENTIFIER('a') a JOIN IDENTIFIER('b') b USING (id)",
    "EXECUTE IMMEDIATE 'SELECT id FROM a WHERE id IN (TABLE b)'",
    "SELECT a.id FROM a JOIN of_session USING (id)",
    "SELECT id FROM a WHERE id = in_b()",
    "SELECT a.id FROM a FOR SYSTEM_TIME AS OF current_timestamp() + INTERVAL 1 HOUR JOIN b USING (id)",
    "SELECT a.id FROM a JOIN b FOR SYSTEM_TIME AS OF current_timestamp() + INTERVAL 1 HOUR USING (id)",
]
"""Queries of the id in tables a and b, which is the same in both at every database version."""

OF_VIEWS = [
    "SELECT a.id FROM a JOIN v USING (id)",
    "SELECT id FROM a WHERE id IN (TABLE w)",
    "SELECT id FROM v WHERE id IN (SELECT id FROM a)",
]


@pytest.fixture
def both(spark: Any, root: Path) -> Both:
    """Return tables a and b, in the lake of the session `spark`."""
    return Both(root)


@pytest.fixture
def interposer(spark_session: Any, monkeypatch: pytest.MonkeyPatch) -> Interposer:
    host = host_of(spark_session)
    interposer = Interposer(host)
    monkeypatch.setattr(host, "call", interposer.call)
    return interposer


def read_while_others_commit(spark: Any, interposer: Interposer, both: Both, queries: list[str]) -> Any:
    """Return, for each query, whether it read one of the two versions that there were; or else what it read."""
    found: dict[str, Any] = {}
    for query in queries:
        interposer.once(both.commit)
        rows = spark.sql(query).collect()
        assert interposer.has_happened
        found[query] = rows in ([(both.id - 1,)], [(both.id,)]) or rows
    return found


def test_each_kind_of_query_reads_one_version(spark: Any, both: Both, interposer: Interposer) -> None:
    spark.sql("CREATE TEMPORARY VIEW of_session AS TABLE b")
    spark.sql("CREATE TEMPORARY FUNCTION in_b() RETURNS BIGINT RETURN (SELECT max(id) FROM b)")
    found = read_while_others_commit(spark, interposer, both, IN_BOTH)
    assert found == dict.fromkeys(IN_BOTH, True)


@since("4.2", "views in catalogs")
def test_each_kind_of_query_of_views_reads_one_version(spark: Any, both: Both, interposer: Interposer) -> None:
    spark.sql("CREATE VIEW v AS TABLE b")
    spark.sql("CREATE VIEW w AS TABLE v")
    found = read_while_others_commit(spark, interposer, both, OF_VIEWS)
    assert found == dict.fromkeys(OF_VIEWS, True)


ALONE = ["TABLE a", "(TABLE a)", "FROM a", "SELECT * FROM a", "EXECUTE IMMEDIATE 'TABLE a'"]
"""SQL that is a table and no more."""


def test_a_query_of_a_table_alone_keeps_its_version(spark: Any, both: Both) -> None:
    frames = {query: spark.sql(query) for query in ALONE}
    both.commit()
    assert {query: frame.collect() for query, frame in frames.items()} == {query: [(0,)] for query in ALONE}


def test_a_table_alone_is_read_afresh(spark: Any, both: Both) -> None:
    frame = spark.table("a")
    assert frame.collect() == [(0,)]
    both.commit()
    assert spark.table("a").collect() == [(1,)]
    assert frame.where("id >= 0").collect() == [(1,)], "as a Delta table is"


def test_a_statement_is_known_however_deep_delta_goes_meanwhile(
    spark: Any, both: Both, interposer: Interposer, root: Path
) -> None:
    """A table whose state is not known, and that has no checksum, takes Delta several queries while it is loaded."""
    cold = [f"c{number}" for number in range(5)]
    both.create(*cold)
    for checksum in root.glob("default/c*/_delta_log/*.crc"):
        checksum.unlink()
    interposer.once(both.commit)
    assert spark.sql(f"SELECT a.id, b.id FROM a, {', '.join(cold)}, b").collect() == [(0, 0)]


def test_a_host_that_starts_again_in_the_middle_goes_on_with_the_statement(
    spark: Any, both: Both, interposer: Interposer
) -> None:
    def restart() -> None:
        both.commit()
        interposer.restart()

    interposer.once(restart)
    assert spark.sql("SELECT a.id, b.id FROM a, b").collect() == [(0, 0)]
    assert spark.sql("SELECT a.id, b.id FROM a, b").collect() == [(1, 1)]


# --- what a statement that writes has read ---------------------------------------------------------------------------


def lost_by(spark: Any, interposer: Interposer, statement: str, between: Callable[[], object]) -> str | None:
    """Return how a statement is refused while something else happens after it has read its first table."""
    interposer.once(between)
    try:
        spark.sql(statement)
    except PySparkException as error:
        return error.getSqlState()
    finally:
        assert interposer.has_happened
    return None


def test_a_clone_has_read_its_source(spark: Any, other: Any, both: Both, interposer: Interposer) -> None:
    spark.sql("DELETE FROM b")

    def skew() -> None:
        other.sql("INSERT INTO a SELECT count(*) + 5 FROM b")

    lost = lost_by(spark, interposer, "CREATE OR REPLACE TABLE b SHALLOW CLONE a", skew)
    assert lost == "40001"
    assert lost_by(spark, interposer, "CREATE OR REPLACE TABLE b SHALLOW CLONE a", lambda: None) is None


def test_a_clone_of_a_version_that_it_asks_for_has_not_read_a_newer_one(
    spark: Any, other: Any, both: Both, interposer: Interposer
) -> None:
    spark.sql("DELETE FROM b")

    def skew() -> None:
        other.sql("INSERT INTO a SELECT count(*) + 5 FROM b")

    asked = "CREATE OR REPLACE TABLE b SHALLOW CLONE a VERSION AS OF 0"
    assert lost_by(spark, interposer, asked, skew) is None


def test_a_time_that_a_statement_asks_a_table_for_is_read(
    spark: Any, other: Any, both: Both, interposer: Interposer
) -> None:
    spark.sql("CREATE TABLE times AS SELECT current_timestamp() AS at")
    spark.sql("CREATE TABLE copied (id BIGINT)")
    both.commit()

    def skew() -> None:
        other.sql("INSERT INTO times SELECT TIMESTAMP '2001-01-01' FROM copied HAVING count(*) = 0")

    # Spark asks for the table that is written, then for that of times. Once it is told of both, the other commits.
    asked = "INSERT INTO copied SELECT id FROM a TIMESTAMP AS OF (SELECT max(at) FROM times)"
    assert lost_by(spark, interposer, asked, lambda: interposer.once(skew)) == "40001"


# --- beside plain Delta writers ---------------------------------------------------------------------------------------


def ids(spark: Any, query: str) -> list[int]:
    return sorted(row[0] for row in spark.sql(query).collect())


@since("4.2", "views in catalogs")
def test_a_plain_writers_commit_is_noticed_below_views(spark: Any, both: Both) -> None:
    spark.sql("CREATE VIEW v AS TABLE b")
    spark.sql("CREATE VIEW w AS SELECT * FROM v WHERE id >= 0")
    for number, query in enumerate(
        (
            "SELECT * FROM v",
            "TABLE v",
            "SELECT * FROM w",
            "SELECT w.id FROM a, w",
            "SELECT id FROM w WHERE id >= (TABLE a)",
        ),
        1,
    ):
        both.plain_append("b", number)
        assert ids(spark, query) == list(range(number + 1)), query


def test_a_plain_writers_commit_is_noticed_below_what_a_session_made(spark: Any, both: Both, root: Path) -> None:
    spark.sql("CREATE TEMPORARY VIEW of_session AS TABLE b")
    spark.sql("CREATE TEMPORARY FUNCTION most() RETURNS BIGINT RETURN (SELECT max(id) FROM b)")
    both.plain_append("b", 1)
    assert ids(spark, "SELECT of_session.id FROM a, of_session") == [0, 1]
    both.plain_append("b", 2)
    assert ids(spark, "SELECT most() FROM a") == [2]


def test_a_plain_writers_commit_that_is_found_late_is_not_seen_beside_what_changed_before(
    spark: Any, both: Both, interposer: Interposer, root: Path
) -> None:
    """The statement has read a at version 0, so it cannot go on to a database version in which a is another."""
    spark.sql("CREATE TEMPORARY VIEW of_session AS TABLE b")

    def commit() -> None:
        both.commit()
        both.plain_append("b", 7)

    interposer.once(commit)
    assert ids(spark, "SELECT a.id * 10 + of_session.id FROM a, of_session") == [0]
    assert ids(spark, "SELECT a.id * 10 + of_session.id FROM a, of_session") == [11, 17]


def test_a_statement_moves_on_to_what_is_found_late_if_nothing_that_it_read_is_different_there(
    spark: Any, both: Both, interposer: Interposer, root: Path
) -> None:
    spark.sql("CREATE TEMPORARY VIEW of_session AS TABLE b")
    interposer.once(lambda: both.plain_append("b", 7))
    assert ids(spark, "SELECT of_session.id FROM a, of_session, a AS again") == [0, 7]


def test_a_statement_asks_once_about_what_it_names_and_looks_at_each_table_once(
    spark: Any, both: Both, interposer: Interposer
) -> None:
    spark.sql("CREATE TEMPORARY VIEW of_session AS SELECT * FROM b WHERE id IN (TABLE a)")
    interposer.once(lambda: None)
    spark.sql("SELECT * FROM a, b, a AS c WHERE a.id IN (TABLE b)").collect()
    assert [len(asked["mentioned"]) for asked in interposer.asked] == [2]
    interposer.once(lambda: None)
    spark.sql("SELECT * FROM a, of_session").collect()
    assert [len(asked["mentioned"]) for asked in interposer.asked] == [1, 1], "below a view it is asked for then"
