"""What a lake keeps that stands for Spark's session catalog: its tables' files, and what each name means to all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.errors import PySparkException

import lockstep
from lockstep.spark.bridge import is_open
from tests.spark.test_adoption import rows
from tests.support.session_names import opened, refused
from tests.support.sessions import CATALOG, new_session
from tests.support.sparks import is_before

pytestmark = pytest.mark.long

SHOP = "kept_shop"
WAREHOUSE = "kept_warehouse"
ELSEWHERE = f"{CATALOG}.elsewhere"


@dataclass(frozen=True)
class Place:
    """A lake for all tests here, which has adopted a schema under its name, and another one under a name of its own."""

    root: Path
    folder: Path
    plain: Any

    def version(self) -> int:
        return lockstep.TransactionalCatalog.open(str(self.root)).database().version


@pytest.fixture(scope="module")
def place(spark_session: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("kept")
    plain = new_session(spark_session, folder / CATALOG)
    plain.sql("USE spark_catalog")
    for schema, namespace in ((SHOP, SHOP), (WAREHOUSE, "elsewhere")):
        plain.sql(f"CREATE SCHEMA {schema} LOCATION '{folder}/{schema}.db'")
        plain.sql(f"CREATE TABLE {schema}.orders USING delta AS SELECT 1 AS id, 10 AS amount")
        plain.sql(f"CALL {CATALOG}.system.adopt(schema => 'spark_catalog.{schema}', namespace => '{namespace}')")
    plain.sql(f"CREATE TABLE {CATALOG}.{SHOP}.mine AS SELECT 1 AS id")
    plain.sql(f"CREATE TABLE {SHOP}.raw USING parquet AS SELECT 1 AS id")
    yield Place(folder / CATALOG, folder, plain)
    for schema in (SHOP, WAREHOUSE):
        plain.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@pytest.fixture
def job(place: Place, spark_session: Any) -> Iterator[Any]:
    session = opened(spark_session, place.root, {CATALOG: "true"})
    yield session
    if is_open(session):
        session.sql("ROLLBACK")
    for view in ("orders", "mine", "new"):
        session.catalog.dropTempView(view)


def test_a_temporary_view_sends_what_makes_a_table_nowhere_else(job: Any, place: Place) -> None:
    job.sql(f"USE {SHOP}")
    for name in ("orders", "mine", "new"):
        job.sql(f"CREATE TEMPORARY VIEW {name} AS SELECT 7 AS id, 70 AS amount")
    before, one = place.version(), job.sql("SELECT 8 AS id, 80 AS amount")
    for end in ("ROLLBACK", "COMMIT"):
        job.sql("BEGIN")
        job.sql("CREATE OR REPLACE TABLE orders USING delta AS SELECT * FROM orders")
        one.write.format("delta").mode("append").saveAsTable("orders")
        one.write.mode("overwrite").option("overwriteSchema", "true").format("delta").saveAsTable("mine")
        one.writeTo("new").using("delta").create()
        assert rows(job, "orders") == [(7, 70)], "the view is read"
        job.sql(end)
    assert place.version() == before + 1
    assert rows(place.plain, f"{CATALOG}.{SHOP}.orders") == [(7, 70), (8, 80)]
    assert rows(place.plain, f"{CATALOG}.{SHOP}.mine") == rows(place.plain, f"{CATALOG}.{SHOP}.new") == [(8, 80)]
    assert {row.tableName for row in place.plain.sql(f"SHOW TABLES IN spark_catalog.{SHOP}").collect()} == {
        "orders",
        "raw",
    }


def test_a_temporary_view_is_renamed_and_dropped_whatever_is_called_like_it(job: Any) -> None:
    job.sql("CREATE TEMPORARY VIEW orders AS SELECT 'temporary' AS id")
    job.sql(f"USE {SHOP}")
    job.sql("ALTER VIEW orders RENAME TO mine")
    job.sql("DROP VIEW mine")
    assert len(rows(job, "orders")) > 0


def test_what_nobody_has_is_dropped_if_it_exists_in_a_transaction_that_makes_it(job: Any, place: Place) -> None:
    for _ in range(2):
        job.sql("BEGIN")
        job.sql(f"DROP TABLE IF EXISTS {SHOP}.stage")
        job.sql(f"CREATE TABLE {SHOP}.stage USING delta AS SELECT 1 AS id")
        job.sql("COMMIT")
    assert rows(place.plain, f"{CATALOG}.{SHOP}.stage") == [(1,)]
    job.sql("BEGIN")
    refused(lambda: job.sql(f"DROP TABLE {SHOP}.nothing"), "42P01")


def test_changes_of_a_table_are_those_of_the_lakes(job: Any, place: Place) -> None:
    job.sql(f"CREATE TABLE {SHOP}.changed (id INT) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    job.sql(f"INSERT INTO {SHOP}.changed VALUES (1)")
    job.sql(f"USE {SHOP}")
    for call in (
        f"table_changes('{SHOP}.changed', 1)",
        "TABLE_CHANGES('changed', 1, 1)",
        "table_changes('CHANGED', 1)",
    ):
        assert job.sql(f"SELECT id, _change_type FROM {call}").collect() == [(1, "insert")], call
    assert place.plain.sql(f"SELECT * FROM TABLE_CHANGES('{CATALOG}.{SHOP}.changed', 1)").count() == 1


def test_files_of_the_lake_do_not_go_with_another_name_of_them(job: Any, place: Place) -> None:
    name = f"{WAREHOUSE}.orders"
    one = job.range(1)
    takes: list[Callable[[], Any]] = [
        partial(job.sql, statement)
        for statement in (
            f"DROP TABLE {name}",
            f"DROP TABLE IF EXISTS IDENTIFIER('{WAREHOUSE}.' || 'orders') PURGE",
            f"ALTER TABLE {name} RENAME TO {WAREHOUSE}.others",
            f"DROP SCHEMA {WAREHOUSE} CASCADE",
            f"CREATE OR REPLACE TABLE {name} USING parquet AS SELECT 1 AS id",
            f"REPLACE TABLE {name} (id INT) USING parquet",
        )
    ]
    takes.append(lambda: one.write.format("parquet").mode("overwrite").saveAsTable(name))
    for take in takes:
        refused(take, "0A000", "release")
    assert rows(place.plain, f"{ELSEWHERE}.orders") == rows(place.plain, name) == [(1, 10)]
    job.conf.set("spark.sql.caseSensitive", "true")
    for statement in (f"DROP TABLE {SHOP}.Orders", f"INSERT INTO {SHOP}.ORDERS VALUES (1, 1)"):
        refused(partial(job.sql, statement), "0A000", "case")
    job.conf.unset("spark.sql.caseSensitive")
    job.sql(f"CREATE TABLE {WAREHOUSE}.outside USING delta LOCATION '{place.folder}/outside' AS SELECT 1 AS id")
    job.sql(f"CALL {CATALOG}.system.adopt(table => 'elsewhere.outside', location => '{place.folder}/outside')")
    job.sql(f"DROP TABLE {WAREHOUSE}.outside")
    assert rows(job, f"{ELSEWHERE}.outside") == [(1,)], "its files are not the session catalog's"


def test_a_name_of_the_lake_is_not_given_to_another_thing(job: Any, place: Place) -> None:
    name = f"IDENTIFIER('{SHOP}.' || 'mine')"
    job.sql(f"CREATE TABLE {WAREHOUSE}.later USING parquet AS SELECT 1 AS id")
    job.sql(f"CREATE TABLE {WAREHOUSE}.as_delta USING delta AS SELECT 1 AS id")
    for statement in (
        f"CREATE TABLE {name} USING parquet AS SELECT 1 AS id",
        f"CREATE TABLE {name} (id INT) USING csv",
        f"CREATE TABLE {name} USING delta AS SELECT 1 AS id",
        f"CREATE TABLE {name} AS SELECT 1 AS id",
        f"CREATE VIEW {name} AS SELECT 1 AS id",
        f"CREATE TABLE {SHOP}.mine LIKE {WAREHOUSE}.later",
        f"ALTER TABLE {WAREHOUSE}.later RENAME TO {SHOP}.mine",
        f"ALTER TABLE {WAREHOUSE}.as_delta RENAME TO {SHOP}.mine",
        f"ALTER TABLE IDENTIFIER('{SHOP}.' || 'orders') RENAME TO {SHOP}.orders_old",
        f"ALTER TABLE {SHOP}.raw RENAME TO mine",
        f"DROP TABLE IF EXISTS {name}",
    ):
        with pytest.raises(PySparkException, match=r"the lake|lake's|of catalog|already exists") as caught:
            job.sql(statement)
        # Some an IDENTIFIER is looked up early enough for, so that the lake itself says that it has the name.
        assert caught.value.getSqlState() in ("0A000", "42P07"), statement
    job.sql(f"USE {CATALOG}")
    refused(lambda: job.sql(f"ALTER TABLE spark_catalog.{WAREHOUSE}.as_delta RENAME TO {SHOP}.mine"), "0A000", "lake's")
    job.sql("USE spark_catalog")
    assert len(rows(job, f"{SHOP}.mine")) == 1
    assert {row.tableName for row in place.plain.sql(f"SHOW TABLES IN spark_catalog.{SHOP}").collect()} == {
        "orders",
        "raw",
    }
    job.sql(f"DROP TABLE IF EXISTS IDENTIFIER('{SHOP}.' || 'nothing')")
    job.sql(f"CREATE TABLE IF NOT EXISTS IDENTIFIER('{SHOP}.' || 'raw') USING parquet AS SELECT 1 AS id")
    job.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.only_of_the_lake")
    job.sql("DROP SCHEMA IF EXISTS only_of_the_lake")


def test_a_view_of_the_lake_says_the_lakes_names(job: Any, place: Place) -> None:
    if is_before("4.2"):
        pytest.skip("Spark has no views of catalogs")
    view = f"{CATALOG}.{SHOP}.big"
    for said in (view, f"IDENTIFIER('{view}')", f"IDENTIFIER('{CATALOG}.{SHOP}.' || 'big')"):
        refused(partial(job.sql, f"CREATE VIEW {said} AS SELECT * FROM {SHOP}.orders"), "0A000", "old name")
    job.sql(f"CREATE VIEW {view} AS SELECT * FROM {CATALOG}.{SHOP}.orders")
    refused(lambda: job.sql(f"ALTER VIEW {view} AS SELECT * FROM {SHOP}.orders"), "0A000", "old name")
    assert rows(place.plain, view) == rows(job, f"{SHOP}.big") == rows(job, f"{SHOP}.orders")
    job.sql(f"DROP VIEW {SHOP}.big")


def test_a_session_keeps_to_what_it_began_with_and_says_so(place: Place, spark_session: Any) -> None:
    key = f"spark.sql.catalog.{CATALOG}.session-names"
    session = new_session(spark_session, place.root)
    session.sql("SHOW NAMESPACES")
    session.sql("USE spark_catalog")
    session.conf.set(key, "true")
    refused(lambda: session.sql(f"SELECT * FROM {SHOP}.orders"), "22023", "first used")
    refused(lambda: session.sql(f"DROP SCHEMA {SHOP}"), "22023", "first used")
    assert session.sql("SELECT 1 AS one").collect() == [(1,)], "it is not locked"
    session.sql(f"RESET `{key}`")
    assert len(rows(session, f"{SHOP}.raw")) > 0


def test_one_of_two_lakes_stands_for_the_session_catalog(place: Place, spark_session: Any, tmp_path: Path) -> None:
    session = opened(spark_session, place.root, {CATALOG: "true", "other": "false"})
    session.conf.set("spark.sql.catalog.other.root", str(tmp_path / "other"))
    session.conf.set("spark.sql.catalog.other.create", "true")
    session.sql("CREATE TABLE other.default.things AS SELECT 1 AS id")
    session.sql("CREATE TAG old AS OF VERSION 1")
    session.sql("USE other")
    session.sql("BEGIN")
    session.sql("INSERT INTO things VALUES (2)")
    assert rows(session, f"spark_catalog.{SHOP}.raw") == [(1,)], "what no lake has, no transaction minds"
    refused(lambda: rows(session, f"spark_catalog.{SHOP}.orders"), "0A000", "only outside it")
    session.sql("COMMIT")
    both = opened(spark_session, place.root, {CATALOG: "true", "other": "true"})
    assert both.sql("SELECT 1 AS one").collect() == [(1,)]
    both.sql("SET `spark.sql.catalog.other.session-names` = false")
    refused(lambda: rows(both, f"{SHOP}.orders"), "22023", "session-names")


def test_names_are_refused_while_nobody_would_look_for_them(job: Any) -> None:
    single = "spark.sql.analyzer.singlePassResolver.enabled"
    job.conf.set(single, "true")
    refused(lambda: job.sql(f"SELECT * FROM {SHOP}.orders"), "0A000", "single-pass")
    refused(lambda: job.sql(f"CREATE TABLE {SHOP}.other USING delta AS SELECT 1 AS id"), "0A000", "single-pass")
    job.conf.unset(single)
    if is_before("4.2"):
        return
    path = "spark.sql.path.enabled"
    job.sql(f"USE {SHOP}")
    job.conf.set(path, "true")
    refused(lambda: job.sql("SELECT * FROM orders"), "0A000", "SQL path|sql.path")
    refused(lambda: job.sql("INSERT INTO orders VALUES (1, 1)"), "0A000")
    assert len(rows(job, f"{SHOP}.orders")) > 0
    job.conf.unset(path)
    assert len(rows(job, "orders")) > 0


def test_all_ways_to_name_a_table_mean_the_lakes(job: Any, place: Place, tmp_path: Path) -> None:
    table = f"{SHOP}.ways"
    job.sql(f"CREATE TABLE {table} USING delta AS SELECT 1 AS id")
    place.plain.sql(f"INSERT INTO {CATALOG}.{table} VALUES (2)")
    assert rows(job, f"{SHOP.upper()}.Ways") == rows(job, f"IDENTIFIER('{table}')") == [(1,), (2,)]
    job.sql(f"CREATE TABLE {SHOP}.copied (id INT) USING delta")
    stream = job.readStream.table(table).writeStream.format("delta").trigger(availableNow=True)
    stream.option("checkpointLocation", str(tmp_path / "check")).toTable(f"{SHOP}.copied").awaitTermination()
    assert rows(job, f"{SHOP}.copied") == [(1,), (2,)]
    job.sql(f"CACHE TABLE {table}")
    job.sql(f"INSERT INTO {table} VALUES (3)")
    assert len(rows(job, table)) == 3
    job.sql(f"UNCACHE TABLE {table}")
    job.sql(f"OPTIMIZE {table}")
    job.sql(f"VACUUM {table}")
    assert job.sql(f"DESCRIBE DETAIL {table}").first().numFiles == 1
    assert DeltaTable.forName(job, table).detail().count() == 1
    job.sql(f"CREATE TEMPORARY FUNCTION ids() RETURNS BIGINT RETURN SELECT count(*) FROM {table}")
    assert job.sql("SELECT ids()").collect() == [(3,)]
    job.sql(f"DROP TABLE {table}")
    with pytest.raises(PySparkException):
        job.sql(f"DESCRIBE TABLE {table}")


def test_the_names_of_a_statement_are_one_request(job: Any, asked: list[dict[str, Any]]) -> None:
    for table in ("orders", "raw"):
        rows(job, f"{SHOP}.{table}")
    asked.clear()
    job.sql(f"SELECT * FROM {SHOP}.orders, {SHOP}.raw, {SHOP}.mine, {WAREHOUSE}.orders").collect()
    looks = [request for request in asked if request["op"] == "session_names"]
    assert len(looks[0]["names"]) == 4
    assert len(looks) == 1 or is_before("4.2"), "older Sparks may ask once more of what is not the lake's"
