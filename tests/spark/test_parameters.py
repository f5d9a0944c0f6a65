"""Parameters of `spark.sql(…, args=…)`, by name and by position: wherever Spark has them, and in our own statements."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException

from lockstep.catalog import TransactionalCatalog
from tests.support.sparks import since

pytestmark = since("4.1", "parameters for parsers")

T = "lake.default.t"
AT_VERSION = f"SELECT id FROM {T} FOR SYSTEM_VERSION AS OF"


@pytest.fixture
def session(spark: Any) -> Any:
    """Return a session whose lake has a table t, empty at database version 1, with a row at version 2."""
    spark.sql(f"CREATE TABLE {T} (id INT, v STRING)")
    spark.sql(f"INSERT INTO {T} VALUES (1, 'a')")
    return spark


def test_queries_take_them(session: Any) -> None:
    later = datetime(2200, 1, 1, tzinfo=UTC)
    cases: list[tuple[str, Any]] = [
        (f"{AT_VERSION} :n WHERE id = :id", {"n": 2, "id": 1}),
        (f"{AT_VERSION} ? WHERE v = ?", [2, "a"]),
        (f"{AT_VERSION} :n AS then JOIN {T} AS now USING (id) WHERE now.v = :v", {"v": "a", "n": 2}),
        (f"SELECT id FROM {T} FOR SYSTEM_TIME AS OF :moment LIMIT :most", {"moment": later, "most": 5}),
        (f"SELECT id FROM {T} FOR SYSTEM_TIME AS OF ? WHERE id = ?", [later, 1]),
        (f"SELECT id FROM {T} VERSION AS OF :version", {"version": 1}),
    ]
    for text, args in cases:
        assert [row.id for row in session.sql(text, args=args).collect()] == [1], text


def test_a_value_is_taken_as_it_stands(session: Any) -> None:
    """Spark puts settings and variables of the environment in the places of ${…} in a text: not in those of a value."""
    value = "${env:PATH} ${system:java.version} ${spark.app.name} \\${env:PATH} it's 100% $ {} ${"
    session.sql(f"INSERT INTO {T} VALUES (2, :v)", args={"v": value})
    session.sql(f"INSERT INTO {T} VALUES (3, ?)", args=[value])
    session.sql(f"EXECUTE IMMEDIATE 'INSERT INTO {T} VALUES (4, :v)' USING '\\u0024{{env:PATH}}' AS v")
    session.sql(f"ALTER TABLE {T} SET TBLPROPERTIES ('said' = :v)", args={"v": value})
    stored = dict(session.sql(f"SELECT id, v FROM {T} WHERE id > 1").collect())
    assert stored == {2: value, 3: value, 4: "${env:PATH}"}
    assert session.sql(f"SELECT count(*) AS n FROM {T} WHERE v = :v", args={"v": value}).first().n == 2
    [said] = session.sql(f"SHOW TBLPROPERTIES {T} ('said')").collect()
    assert said.value == value


def test_a_value_that_no_text_says_as_it_stands_is_refused(session: Any) -> None:
    session.conf.set("spark.sql.parser.escapedStringLiterals", "true")
    with pytest.raises(PySparkException, match=r"spark\.sql\.variable\.substitute to false") as refused:
        session.sql("SELECT :v", args={"v": "${env:PATH}"})
    assert refused.value.getSqlState() == "0A000"
    session.conf.set("spark.sql.variable.substitute", "false")
    assert session.sql("SELECT :v AS v", args={"v": "${env:PATH}"}).first().v == "${env:PATH}"


def test_transaction_statements_take_them(session: Any) -> None:
    session.sql("BEGIN ISOLATION LEVEL SNAPSHOT, COMMENT :why /* :not ? */", args={"why": "it's \\ :so"})
    session.sql("SAVEPOINT IDENTIFIER(:name)", args={"name": "a b"})
    session.sql(f"INSERT INTO {T} VALUES (:id, :v)", args={"id": 2, "v": "b"})
    session.sql("ROLLBACK TO SAVEPOINT IDENTIFIER(?)", args=["a b"])
    session.sql(f"INSERT INTO {T} VALUES (?, ?)", args=[3, "c"])
    session.sql("RELEASE `a b`")
    session.sql("COMMIT", args={"unused": 1})
    session.sql(
        f"BEGIN BEGIN TRANSACTION COMMENT :why; INSERT INTO {T} VALUES (:id, :why); COMMIT; END",
        args={"why": "scripted", "id": 4},
    )
    session.sql(f"BEGIN ATOMIC INSERT INTO {T} VALUES (:id, 'x'); SAVEPOINT s; END", args={"id": 5})
    assert [row.id for row in session.sql(f"SELECT id FROM {T} ORDER BY id").collect()] == [1, 3, 4, 5]
    catalog = TransactionalCatalog.open(session.conf.get("spark.sql.catalog.lake.root"))
    assert [entry.transaction.message for entry in catalog.timeline.entries(2)] == ["it's \\ :so", "scripted", ""]


def test_statements_of_delta_take_them(session: Any) -> None:
    """Their words are not in Spark's grammar, by which Spark finds parameters."""
    (newest,) = session.sql(f"DESCRIBE HISTORY {T} LIMIT :n", args={"n": 1}).collect()
    assert newest.version == 1
    session.sql(f"RESTORE TABLE {T} TO VERSION AS OF ?", args=[0])
    assert session.table(T).count() == 0


@pytest.mark.parametrize(
    ("text", "args", "state", "message"),
    [
        pytest.param("SAVEPOINT :s", {"s": "x"}, "42601", "IDENTIFIER('name')", id="a name is no value"),
        pytest.param("BEGIN WORK COMMENT :c", {"c": 7}, "42601", "`COMMENT` (line 1, pos 11)", id="a number as a text"),
        pytest.param(
            "BEGIN WORK COMMENT :c", {"d": "x"}, "42601", "`COMMENT` (line 1, pos 11)", id="no such parameter"
        ),
        pytest.param(f"{AT_VERSION} :n", {"n": -1}, "42601", "(line 1, pos", id="a version below zero"),
        pytest.param(f"{AT_VERSION} :n", {"m": 1}, "42P02", "n", id="a version that is not there"),
        pytest.param(f"{AT_VERSION} :n WHERE :v ORDR", {"n": 1, "v": "a long text"}, "42601", "pos 67", id="a word"),
        pytest.param("BEGIN BEGIN WORK COMMENT ?; COMMIT; END", ["x"], "42601", "COMMENT", id="places in a script"),
    ],
)
def test_where_they_cannot_be_an_error_says_so(session: Any, text: str, args: Any, state: str, message: str) -> None:
    with pytest.raises(PySparkException) as refused:
        session.sql(text, args=args).collect()
    assert refused.value.getSqlState() == state
    assert message in str(refused.value)


def test_an_error_points_into_the_text_as_it_was_written(session: Any) -> None:
    """Though the values are in the text when Spark looks for names in it."""
    text = f"{AT_VERSION} :n WHERE v = :v AND nosuch = :v"
    with pytest.raises(PySparkException) as refused:
        session.sql(text, args={"n": 1, "v": "much longer than its name"})
    (context,) = refused.value.getQueryContext()
    assert (context.fragment(), context.startIndex()) == ("nosuch", text.index("nosuch"))


def test_a_time_is_one_of_the_database_wherever_a_parameter_stands(session: Any) -> None:
    """`SYSTEM_TIME` is told from Delta's `TIMESTAMP`, which knows no time so late, by the text before it."""
    later = datetime(2200, 1, 1, tzinfo=UTC)
    text = f"SELECT t.id FROM (SELECT :v AS v) AS p JOIN {T} FOR SYSTEM_TIME AS OF :later AS t USING (v)"
    assert session.sql(text, args={"v": "a", "later": later}).collect() == [(1,)]
