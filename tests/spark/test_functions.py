"""Functions of a Lockstep catalog beside the same ones of Spark's own: what a call gives, and who is judged by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import lockstep
from tests.support.sparks import since

pytestmark = [pytest.mark.long, since("4.2", "functions in catalogs")]

DEFINITIONS = """
inc(x INT) RETURNS INT RETURN x + 1
pair(x INT, y INT DEFAULT 10) RETURNS STRING COMMENT 'two' RETURN concat_ws('/', x, y)
inferred(x INT COMMENT 'a number') RETURN x * 1.5
narrow(x BIGINT) RETURNS INT RETURN x
nothing() RETURNS STRING RETURN 'n'
query(x INT) RETURNS INT RETURN SELECT x + 2
parts(x ARRAY<INT>, y STRUCT<a: INT>) RETURNS MAP<STRING, INT> RETURN map('n', x[0], 'a', y.a)
mapped(x ARRAY<INT>) RETURN transform(x, each -> each + 1)
own_name(x INT) RETURNS INT RETURN own_name.x + 1
chance() RETURNS DOUBLE NOT DETERMINISTIC RETURN rand(1) * 0
folded(x STRING COLLATE UTF8_LCASE) RETURNS BOOLEAN RETURN x = 'A'
decimals(x DECIMAL(5, 2)) RETURNS DECIMAL(6, 2) RETURN x + 0.5
label(x INT) RETURN CASE WHEN x IS NULL THEN 'none' WHEN x > 1 THEN 'many' ELSE 'one' END
year_of(d DATE DEFAULT DATE'2020-01-01') RETURNS INT RETURN EXTRACT(YEAR FROM d)
char_of(x CHAR(3)) RETURNS STRING RETURN x
twice(x INT, X INT) RETURN x
no_trailing(x INT DEFAULT 1, y INT) RETURN x
bad_default(x INT, y INT DEFAULT x) RETURN x
not_null(x INT NOT NULL) RETURN x
aggregates(x INT) RETURN sum(x)
windows(x INT) RETURN row_number() OVER (ORDER BY x)
generates(x ARRAY<INT>) RETURN explode(x)
no_such_column(x INT) RETURN y
no_such_function(x INT) RETURN no_such(x)
no_cast(x INT) RETURNS DATE RETURN x
""".strip().splitlines()

CALLS = """
SELECT inc(1), inc(NULL), inc('3'), inc(id), inc(x => 4), inc(inc(inc(1))) FROM t
SELECT pair(1), pair(1, 2), pair(y => 3, x => 4), pair(x => NULL)
SELECT pair()
SELECT pair(1, 2, 3)
SELECT pair(1, x => 2)
SELECT pair(z => 1, x => 2)
SELECT inferred(2), typeof(inferred(2))
SELECT inc(2147483647)
SELECT inc('x')
SELECT narrow(3000000000)
SELECT nothing(), own_name(1), chance(), year_of(), year_of('2024-02-03'), folded('a')
SELECT query(id) FROM t
SELECT parts(array(1, 2), named_struct('a', 7)), mapped(array(1, NULL))
SELECT transform(array(1, 2), e -> inc(e))
SELECT decimals(1.25), decimals(999.99)
SELECT label(id), count(*) FROM t GROUP BY label(id) HAVING inc(count(*)) > 1
SELECT sum(inc(id)) FROM t WHERE inc(id) > 2
SELECT x, inc(sum(id)) FROM t GROUP BY x
SELECT id FROM t ORDER BY inc(id)
SELECT a.id FROM t a JOIN t b ON inc(a.id) = b.id
SELECT id, (SELECT max(inc(b.id)) FROM t b WHERE b.id <= t.id) FROM t
WITH q AS (SELECT inc(id) AS n FROM t) SELECT a.n FROM q a JOIN q b USING (n)
SELECT inc(DISTINCT 1)
SELECT inc(1) FILTER (WHERE true)
SELECT inc(1) OVER ()
DESCRIBE FUNCTION pair
SHOW USER FUNCTIONS LIKE '*nc'
SELECT `char_of`('abcd')
""".strip().splitlines()


def result(session: Any, text: str) -> Any:
    """What a statement gives: its columns and rows; or how it is refused."""
    try:
        frame = session.sql(text)
        rows = sorted(map(repr, frame.collect()))
        return str([(field.name, field.dataType.simpleString()) for field in frame.schema] + rows)
    except PySparkException as error:
        return error.getSqlState()


def test_calls_give_what_those_of_sparks_own_functions_do(spark: Any) -> None:
    spark.sql("CREATE TEMPORARY VIEW t AS SELECT * FROM VALUES (1, 'a'), (2, 'b'), (3, NULL) AS t(id, x)")
    outcomes = {}
    for catalog in ("spark_catalog", "lake"):
        spark.sql(f"USE {catalog}.default")
        made = {each: result(spark, f"CREATE FUNCTION {each}") for each in DEFINITIONS}
        outcomes[catalog] = made | {call: result(spark, call) for call in CALLS}
    for definition in DEFINITIONS:
        spark.sql(f"DROP FUNCTION IF EXISTS spark_catalog.default.{definition.partition('(')[0]}")
    plain, ours = outcomes.values()
    assert ours == {text: found.replace("spark_catalog", "lake") for text, found in plain.items()}
    assert len(set(plain.values())) > 25, "they do not all fail alike"


def test_the_settings_that_it_was_made_with_go_with_a_function(spark: Any) -> None:
    spark.sql("CREATE FUNCTION strict(x INT) RETURNS INT RETURN x + 1")
    spark.sql("SET spark.sql.ansi.enabled = false")
    spark.sql("CREATE FUNCTION lax(x INT) RETURNS INT RETURN x + 1")
    assert result(spark, "SELECT strict(2147483647)") == "22003"
    spark.sql("SET spark.sql.ansi.enabled = true")
    assert spark.sql("SELECT lake.default.lax(2147483647)").collect() == [(-2147483648,)]


@pytest.mark.parametrize(
    ("returns", "query"),
    [("STRING RETURN", "SELECT {}"), ("TABLE (v STRING) RETURN SELECT", "SELECT * FROM {}")],
    ids=["a value", "a table"],
)
def test_a_default_that_a_call_by_names_leaves_out_is_read_in_the_functions_settings(
    spark: Any, returns: str, query: str
) -> None:
    spark.sql("SET spark.sql.parser.escapedStringLiterals = true")
    parameters = r"(x STRING, y STRING DEFAULT '\\n', z STRING DEFAULT '')"
    spark.sql(f"CREATE FUNCTION lake.default.f{parameters} RETURNS {returns} concat(x, y, z)")
    spark.sql("SET spark.sql.parser.escapedStringLiterals = false")
    assert spark.sql(query.format("lake.default.f(x => 'a', z => 'c')")).collect() == [(r"a\\nc",)]


def test_a_function_is_asked_for_once_and_sparks_own_never(spark: Any, asked: list[dict[str, Any]]) -> None:
    spark.sql("CREATE TABLE t AS SELECT 1 AS id")
    spark.sql("CREATE FUNCTION f(x INT) RETURNS INT RETURN x + 1")
    asked.clear()
    spark.sql("SELECT upper('a'), count(*), abs(1) FROM VALUES (1) AS r(id)").collect()
    spark.sql("SELECT 1").collect()
    assert not asked
    spark.sql("SELECT f(id), f(f(id)), default.f(1) FROM t WHERE f(id) > 0").collect()
    assert [request["op"] for request in asked].count("function") in (1, 2), "by each of the ways in which it is named"
    asked.clear()
    spark.sql("SELECT upper('a'), f(1)").collect()
    assert [request["op"] for request in asked] == ["function"]


@pytest.mark.parametrize(
    ("made", "replaced", "call"),
    [
        pytest.param(
            "(x INT) RETURNS INT RETURN x",
            "(x INT) RETURNS INT RETURN x + 1",
            "SELECT lake.default.f(id) AS id FROM lake.default.src",
            id="a value",
        ),
        pytest.param(
            "(n INT) RETURNS TABLE (id INT) RETURN SELECT id FROM lake.default.src",
            "(n INT) RETURNS TABLE (id INT) RETURN SELECT id + n FROM lake.default.src",
            "SELECT * FROM lake.default.f(1)",
            id="a table",
        ),
    ],
)
def test_a_statement_that_used_an_older_definition_is_judged_by_it(
    spark: Any, other: Any, made: str, replaced: str, call: str
) -> None:
    """Write skew through a function: the statement called it, and wrote what who replaced it had read."""
    for table in ("src", "u"):
        spark.sql(f"CREATE TABLE lake.default.{table} AS SELECT 1 AS id")
    spark.sql(f"CREATE FUNCTION lake.default.f{made}")
    frames = [spark.sql(call), spark.sql(call).where("id > 0").cache()]
    other.sql("BEGIN")
    other.sql("SELECT * FROM lake.default.u").collect()
    other.sql(f"CREATE OR REPLACE FUNCTION lake.default.f{replaced}")
    other.sql("COMMIT")
    for frame in frames:
        with pytest.raises(PySparkException, match=r"replaced function default\.f, which .* read") as caught:
            frame.write.insertInto("lake.default.u")
        assert caught.value.getSqlState() == "40001"
    spark.sql(f"INSERT INTO lake.default.u {call}")
    assert sorted(row.id for row in spark.table("lake.default.u").collect()) == [1, 2]


@pytest.mark.parametrize(
    ("returns", "call"),
    [
        pytest.param("RETURNS INT RETURN", "SELECT lake.default.f(1) AS n", id="a value"),
        pytest.param("RETURNS TABLE (n INT) RETURN SELECT", "SELECT * FROM lake.default.f(1)", id="a table"),
    ],
)
def test_a_dataframe_from_before_begin_has_the_snapshots_function_or_is_refused(
    spark: Any, other: Any, root: Path, returns: str, call: str
) -> None:
    spark.sql("CREATE TABLE lake.default.u (id INT)")
    spark.sql(f"CREATE FUNCTION lake.default.f(x INT) {returns} x + 1")
    frame = spark.sql(call)  # which reads no table
    spark.sql("BEGIN")
    assert frame.collect() == [(2,)], "it is the same one"
    spark.sql("INSERT INTO lake.default.u VALUES (1)")
    spark.sql("COMMIT")
    timeline = lockstep.TransactionalCatalog.open(str(root)).timeline
    [entry] = timeline.entries(timeline.head.version - 1)
    assert [str(name) for name in entry.view_reads] == ["default.f()"], "and others are judged by that"
    frame = spark.sql(call)
    other.sql(f"CREATE OR REPLACE FUNCTION lake.default.f(x INT) {returns} x + 2")
    spark.sql("BEGIN")
    with pytest.raises(PySparkException, match=r"from before BEGIN uses function default\.f as it was") as refused:
        frame.collect()
    assert refused.value.getSqlState() == "25001"
    assert spark.sql(call).collect() == [(3,)]
    spark.sql("ROLLBACK")


def test_write_skew_through_functions_is_refused(spark: Any, other: Any) -> None:
    """Each transaction calls the function that the other replaces: in no order would both have seen what they saw."""
    for name in ("f", "g"):
        spark.sql(f"CREATE FUNCTION lake.default.{name}(x INT) RETURNS INT RETURN x")
    for session, called, replaced in ((spark, "f", "g"), (other, "g", "f")):
        session.sql("BEGIN ISOLATION LEVEL SERIALIZABLE")
        session.sql(f"SELECT lake.default.{called}(1)").collect()
        session.sql(f"CREATE OR REPLACE FUNCTION lake.default.{replaced}(x INT) RETURNS INT RETURN x + 1")
    spark.sql("COMMIT")
    with pytest.raises(PySparkException, match=r"replaced function default\.g") as refused:
        other.sql("COMMIT")
    assert refused.value.getSqlState() == "40001"
