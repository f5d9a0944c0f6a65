"""What the body of a catalog's function may say: nothing that another session could read otherwise."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException

from tests.support.sparks import since

pytestmark = [pytest.mark.long, since("4.2", "functions in catalogs")]

REFUSED = {
    "f(x INT) RETURNS INT RETURN IDENTIFIER('twice')(x)": "IDENTIFIER",
    "f(x INT) RETURNS INT RETURN IDENTIFIER('tw' || 'ice')(x)": "IDENTIFIER",
    "f(x STRING) RETURNS STRING RETURN IDENTIFIER('up' || 'per')(x)": "IDENTIFIER",
    "f(x INT) RETURNS INT RETURN IDENTIFIER('own' || 'er')": "IDENTIFIER",
    "f(x INT, y INT DEFAULT IDENTIFIER('tw' || 'ice')(1)) RETURNS INT RETURN y": "IDENTIFIER",
    "f(x INT) RETURNS INT RETURN IDENTIFIER(who)(x)": "IDENTIFIER",
    "f(x INT) RETURNS INT RETURN twice(x)": "twice",
    "f(x INT) RETURNS INT RETURN lake.default.twice(x)": "twice",
    "f(x INT) RETURNS INT RETURN plain(x)": "plain",
    "f(x INT) RETURNS INT RETURN session.plain(x)": "plain",
    "f(x INT) RETURNS INT RETURN of_python(x)": "of_python",
    "f(x INT, y INT DEFAULT plain(1)) RETURNS INT RETURN y": "plain",
    "f(x ARRAY<INT>) RETURN transform(x, each -> of_python(each))": "of_python",
    "f(x INT) RETURNS INT RETURN x + (SELECT max(id) FROM t)": "query",
    "f(x INT) RETURNS BOOLEAN RETURN x IN (SELECT id FROM t)": "query",
    "f(x INT) RETURNS BOOLEAN RETURN EXISTS (SELECT id FROM t)": "query",
    "f(x INT, y INT DEFAULT (SELECT max(id) FROM t)) RETURNS INT RETURN x": "query",
    "f(x INT) RETURNS INT RETURN SELECT max(id) FROM t": "query",
    "f(x INT) RETURNS INT RETURN x + who": "variable",
    "f(x INT) RETURNS INT RETURN x + session.who": "variable",
    "f(x INT, y INT DEFAULT who) RETURNS INT RETURN x + y": "variable",
    "f() RETURNS STRING RETURN java_method('java.lang.System', 'getProperty', 'user.dir')": "java_method",
    "f() RETURNS STRING RETURN reflect('java.util.UUID', 'randomUUID')": "reflect",
    "f() RETURNS STRING RETURN try_reflect('java.util.UUID', 'randomUUID')": "reflect",
}
"""By what follows CREATE FUNCTION, what the refusal names."""

TAKEN = {
    "f(x STRING) RETURNS STRING RETURN upper(trim(x))": ("f(' a ')", "A"),
    "f(x STRING) RETURNS INT RETURN try_cast(x AS INT)": ("f('n')", None),
    "f(x INT) RETURNS INT RETURN try_divide(x, 0)": ("f(1)", None),
    "f(x ARRAY<INT>) RETURNS INT RETURN aggregate(x, 0, (sum, each) -> sum + each)": ("f(array(1, 2))", 3),
    "f(x INT) RETURNS STRING RETURN CASE WHEN x > 1 THEN raise_error('large') ELSE 'small' END": ("f(1)", "small"),
    "f(x INT) RETURNS BOOLEAN RETURN current_user() IS NOT NULL AND current_catalog() = 'lake'": ("f(1)", True),
    "f(x INT) RETURNS BOOLEAN RETURN now() > DATE '2020-01-01'": ("f(1)", True),
    "f(x INT) RETURNS INT RETURN (SELECT x + 1)": ("f(1)", 2),
    "f(upper STRING) RETURNS STRING RETURN upper(upper)": ("f('a')", "A"),
}
"""By what follows CREATE FUNCTION, a call and what it gives."""


@pytest.fixture
def session(spark: Any) -> Any:
    """A session with a table, and with functions and a variable of its own."""
    from pyspark.sql.types import IntegerType

    spark.sql("CREATE TABLE t AS SELECT 1 AS id")
    spark.sql("CREATE FUNCTION twice(x INT) RETURNS INT RETURN x * 2")
    spark.sql("CREATE TEMPORARY FUNCTION plain(x INT) RETURNS INT RETURN x")
    spark.sql("DECLARE who = 'twice'")
    spark.udf.register("of_python", lambda x: x, IntegerType())
    return spark


def test_a_body_that_could_mean_another_thing_elsewhere_is_refused(session: Any) -> None:
    for text, named in REFUSED.items():
        with pytest.raises(PySparkException, match=named) as refused:
            session.sql(f"CREATE FUNCTION {text}")
        assert refused.value.getSqlState() == "0A000", text
    made = [row[0] for row in session.sql("SHOW USER FUNCTIONS IN lake.default").collect()]
    assert [name for name in made if "." in name] == ["lake.default.twice"], "but those of the session"


def test_a_body_of_sparks_own_functions_is_taken(session: Any) -> None:
    for text, (call, value) in TAKEN.items():
        session.sql(f"CREATE OR REPLACE FUNCTION {text}")
        assert session.sql(f"SELECT {call}").first()[0] == value, text


def test_parameters_and_settings_of_the_statement_are_in_the_text(spark: Any) -> None:
    """They are no part of a body that is read again: whoever calls it may have others."""
    spark.sql("SET of.mine = 2")
    spark.sql("CREATE FUNCTION f(x INT, y INT DEFAULT :p) RETURNS INT RETURN x * ${of.mine} + y", args={"p": 1})
    spark.sql("SET of.mine = 7")
    assert spark.sql("SELECT f(10), :p", args={"p": 3}).collect() == [(21, 3)]
    spark.sql("SET spark.sql.variable.substitute = false")
    for text in ("g() RETURNS STRING RETURN '${of.mine}'", "g(x STRING DEFAULT '${of.mine}') RETURNS STRING RETURN x"):
        with pytest.raises(PySparkException, match=r"has \$\{ in it") as refused:
            spark.sql(f"CREATE FUNCTION {text}")
        assert refused.value.getSqlState() == "0A000"


def test_a_function_means_the_same_in_every_session(spark: Any, other: Any) -> None:
    """Spark's own functions, whatever the caller has of the same name, and wherever it looks first."""
    spark.sql("CREATE FUNCTION f(x STRING) RETURNS STRING RETURN upper(x)")
    other.udf.register("upper", lambda _: "of the session")
    other.conf.set("spark.sql.functionResolution.sessionOrder", "first")
    assert other.sql("SELECT lake.default.f('a'), upper('a')").collect() == [("A", "of the session")]
    with pytest.raises(PySparkException, match=r"looks for functions elsewhere .*Nothing was made") as refused:
        other.sql("CREATE FUNCTION g(x STRING) RETURNS STRING RETURN upper(x)")
    assert refused.value.getSqlState() == "0A000"
    other.conf.unset("spark.sql.functionResolution.sessionOrder")
    other.conf.set("spark.sql.path.enabled", "true")
    other.sql("CREATE FUNCTION spark_catalog.default.upper(x STRING) RETURNS STRING RETURN 'of a schema'")
    try:
        other.sql("SET PATH = spark_catalog.default, system.builtin, system.session")
        assert other.sql("SELECT lake.default.f('a'), upper('a')").collect() == [("A", "of a schema")]
        with pytest.raises(PySparkException, match=r"looks for functions elsewhere .*Nothing was made"):
            other.sql("CREATE FUNCTION lake.default.g(x STRING) RETURNS STRING RETURN upper(x)")
    finally:
        other.sql("DROP FUNCTION spark_catalog.default.upper")


def test_what_an_extension_puts_in_the_place_of_sparks_own_is_not_called(spark: Any, other: Any) -> None:
    spark.sql("CREATE FUNCTION f(x STRING) RETURNS STRING RETURN concat(upper(x), '!')")
    registry, jvm = other._jsparkSession.sessionState().functionRegistry(), other._jvm
    upper, lower = (
        jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name, jvm.scala.Some("builtin"), jvm.scala.Some("system"))
        for name in ("upper", "lower")
    )
    replaced = registry.lookupFunctionBuilder(lower).get()
    registry.registerFunction(upper, registry.lookupFunction(upper).get(), replaced)  # as an extension does
    assert other.sql("SELECT upper('A')").first()[0] == "a"
    for statement in ("SELECT lake.default.f('a')", "CREATE FUNCTION g(x STRING) RETURNS STRING RETURN upper(x)"):
        with pytest.raises(PySparkException, match=r"calls upper, and an extension .*another function") as refused:
            other.sql(statement)
        assert refused.value.getSqlState() == "0A000"
    assert spark.sql("SELECT f('a')").first()[0] == "A!"


def test_names_with_signs_are_described(spark: Any) -> None:
    spark.sql("CREATE FUNCTION `a$1\\b`() RETURNS INT RETURN 1")
    assert spark.sql("DESCRIBE FUNCTION `a$1\\b`").first()[0] == "Function: lake.default.`a$1\\b`"
