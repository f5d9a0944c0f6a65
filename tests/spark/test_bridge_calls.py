"""How often Spark asks the host: each request crosses from the JVM to Python and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException

from lockstep.spark.bridge import is_open
from lockstep.spark.host.host import Host
from tests.support.interposed import host_of
from tests.support.sparks import since

pytestmark = pytest.mark.long


@pytest.fixture
def operations(spark: Any, asked: list[dict[str, Any]]) -> Callable[[str], list[str]]:
    """Return a function that runs a statement and returns what was asked for it."""

    def run(statement: str) -> list[str]:
        asked.clear()
        spark.sql(statement).collect()
        return [request["op"] for request in asked]

    return run


@pytest.fixture
def tables(spark: Any) -> None:
    for table in "abc":
        spark.sql(f"CREATE TABLE {table} AS VALUES (1) AS t(id)")


@pytest.mark.usefixtures("tables")
def test_what_a_transaction_asks(spark: Any, operations: Callable[[str], list[str]]) -> None:
    """A query asks once, whatever it reads, a statement that writes once more; nobody asks what an answer has said."""
    joined = "a JOIN b USING (id) WHERE id IN (TABLE c) AND EXISTS (SELECT * FROM b AS again WHERE again.id = a.id)"
    once, twice = ["resolve"], ["resolve", "stage"]
    expected = {
        f"SELECT id FROM {joined}": once,
        "BEGIN": ["begin"],
        "SELECT * FROM a": once,
        f"SELECT * FROM {joined}": once,
        "WITH x AS (TABLE a) SELECT * FROM x, b, (TABLE c)": once,
        "INSERT INTO a VALUES (2)": twice,
        "INSERT INTO a SELECT b.id + 1 FROM b JOIN c USING (id)": twice,
        "DELETE FROM a WHERE id = 2": twice,
        "MERGE INTO a USING (TABLE b UNION ALL VALUES (7)) AS s ON a.id = s.id WHEN NOT MATCHED THEN INSERT *": twice,
        f"SELECT count(*) FROM {joined}": once,
        "COMMIT": ["commit"],
    }
    assert {statement: operations(statement) for statement in expected} == expected
    spark.sql("BEGIN")
    assert operations("ROLLBACK") == ["rollback"]


@pytest.mark.usefixtures("tables")
def test_what_is_asked_for_alone(spark: Any, operations: Callable[[str], list[str]]) -> None:
    """What is asked ahead is what a statement's own plan names: no times, and nothing that is found on the way."""
    spark.sql("BEGIN")
    assert operations("SELECT * FROM a JOIN b VERSION AS OF 0 USING (id)") == ["resolve"] * 2
    assert operations("INSERT OVERWRITE a TABLE b") == ["resolve", "resolve", "stage"]


@since("4.2", "views in catalogs")
@pytest.mark.usefixtures("tables")
def test_a_view_is_asked_for_and_then_what_it_reads(spark: Any, operations: Callable[[str], list[str]]) -> None:
    spark.sql("CREATE VIEW v AS SELECT a.id FROM a JOIN b USING (id)")
    spark.sql("BEGIN")
    assert operations("SELECT * FROM c JOIN v USING (id)") == ["resolve", "view", "resolve"]


@pytest.mark.usefixtures("tables")
def test_after_a_refusal_it_is_asked_what_has_ended(
    spark: Any, other: Any, operations: Callable[[str], list[str]], asked: list[dict[str, Any]]
) -> None:
    """A COMMIT that is refused may leave the transaction open, and only the host knows."""
    spark.sql("INSERT INTO a VALUES (1)")
    spark.sql("BEGIN")
    spark.sql("DELETE FROM a")
    other.sql("DELETE FROM a")
    with pytest.raises(PySparkException, match="40001"):
        operations("COMMIT")
    assert [request["op"] for request in asked] == ["commit", "ended"]
    assert spark.sql("SELECT * FROM a").count() == 0


def ask_nobody_what_has_ended(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no COMMIT say what is to be forgotten, as one that is found out later, and nobody there to be asked."""
    answer = host.call

    def call(request: str) -> str:
        if json.loads(request)["op"] == "ended":
            return json.dumps({"error": {"condition": "LOCKSTEP_NO_HOST", "message": "gone", "sqlstate": "55000"}})
        said = json.loads(answer(request))
        if json.loads(request)["op"] == "commit" and "ok" in said:
            said["ok"]["ended"] = None
        return json.dumps(said)

    monkeypatch.setattr(host, "call", call)


@pytest.mark.usefixtures("tables")
def test_a_commit_is_done_though_nobody_can_be_asked_what_has_ended(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever heard otherwise would do all of it again."""
    before = spark.sql("SELECT * FROM a").count()
    spark.sql("BEGIN")
    spark.sql("INSERT INTO a VALUES (1)")
    ask_nobody_what_has_ended(host_of(spark), monkeypatch)
    assert spark.sql("COMMIT").first().tables_changed == 1
    monkeypatch.undo()
    assert not is_open(spark)
    assert spark.sql("SELECT * FROM a").count() == before + 1


@pytest.mark.usefixtures("tables")
def test_a_refusal_is_told_though_nobody_can_be_asked_what_has_ended(
    spark: Any, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a host died of the COMMIT and no other one starts: it is the COMMIT's error that says what to do."""
    spark.sql("INSERT INTO a VALUES (1)")
    spark.sql("BEGIN")
    spark.sql("DELETE FROM a")
    other.sql("DELETE FROM a")
    ask_nobody_what_has_ended(host_of(spark), monkeypatch)
    with pytest.raises(PySparkException) as refused:
        spark.sql("COMMIT")
    monkeypatch.undo()
    assert refused.value.getSqlState() == "40001"
    spark.sql("ROLLBACK")
    assert spark.sql("SELECT * FROM a").count() == 0
    spark.sql("BEGIN")
    spark.sql("ROLLBACK")


# --- what is told ahead is read, and nothing else is ------------------------------------------------------------------


def skewed(spark: Any, other: Any, read: Callable[[], object]) -> str | None:
    """Return how a transaction is refused that reads something and writes c, where another read c and wrote b."""
    spark.sql("BEGIN ISOLATION LEVEL SERIALIZABLE")
    read()
    spark.sql("INSERT INTO c VALUES (1)")
    other.sql("INSERT INTO b SELECT count(*) FROM c")
    try:
        spark.sql("COMMIT")
    except PySparkException as error:
        return error.getSqlState()
    return None


@pytest.mark.usefixtures("tables")
def test_a_read_that_was_told_ahead_is_recorded(spark: Any, other: Any) -> None:
    """In whole, if no execution says more; a table that was only named is not read."""
    both = "SELECT * FROM a, b"
    assert skewed(spark, other, lambda: spark.sql(both).collect()) == "40001"
    assert skewed(spark, other, lambda: spark.sql(f"{both} WHERE b.id = 5").collect()) is None, "no such row came"
    assert skewed(spark, other, lambda: spark.sql(both)) == "40001", "whatever is done with it yet"

    def fail() -> None:
        with pytest.raises(PySparkException):
            spark.sql("SELECT * FROM a, a VERSION AS OF 99, b")

    assert skewed(spark, other, fail) is None, "Spark never came to b"


def once_told(spark_session: Any, monkeypatch: pytest.MonkeyPatch, other: Callable[[], object]) -> None:
    """Have something done once, right after the next answer about a table, before it is loaded."""
    host = host_of(spark_session)
    answer = host.call
    others = [other]

    def call(request: str) -> str:
        said = answer(request)
        if json.loads(request)["op"] == "resolve" and others:
            others.pop()()
        return said

    monkeypatch.setattr(host, "call", call)


@pytest.mark.usefixtures("tables")
def test_a_statement_alone_has_read_what_it_was_told_ahead(
    spark: Any, other: Any, monkeypatch: pytest.MonkeyPatch, spark_session: Any
) -> None:
    """Another reads c, and writes b, once the statement was told of all that it reads."""
    once_told(spark_session, monkeypatch, lambda: other.sql("INSERT INTO b SELECT count(*) FROM c"))
    with pytest.raises(PySparkException, match="40001"):
        spark.sql("INSERT INTO c SELECT count(*) FROM a, b")


@pytest.mark.usefixtures("tables")
def test_what_was_told_is_void_once_the_transaction_has_changed(
    spark: Any, monkeypatch: pytest.MonkeyPatch, spark_session: Any, asked: list[dict[str, Any]]
) -> None:
    """A thread of the session renames a table between the answer about it and its loading: who loads it asks again."""
    spark.sql("BEGIN")
    once_told(spark_session, monkeypatch, lambda: spark.sql("ALTER TABLE b RENAME TO d"))
    with pytest.raises(PySparkException, match="42P01"):
        spark.sql("SELECT * FROM a, b")
    assert [request["table"] for request in asked if request["op"] == "resolve"][:2] == ["a", "b"]
