"""Views and SQL functions of Spark's session catalog that a lake takes in: they mean what they meant."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from tests.spark.test_adoption import rows
from tests.support.session_names import opened
from tests.support.sessions import CATALOG
from tests.support.sparks import since

SCHEMA = "adopted_views"
SHOP = f"spark_catalog.{SCHEMA}"
LAKE = f"{CATALOG}.{SCHEMA}"
ADOPT = f"CALL {CATALOG}.system.adopt(schema => '{SHOP}'"

pytestmark = [pytest.mark.long, since("4.2", "views and functions in catalogs")]


@pytest.fixture(autouse=True)
def shop(spark: Any, tmp_path: Path) -> Iterator[None]:
    """A schema with one table, which is current while a test makes more in it."""
    spark.sql(f"CREATE SCHEMA {SHOP} LOCATION '{tmp_path}/warehouse/shop.db'")
    spark.sql(f"USE {SHOP}")
    spark.sql("CREATE TABLE orders USING delta AS SELECT 1 AS id, 10 AS amount, CAST('a' AS CHAR(3)) AS code")
    yield
    spark.sql("USE spark_catalog.default")
    spark.sql(f"DROP SCHEMA {SHOP} CASCADE")


def made(spark: Any, *statements: str) -> None:
    for statement in statements:
        spark.sql(statement)


def adopt(spark: Any, more: str = "") -> dict[str, Any]:
    """Adopt the schema, or look at it, from elsewhere, and return the rows by what they are about."""
    spark.sql(f"USE {CATALOG}.default")
    return {row.table: row for row in spark.sql(f"{ADOPT}{more})").collect()}


def reasons(found: dict[str, Any]) -> dict[str, str]:
    return {name: row.refused for name, row in found.items() if row.refused is not None}


def test_a_schema_is_whole_in_the_lake_and_what_stays_says_why(spark: Any) -> None:
    made(
        spark,
        "CREATE FUNCTION twice(x INT DEFAULT 1) RETURNS INT COMMENT 'doubles' RETURN x * 2",
        "CREATE TABLE raw USING parquet AS SELECT 1 AS id",
        "CREATE VIEW of_orders (number COMMENT 'its id') AS WITH q AS (SELECT id FROM orders) SELECT * FROM q",
        f"CREATE VIEW of_view AS SELECT twice(number) AS n FROM {SCHEMA}.of_orders",
        "CREATE VIEW of_raw AS SELECT * FROM raw",
        "CREATE VIEW of_both AS SELECT id FROM orders WHERE id IN (SELECT id FROM of_raw)",
        f"CREATE VIEW in_full AS SELECT * FROM {SHOP}.orders",
        "CREATE VIEW before AS SELECT * FROM orders VERSION AS OF 0",
        "CREATE VIEW changes AS SELECT * FROM table_changes('orders', 0)",
        "CREATE FUNCTION least_of(least INT) RETURNS TABLE (id INT) RETURN SELECT id FROM orders WHERE amount >= least",
        "CREATE FUNCTION asks() RETURNS INT RETURN (SELECT max(id) FROM orders)",
        "CREATE FUNCTION calls(x INT) RETURNS INT RETURN twice(x)",
        "CREATE FUNCTION reflects() RETURNS STRING RETURN reflect('java.lang.Math', 'abs', 1)",
        "CREATE FUNCTION of_java AS 'org.apache.hadoop.hive.ql.udf.UDFPI'",
    )
    looked, done = adopt(spark, ", dry_run => true"), adopt(spark)
    assert reasons(looked) == reasons(done)
    assert {row.database_version for row in looked.values()} == {None}
    whole = {"least_of()", "of_orders", "of_view", "orders", "twice()"}
    assert {name for name, row in done.items() if row.refused is None} == whole
    for name, reason in {
        "of_raw": f"it reads {SHOP}.raw, which stays in the metastore",
        "of_both": f"it reads {SHOP}.of_raw, which stays in the metastore",
        "in_full": f"it says {SHOP}.orders, which is not the lake's {LAKE}.orders",
        "before": "it reads a table as it was",
        "changes": f"it calls {SHOP}.table_changes, which stays in the metastore",
        "asks()": f"it cannot be the lake's: function {SHOP}.asks has a query in it",
        "calls()": f"it cannot be the lake's: function {SHOP}.calls calls twice, which is none of Spark's own",
        "reflects()": f"it cannot be the lake's: function {SHOP}.reflects calls reflect",
        "of_java()": "it is made of the class org.apache.hadoop.hive.ql.udf.UDFPI",
        "raw": "it is a table of parquet",
    }.items():
        assert reasons(done)[name].startswith(reason), (name, reasons(done)[name])
    spark.sql("BEGIN")
    spark.sql(f"INSERT INTO {LAKE}.orders VALUES (2, 20, 'b')")
    for name in ("of_orders", "least_of(10)"):
        assert rows(spark, f"{LAKE}.{name}") == [(1,), (2,)], "what is staged, and not what the metastore's would read"
    assert rows(spark, f"{LAKE}.of_view") == [(2,), (4,)]
    spark.sql("ROLLBACK")
    spark.sql(f"INSERT INTO {LAKE}.orders VALUES (3, 30, 'c')")
    assert rows(spark, f"{LAKE}.of_view") == rows(spark, f"{SHOP}.of_view") == [(2,), (6,)]
    assert spark.sql(f"SELECT {LAKE}.twice(), {LAKE}.twice(4)").first()[:] == (2, 8)
    [field] = spark.table(f"{LAKE}.of_orders").schema
    assert (field.name, field.metadata["comment"]) == ("number", "its id")
    assert any("doubles" in row[0] for row in spark.sql(f"DESCRIBE FUNCTION EXTENDED {LAKE}.twice").collect())


def test_what_a_text_means_where_it_was_made_it_means_in_the_lake(spark: Any) -> None:
    """Settings, names of columns, and what becomes of columns that come later are those of the first statement."""
    spark.conf.set("spark.sql.ansi.enabled", "false")
    spark.conf.set("spark.sql.ansi.doubleQuotedIdentifiers", "false")
    try:
        made(
            spark,
            "CREATE VIEW lenient (n) COMMENT 'old' TBLPROPERTIES (owner_team = 'x') "
            "AS SELECT CAST('x' AS INT) AS x FROM orders",
            "CREATE FUNCTION lenient(x STRING) RETURNS INT RETURN CAST(x AS INT)",
            "CREATE FUNCTION leniently(x STRING) RETURNS TABLE (n INT) RETURN SELECT CAST(x AS INT) FROM orders",
        )
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
        spark.conf.unset("spark.sql.ansi.doubleQuotedIdentifiers")
    made(
        spark,
        "CREATE VIEW strict AS SELECT CAST(code AS INT) AS n FROM orders",
        "CREATE VIEW padded AS SELECT id, code FROM orders WHERE code = 'a'",
        "CREATE VIEW evolving WITH SCHEMA EVOLUTION AS SELECT * FROM orders",
        "CREATE VIEW binding WITH SCHEMA BINDING AS SELECT * FROM orders",
    )
    assert reasons(adopt(spark)) == {}
    spark.sql(f"ALTER TABLE {LAKE}.orders ADD COLUMN later INT")
    for name in ("lenient", "padded", "evolving", "binding"):
        ours, theirs = spark.table(f"{LAKE}.{name}"), spark.table(f"{SHOP}.{name}")
        assert ours.schema == theirs.schema, name
        assert ours.collect() == theirs.collect() != [], name
    assert len(spark.table(f"{LAKE}.evolving").columns) == len(spark.table(f"{LAKE}.binding").columns) + 1
    assert rows(spark, f"{LAKE}.lenient") == rows(spark, f"{LAKE}.leniently('x')") == [(None,)]
    spark.sql(f"USE {SHOP}")  # where Spark looks for what a function of its own reads
    assert rows(spark, f"{SHOP}.leniently('x')") == rows(spark, f"{LAKE}.leniently('x')")
    assert spark.sql(f"SELECT {LAKE}.lenient('x'), {SHOP}.lenient('x')").first()[:] == (None, None)
    for catalog in (LAKE, SHOP):
        with pytest.raises(PySparkException, match="CAST_INVALID_INPUT"):
            spark.table(f"{catalog}.strict").collect()
    shown = {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES {LAKE}.lenient").collect()}
    assert (shown["owner_team"], shown["lockstep.adopted"]) == ("x", f"{SHOP}.lenient")


def test_a_schema_of_views_and_functions_alone_is_taken_too(spark: Any) -> None:
    made(
        spark,
        "DROP TABLE orders",
        "CREATE VIEW constant AS SELECT 1 AS id",
        "CREATE FUNCTION next(x INT) RETURNS INT RETURN x + 1",
    )
    assert {row.refused for row in adopt(spark).values()} == {None}
    assert spark.sql(f"SELECT {LAKE}.next(id) FROM {LAKE}.constant").first()[0] == 2


def test_release_leaves_them_in_the_lake_and_they_are_not_taken_twice(spark: Any) -> None:
    made(spark, "CREATE VIEW of_orders AS SELECT id FROM orders")
    adopt(spark)
    spark.sql(f"CALL {CATALOG}.system.release(namespace => '{SCHEMA}')")
    again = adopt(spark)
    assert again["orders"].refused is None
    assert again["of_orders"].refused.startswith("the lake has, or gets, something of that name already")
    assert rows(spark, f"{LAKE}.of_orders") == [(1,)], "of the table that came back"


def test_an_old_name_of_a_view_that_was_adopted_is_a_jobs_own(spark: Any, spark_session: Any, root: Path) -> None:
    made(spark, "CREATE VIEW of_orders AS SELECT id FROM orders")
    adopt(spark)
    job = opened(spark_session, root, {CATALOG: "true"})
    job.sql("BEGIN")
    job.sql(f"INSERT INTO {SCHEMA}.orders VALUES (2, 20, 'b')")
    assert rows(job, f"{SCHEMA}.of_orders") == rows(job, f"{LAKE}.of_orders") == [(1,), (2,)]
    job.sql("ROLLBACK")


def test_one_that_is_made_later_is_taken_by_its_name(spark: Any) -> None:
    adopt(spark)
    made(
        spark,
        f"USE {SHOP}",
        "CREATE FUNCTION twice(x INT) RETURNS INT RETURN x * 2",
        "CREATE VIEW doubled AS SELECT twice(id) AS n FROM orders",
        f"USE {CATALOG}.default",
    )
    one = f"CALL {CATALOG}.system.adopt({{}} => '{SHOP}.{{}}')"
    with pytest.raises(PySparkException, match=r"it calls spark_catalog\.adopted_views\.twice, which stays") as refused:
        spark.sql(one.format("view", "doubled"))
    assert refused.value.getSqlState() == "0A000"
    for kind, name, row in (("function", "twice", "twice()"), ("view", "doubled", "doubled")):
        assert [each.table for each in spark.sql(one.format(kind, name)).collect()] == [row]
    assert rows(spark, f"{LAKE}.doubled") == rows(spark, f"{SHOP}.doubled") == [(2,)]
