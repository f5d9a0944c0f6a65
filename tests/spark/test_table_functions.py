"""Functions of a Lockstep catalog that return a table, beside the same ones of Spark's own; who is judged by a call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException

from tests.spark.test_functions import result
from tests.support.sparks import since

pytestmark = [pytest.mark.long, since("4.2", "functions in catalogs")]

DEFINITIONS = """
above(least INT DEFAULT 2) RETURNS TABLE (id INT, x STRING) COMMENT 'rows' RETURN SELECT id, x FROM t WHERE id >= least
pairs(a INT, b INT DEFAULT 10) RETURNS TABLE (a BIGINT, b STRING) RETURN SELECT a, b
no_list RETURNS TABLE (n INT) RETURN SELECT id FROM t
everything() RETURNS TABLE (id INT, x STRING) RETURN TABLE t
rowset() RETURNS TABLE (n INT, s STRING) RETURN VALUES (1, 'a'), (2, 'b')
inferred(a INT) RETURNS TABLE RETURN SELECT id + a AS total, x FROM t
unnamed(a INT) RETURNS TABLE RETURN SELECT id + 1 FROM t
captured(id INT) RETURNS TABLE (n INT, given INT) RETURN SELECT id, captured.id FROM t
columns_win(x STRING) RETURNS TABLE (id INT, x STRING) RETURN SELECT id, x FROM t WHERE x = 'a'
qualified(x STRING) RETURNS TABLE (id INT) RETURN SELECT id FROM t WHERE t.x = qualified.x
counted(least INT) RETURNS TABLE (n BIGINT) RETURN SELECT count(*) FROM t WHERE id >= least
by_x(least INT) RETURNS TABLE (x STRING, n BIGINT) RETURN SELECT x, count(*) FROM t WHERE id >= least GROUP BY x
limited(n INT) RETURNS TABLE (id INT) RETURN SELECT id FROM t ORDER BY id DESC LIMIT 2
with_cte(n INT) RETURNS TABLE (id INT) RETURN WITH q AS (SELECT id FROM t WHERE id <> n) TABLE q UNION ALL TABLE q
nested(n INT) RETURNS TABLE (id INT) RETURN SELECT id FROM t WHERE id IN (SELECT max(id) FROM t WHERE id <= n)
generated(n INT) RETURNS TABLE (a INT) RETURN SELECT col FROM explode(sequence(1, n))
lateral_view(n INT) RETURNS TABLE (a INT) RETURN SELECT e FROM t LATERAL VIEW explode(array(id, n)) AS e
ranked(n INT) RETURNS TABLE (id INT, r INT) RETURN SELECT id, row_number() OVER (ORDER BY id DESC) FROM t
united(n INT) RETURNS TABLE (a INT) RETURN SELECT id FROM t UNION ALL SELECT n
narrow(n BIGINT) RETURNS TABLE (a INT) RETURN SELECT n
of_parts(p STRUCT<a: INT>, q ARRAY<INT>) RETURNS TABLE (a INT, b INT) RETURN SELECT p.a, q[0]
chance() RETURNS TABLE (a DOUBLE) NOT DETERMINISTIC RETURN SELECT rand(1) * 0
too_few(n INT) RETURNS TABLE (a INT, b INT) RETURN SELECT n
too_many(n INT) RETURNS TABLE (a INT) RETURN SELECT n, n
twice() RETURNS TABLE (a INT, A INT) RETURN SELECT 1, 2
not_null() RETURNS TABLE (a INT NOT NULL) RETURN SELECT 1
no_query() RETURNS TABLE (a INT) RETURN 1
no_such_table() RETURNS TABLE (a INT) RETURN SELECT * FROM no_such
no_such_column() RETURNS TABLE (a INT) RETURN SELECT y FROM t
no_cast(n INT) RETURNS TABLE (a DATE) RETURN SELECT n
bad_default(a INT, b INT DEFAULT a) RETURNS TABLE (n INT) RETURN SELECT a
no_trailing(a INT DEFAULT 1, b INT) RETURNS TABLE (n INT) RETURN SELECT a
of_value(a INT) RETURNS INT RETURN a
""".strip().splitlines()

CALLS = """
SELECT * FROM above(2)
SELECT * FROM above()
SELECT * FROM above(NULL)
SELECT * FROM above('3')
SELECT * FROM above('x')
SELECT * FROM above(least => 3)
SELECT * FROM above(most => 3)
SELECT * FROM above(1, 2)
SELECT * FROM pairs(1)
SELECT * FROM pairs(b => 3, a => 4) AS p(c, d)
SELECT p.a, typeof(p.a) FROM pairs(1, 2) p
SELECT * FROM pairs(1, 2) AS p(c)
SELECT * FROM pairs()
SELECT * FROM no_list()
SELECT * FROM everything()
SELECT * FROM rowset() WHERE n > 1
SELECT * FROM inferred(10)
SELECT * FROM captured(7)
SELECT * FROM columns_win('b')
SELECT * FROM qualified('b')
SELECT * FROM counted(2)
SELECT * FROM by_x(2)
SELECT * FROM limited(1)
SELECT * FROM with_cte(2)
SELECT * FROM nested(2)
SELECT * FROM generated(3)
SELECT * FROM lateral_view(9)
SELECT * FROM ranked(1)
SELECT * FROM united(9)
SELECT * FROM narrow(3000000000)
SELECT * FROM of_parts(named_struct('a', 7), array(8))
SELECT * FROM chance()
SELECT t.id, f.id, f.x FROM t, LATERAL above(t.id) f
SELECT t.id, f.n FROM t, LATERAL counted(t.id) f
SELECT t.id, f.n FROM t, LATERAL by_x(t.id) f
SELECT t.id, f.id FROM t LEFT JOIN LATERAL above(t.id + 1) f
SELECT t.id, f.id FROM t LEFT JOIN LATERAL above(t.id) f ON f.x = t.x
SELECT t.id, f.id FROM t, above(t.id) f
SELECT t.id, f.a FROM t, LATERAL generated(t.id) f
SELECT t.id, g.id FROM t, LATERAL above(t.id) f, LATERAL above(f.id) g
SELECT t.id FROM t JOIN above(2) f ON t.id = f.id
SELECT a.id, b.id FROM above(2) a JOIN above(2) b ON a.id = b.id + 1
SELECT id FROM t WHERE id IN (SELECT id FROM above(3))
SELECT id, (SELECT max(id) FROM above(3)) FROM t
SELECT id, (SELECT max(f.id) FROM above(t.id) f) FROM t
SELECT id FROM t WHERE EXISTS (SELECT * FROM counted(t.id) WHERE n > 1)
WITH q AS (SELECT * FROM above(2)) SELECT a.id FROM q a JOIN q b USING (id)
SELECT x, sum(id) FROM above(1) GROUP BY x ORDER BY x
SELECT * FROM above((SELECT max(id) FROM t))
SELECT * FROM above(of_value(2))
SELECT * FROM above(upper('2'))
SELECT * FROM above(TABLE(t))
SELECT * FROM above(id)
SELECT * FROM of_value(1)
SELECT above(1)
SELECT * FROM no_such(1)
SELECT * FROM range(2)
SELECT * FROM STREAM above(1)
DESCRIBE FUNCTION above
DESCRIBE FUNCTION no_list
DESCRIBE FUNCTION inferred
SHOW USER FUNCTIONS LIKE 'a*'
""".strip().splitlines()

OTHERWISE = {
    # Of its own catalog's Spark finds that out when one is called.
    "no_cast(n INT) RETURNS TABLE (a DATE) RETURN SELECT n": "42K09",
    # Spark reads it once, and calls that a stream.
    "SELECT * FROM STREAM above(1)": "0A000",
    # Spark takes no SQL function there (0A000).
    "SELECT * FROM above(of_value(2))": str([("id", "int"), ("x", "string"), "Row(id=2, x='b')", "Row(id=3, x=None)"]),
}
"""What Lockstep says where Spark's own catalog has something else to say."""


@pytest.fixture
def tables(spark: Any) -> Iterator[None]:
    """The same table in both catalogs."""
    rows = "SELECT * FROM VALUES (1, 'a'), (2, 'b'), (3, NULL) AS t(id, x)"
    spark.sql(f"CREATE TABLE lake.default.t AS {rows}")
    spark.sql(f"CREATE TABLE spark_catalog.default.t USING parquet AS {rows}")
    yield
    spark.sql("DROP TABLE spark_catalog.default.t")


@pytest.mark.usefixtures("tables")
def test_calls_give_what_those_of_sparks_own_functions_do(spark: Any) -> None:
    outcomes = {}
    for catalog in ("spark_catalog", "lake"):
        spark.sql(f"USE {catalog}.default")
        made = {each: result(spark, f"CREATE FUNCTION {each}") for each in DEFINITIONS}
        outcomes[catalog] = made | {call: result(spark, call) for call in CALLS}
    for definition in DEFINITIONS:
        spark.sql(f"DROP FUNCTION IF EXISTS spark_catalog.default.{definition.split('(')[0].split()[0]}")
    plain, ours = outcomes.values()
    assert ours == {text: found.replace("spark_catalog", "lake") for text, found in plain.items()} | OTHERWISE
    assert len(set(plain.values())) > 30, "they do not all fail alike"


def test_names_in_a_query_mean_what_they_meant_where_it_was_made(spark: Any, other: Any) -> None:
    """And neither a table, nor a view, nor a column of who calls it."""
    spark.sql("CREATE NAMESPACE lake.s")
    spark.sql("CREATE TABLE lake.default.t AS SELECT 1 AS id")
    spark.sql("CREATE TABLE lake.s.t AS SELECT 2 AS id")
    spark.sql("CREATE FUNCTION lake.s.f(n INT) RETURNS TABLE (id INT) RETURN SELECT id + n FROM t")
    other.sql("USE lake.s")
    other.sql("CREATE TEMPORARY VIEW t AS SELECT 3 AS id")
    assert other.sql("SELECT * FROM f(10)").collect() == [(11,)]
    assert other.sql("SELECT f.id FROM lake.s.t AS o, LATERAL f(o.id) f").collect() == [(3,)]
    spark.sql("USE lake.s")
    spark.sql("CREATE FUNCTION g() RETURNS TABLE (id INT) RETURN SELECT id FROM t")
    spark.sql("USE spark_catalog.default")
    assert spark.sql("SELECT * FROM lake.s.g()").collect() == [(2,)]
    with pytest.raises(PySparkException) as unknown:
        spark.sql("SELECT * FROM g()")
    assert unknown.value.getSqlState() == "42883"


def test_the_settings_that_it_was_made_with_go_with_a_function(spark: Any) -> None:
    spark.sql("CREATE FUNCTION strict(x INT) RETURNS TABLE (n INT) RETURN SELECT x + 1")
    spark.sql("SET spark.sql.ansi.enabled = false")
    spark.sql("CREATE FUNCTION lax(x INT) RETURNS TABLE (n INT) RETURN SELECT x + 1")
    assert result(spark, "SELECT * FROM strict(2147483647)") == "22003"
    spark.sql("SET spark.sql.ansi.enabled = true")
    assert spark.sql("SELECT * FROM lax(2147483647)").collect() == [(-2147483648,)]


REFUSED = {
    "SELECT * FROM mine": "mine, which is a temporary view",
    "SELECT * FROM t WHERE id IN (SELECT id FROM mine)": "mine, which is a temporary view",
    "WITH q AS (SELECT id FROM mine) SELECT * FROM q": "mine, which is a temporary view",
    "SELECT plain(id) FROM t": "plain",
    "SELECT id FROM t WHERE id IN (SELECT plain(id) FROM t)": "plain",
    "WITH q AS (SELECT plain(id) AS id FROM t) SELECT * FROM q": "plain",
    "SELECT of_python(id) FROM t": "of_python",
    "SELECT lake.default.twice(id) FROM t": "twice",
    "SELECT * FROM made(1)": "made",
    "SELECT * FROM lake.default.made(1)": "made",
    "SELECT id FROM table_changes('lake.default.t', 0)": "table_changes",
    "SELECT id FROM IDENTIFIER('t' || '')": "IDENTIFIER",
    "SELECT id FROM IDENTIFIER(who)": "IDENTIFIER",
    "SELECT id FROM STREAM t": "stream",
    "SELECT java_method('java.lang.Math', 'abs', id) FROM t": "java_method",
}
"""By the query, what the refusal names."""


def test_a_query_that_could_mean_another_thing_elsewhere_is_refused(spark: Any) -> None:
    from pyspark.sql.types import IntegerType

    spark.sql("CREATE TABLE t AS SELECT 1 AS id")
    spark.sql("CREATE FUNCTION twice(x INT) RETURNS INT RETURN x * 2")
    spark.sql("CREATE FUNCTION made(x INT) RETURNS TABLE (n INT) RETURN SELECT x")
    spark.sql("CREATE TEMPORARY VIEW mine AS SELECT 1 AS id")
    spark.sql("CREATE TEMPORARY FUNCTION plain(x INT) RETURNS INT RETURN x")
    spark.sql("DECLARE who = 't'")
    spark.udf.register("of_python", lambda x: x, IntegerType())
    for query, named in REFUSED.items():
        with pytest.raises(PySparkException, match=named) as refused:
            spark.sql(f"CREATE FUNCTION f(n INT) RETURNS TABLE (n STRING) RETURN {query}")
        assert refused.value.getSqlState() == "0A000", query
    for query in ("SELECT who FROM t", "SELECT id FROM t WHERE id > (SELECT length(who))"):
        with pytest.raises(PySparkException, match="`who` cannot be resolved"):  # the variable of the session
            spark.sql(f"CREATE FUNCTION f(n INT) RETURNS TABLE (n STRING) RETURN {query}")
    with pytest.raises(PySparkException, match="has a query in it") as refused:
        spark.sql("CREATE FUNCTION f(n INT DEFAULT (SELECT max(id) FROM t)) RETURNS TABLE (n INT) RETURN SELECT n")
    assert refused.value.getSqlState() == "0A000"


def test_what_a_function_reads_is_a_read_of_who_calls_it(spark: Any, other: Any) -> None:
    """Write skew through a table function: each reads, by calls, what the other writes, and writes what that read."""
    for name in ("a", "b"):
        spark.sql(f"CREATE TABLE lake.default.{name} AS SELECT 1 AS id")
        spark.sql(
            f"CREATE FUNCTION lake.default.of_{name}(least INT) RETURNS TABLE (id INT) "
            f"RETURN SELECT id FROM lake.default.{name} WHERE id >= least"
        )
    for call in (
        "SELECT * FROM lake.default.of_{}(0)",
        "SELECT f.id FROM (SELECT 0 AS n), LATERAL lake.default.of_{}(n) f",
    ):
        for session, read, written in ((spark, "a", "b"), (other, "b", "a")):
            session.sql("BEGIN ISOLATION LEVEL SERIALIZABLE")
            session.sql(call.format(read)).collect()
            session.sql(f"INSERT INTO lake.default.{written} VALUES (2)")
        spark.sql("COMMIT")
        with pytest.raises(PySparkException) as refused:
            other.sql("COMMIT")
        assert refused.value.getSqlState() == "40001"


def test_the_arguments_narrow_what_is_read(spark: Any, other: Any) -> None:
    """The rows that a call is after are told apart from others, as those of the query that it stands for are."""
    spark.sql("CREATE TABLE lake.default.a (id INT, day INT) PARTITIONED BY (day)")
    spark.sql("CREATE TABLE lake.default.u (id INT)")
    spark.sql("INSERT INTO lake.default.a VALUES (1, 1), (2, 2)")
    spark.sql(
        "CREATE FUNCTION lake.default.of(d INT) RETURNS TABLE (id INT) "
        "RETURN SELECT id FROM lake.default.a WHERE day = d"
    )
    for day, is_refused in ((2, False), (1, True)):
        spark.sql("BEGIN ISOLATION LEVEL SERIALIZABLE")
        spark.sql("INSERT INTO lake.default.u SELECT * FROM lake.default.of(1)")
        other.sql("BEGIN ISOLATION LEVEL SERIALIZABLE")
        other.sql("SELECT * FROM lake.default.u").collect()
        other.sql(f"INSERT INTO lake.default.a VALUES (3, {day})")
        other.sql("COMMIT")
        if is_refused:
            with pytest.raises(PySparkException) as refused:
                spark.sql("COMMIT")
            assert refused.value.getSqlState() == "40001"
        else:
            spark.sql("COMMIT")


def test_a_function_that_has_come_to_read_itself_is_refused(spark: Any) -> None:
    spark.sql("CREATE TABLE t AS SELECT 1 AS id")
    spark.sql("CREATE FUNCTION f() RETURNS TABLE (id INT) RETURN SELECT id FROM t")
    spark.sql("CREATE VIEW v AS SELECT * FROM f()")
    spark.sql("CREATE OR REPLACE FUNCTION f() RETURNS TABLE (id INT) RETURN SELECT id FROM v")
    with pytest.raises(PySparkException) as refused:
        spark.sql("SELECT * FROM f()")
    assert refused.value.getSqlState() == "42887"


def test_a_function_of_session_names_says_the_lakes_names(spark: Any, connect: Any) -> None:
    spark.sql("CREATE TABLE lake.default.orders AS SELECT 1 AS id")
    named = connect(**{"session-names": "true"})
    for query in (
        "SELECT id FROM spark_catalog.default.orders",
        "WITH q AS (SELECT id FROM spark_catalog.default.orders) TABLE q",
    ):
        with pytest.raises(PySparkException, match="by its old name") as refused:
            named.sql(f"CREATE FUNCTION lake.default.f() RETURNS TABLE (id INT) RETURN {query}")
        assert refused.value.getSqlState() == "0A000"
    named.sql("CREATE FUNCTION lake.default.f() RETURNS TABLE (id INT) RETURN SELECT id FROM lake.default.orders")
    assert named.sql("SELECT * FROM lake.default.f()").collect() == [(1,)]
