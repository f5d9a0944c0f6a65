"""A lake that stands for Spark's session catalog: jobs with two-part names need no change, the rest is as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable

import lockstep
from lockstep.spark.bridge import is_open
from tests.spark.test_adoption import rows
from tests.support.session_names import opened, refused
from tests.support.sessions import CATALOG
from tests.support.sparks import is_before

pytestmark = pytest.mark.long

SHOP = "names_shop"
ORDERS = f"{SHOP}.orders"


@pytest.fixture
def plain(spark: Any, tmp_path: Path) -> Iterator[Any]:
    """A session that knows the lake by its own name alone, and a schema of which the lake has adopted two tables."""
    spark.sql("USE spark_catalog")
    spark.sql(f"CREATE SCHEMA {SHOP} LOCATION '{tmp_path}/warehouse/shop.db'")
    spark.sql(f"CREATE TABLE {ORDERS} USING delta AS SELECT 1 AS id, 10 AS amount")
    spark.sql(f"CREATE TABLE {SHOP}.totals USING delta AS SELECT 10 AS amount")
    spark.sql(f"CALL {CATALOG}.system.adopt(schema => 'spark_catalog.{SHOP}')")
    spark.sql(f"CREATE TABLE {SHOP}.later USING delta AS SELECT 1 AS id")
    spark.sql(f"CREATE TABLE {SHOP}.raw USING parquet AS SELECT 1 AS id")
    yield spark
    spark.sql(f"DROP SCHEMA {SHOP} CASCADE")


@pytest.fixture
def job(plain: Any, spark_session: Any, root: Path) -> Iterator[Any]:
    """A session whose lake stands for the session catalog, which is its current one."""
    session = opened(spark_session, root, {CATALOG: "true"})
    yield session
    if is_open(session):
        session.sql("ROLLBACK")


def version(root: Path) -> int:
    return lockstep.TransactionalCatalog.open(str(root)).database().version


def test_statements_with_two_part_names_are_one_transaction(job: Any, plain: Any, root: Path) -> None:
    before = version(root)
    for end in ("ROLLBACK", "COMMIT"):
        job.sql("BEGIN")
        job.sql(f"INSERT INTO {ORDERS} VALUES (2, 20)")
        job.sql(f"UPDATE spark_catalog.{SHOP}.totals SET amount = (SELECT sum(amount) FROM {ORDERS})")
        job.sql(f"USE {SHOP}")
        job.sql(
            "MERGE INTO orders AS t USING (SELECT * FROM orders VERSION AS OF 0) AS s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET amount = t.amount + s.amount"
        )
        job.sql("DELETE FROM orders WHERE id > 2")
        assert rows(job, "(WITH orders AS (SELECT 'cte' AS id) SELECT * FROM orders)") == [("cte",)]
        job.sql("CREATE OR REPLACE TEMPORARY VIEW orders AS SELECT 'temporary' AS id")
        assert rows(job, "orders") == [("temporary",)]
        job.sql("DROP VIEW orders")
        assert (rows(job, "orders"), rows(job, f"{SHOP}.totals")) == ([(1, 20), (2, 20)], [(30,)])
        assert (rows(plain, ORDERS), rows(plain, f"{SHOP}.totals")) == ([(1, 10)], [(10,)])
        job.sql(end)
    assert version(root) == before + 1
    assert (rows(plain, ORDERS), rows(plain, f"{SHOP}.totals")) == ([(1, 20), (2, 20)], [(30,)])
    assert rows(job, f"{ORDERS} FOR SYSTEM_VERSION AS OF {before}") == [(1, 10)]
    assert job.sql(f"SELECT id FROM {ORDERS} WITH (startingSystemVersion = {before + 1})").count() > 0
    job.sql(f"RESTORE TABLE {ORDERS} TO SYSTEM_VERSION AS OF {before}")
    assert rows(plain, ORDERS) == [(1, 10)]


def test_the_dataframe_api_with_two_part_names_is_part_of_a_transaction(job: Any, plain: Any) -> None:
    plain.sql(f"CREATE TABLE {CATALOG}.{SHOP}.mine AS SELECT 1 AS id")
    one = job.sql("SELECT 9 AS id, 90 AS amount")
    table = job.table(ORDERS)
    writes: list[Callable[[], Any]] = [
        lambda: one.write.insertInto(ORDERS),
        lambda: one.write.format("delta").mode("append").saveAsTable(ORDERS),
        lambda: one.write.mode("append").saveAsTable(ORDERS),
        lambda: one.write.mode("overwrite").saveAsTable(ORDERS),
        lambda: one.writeTo(ORDERS).append(),
        lambda: DeltaTable.forName(job, ORDERS).update(set={"amount": "0"}),
        lambda: DeltaTable.forName(job, f"spark_catalog.{ORDERS}").delete(),
        lambda: DeltaTable.forName(job, ORDERS).restoreToVersion(0),
        lambda: (
            DeltaTable.forName(job, ORDERS)
            .alias("t")
            .merge(one.alias("s"), "t.id = s.id")
            .whenNotMatchedInsertAll()
            .execute()
        ),
    ]
    job.sql("BEGIN")
    for number, write in enumerate(writes):
        write()
        history = DeltaTable.forName(job, ORDERS).history()
        assert history.count() == number + 2, number
        assert rows(plain, ORDERS) == [(1, 10)], number
    assert rows(job, ORDERS) == [(1, 10), (9, 90)]
    assert job.catalog.tableExists(ORDERS)
    assert job.sql(f"DESCRIBE HISTORY {ORDERS}").count() == len(writes) + 1
    listed = job._jsparkSession.catalog().listTables  # Spark 4.2 cannot bring a list of tables to Python (42846)
    assert listed(SHOP).count() == 5, "what the metastore has, and what only the lake has"
    refused(table.count, "25001")
    job.sql("COMMIT")
    assert rows(plain, ORDERS) == [(1, 10), (9, 90)]


def test_a_name_of_one_part_and_the_catalogs_calls_mean_the_lakes_table(job: Any, plain: Any) -> None:
    job.catalog.setCurrentDatabase(SHOP)
    assert (job.catalog.currentCatalog(), job.catalog.currentDatabase()) == ("spark_catalog", SHOP)
    job.sql("BEGIN")
    DeltaTable.forName(job, "orders").update(set={"amount": "11"})
    job.table("orders").selectExpr("id + 1 AS id", "amount").write.insertInto("orders")
    assert job.catalog.tableExists("orders")
    assert [column.name for column in job.catalog.listColumns("orders")] == ["id", "amount"]
    assert job.catalog.getTable("orders").name == "orders"
    job.catalog.cacheTable("orders")
    assert job.catalog.isCached("orders")
    assert rows(job, "orders") == [(1, 11), (2, 11)]
    job.catalog.refreshTable("orders")
    job.catalog.uncacheTable("orders")
    assert not job.catalog.isCached("orders")
    assert rows(plain, ORDERS) == [(1, 10)]
    job.sql("COMMIT")
    assert rows(plain, ORDERS) == [(1, 11), (2, 11)]


def test_what_the_lake_has_not_is_as_it_was_and_another_catalogs_to_a_transaction(job: Any, plain: Any) -> None:
    one = job.range(1)
    writes: list[Callable[[], Any]] = [
        lambda: job.sql(f"INSERT INTO {SHOP}.later VALUES (2)"),
        lambda: job.sql(f"DELETE FROM {SHOP}.later WHERE id = 2"),
        lambda: job.sql(f"INSERT INTO {SHOP}.raw VALUES (2)"),
        lambda: job.sql(f"CREATE TABLE {SHOP}.made USING parquet AS SELECT 1 AS id"),
        lambda: job.sql(f"DROP TABLE {SHOP}.old"),
        lambda: job.sql(f"CREATE OR REPLACE VIEW {SHOP}.big AS SELECT * FROM {ORDERS}"),
        lambda: job.sql(f"DROP VIEW {SHOP}.small"),
        lambda: one.write.insertInto(f"{SHOP}.later"),
        lambda: one.write.format("delta").mode("append").saveAsTable(f"{SHOP}.later"),
        lambda: DeltaTable.forName(job, f"{SHOP}.later").delete("id = 0"),
        lambda: job.sql(f"OPTIMIZE {SHOP}.later"),
        lambda: job.sql(f"ALTER TABLE {SHOP}.later SET TBLPROPERTIES (a = 'b')"),
    ]
    if not is_before("4.2"):  # which drops the table before there is a command that could be refused
        writes.append(lambda: one.write.format("parquet").mode("overwrite").saveAsTable(f"{SHOP}.more"))
        job.sql(f"CREATE TABLE {SHOP}.more USING parquet AS SELECT 1 AS id")
    job.sql(f"CREATE TABLE {SHOP}.old USING parquet AS SELECT 1 AS id")
    job.sql(f"CREATE VIEW {SHOP}.small AS SELECT 1 AS id")
    job.sql("BEGIN")
    for write in writes:
        refused(write, "25001")
    assert rows(job, f"{SHOP}.later") == rows(job, f"{SHOP}.raw") == [(1,)]
    assert is_before("4.2") or rows(job, f"{SHOP}.more") == [(1,)]
    job.sql("ROLLBACK")
    for write in writes:
        write()
    assert rows(plain, f"{SHOP}.later") == [(1,)]
    refused(lambda: job.sql(f"SELECT * FROM {SHOP}.nothing"), "42P01")
    assert rows(plain, f"{SHOP}.raw") == [(1,), (2,)]


def test_a_view_of_the_session_catalog_reads_the_lakes_tables(job: Any, plain: Any) -> None:
    plain.sql(f"CREATE VIEW {SHOP}.big AS SELECT * FROM {ORDERS}")
    job.sql("BEGIN")
    job.sql(f"INSERT INTO {ORDERS} VALUES (2, 20)")
    assert rows(job, f"{SHOP}.big") == [(1, 10), (2, 20)]
    assert rows(plain, f"{SHOP}.big") == [(1, 10)]


def test_a_new_table_of_delta_is_the_lakes_where_it_has_the_schema(job: Any, plain: Any) -> None:
    makes: list[Callable[[], Any]] = [
        lambda: job.sql(f"CREATE TABLE {SHOP}.n1 USING delta AS SELECT 1 AS id"),
        lambda: job.sql(f"CREATE TABLE {SHOP}.n2 (id INT) USING delta"),
        lambda: job.range(1).write.format("delta").saveAsTable(f"{SHOP}.n3"),
        lambda: job.range(1).writeTo(f"{SHOP}.n4").using("delta").createOrReplace(),
        lambda: DeltaTable.create(job).tableName(f"{SHOP}.n5").addColumn("id", "INT").execute(),
        lambda: job.sql(f"CREATE TABLE {SHOP}.n6 SHALLOW CLONE {ORDERS}"),
    ]
    names = {f"n{n}" for n in range(1, 7)}
    for end in ("ROLLBACK", "COMMIT"):
        job.sql("BEGIN")
        for make in makes:
            make()
        listed = [row.tableName for row in job.sql(f"SHOW TABLES IN {SHOP}").collect()]
        assert len(listed) == len(set(listed)), listed
        assert set(listed) == {"orders", "totals", "later", "raw", *names}
        job.sql(end)
    assert {row.tableName for row in plain.sql(f"SHOW TABLES IN {CATALOG}.{SHOP}").collect()} >= names
    assert {row.tableName for row in plain.sql(f"SHOW TABLES IN {SHOP}").collect()} == {
        "orders",
        "totals",
        "later",
        "raw",
    }
    assert [row.tableName for row in job.sql(f"SHOW TABLES IN {SHOP} LIKE 'n1*'").collect()] == ["n1"]
    refused(lambda: job.sql(f"ALTER TABLE {SHOP}.n1 RENAME TO {SHOP}.later"), "0A000")
    job.sql(f"ALTER TABLE {SHOP}.n1 RENAME TO {SHOP}.n9")
    job.sql(f"DROP TABLE {SHOP}.n9")
    assert not job.catalog.tableExists(f"{SHOP}.n9")


def test_what_both_have_is_not_taken_from_one_of_them(job: Any, plain: Any) -> None:
    for statement in (
        f"DROP TABLE {ORDERS}",
        f"DROP TABLE IF EXISTS spark_catalog.{ORDERS}",
        f"ALTER TABLE {ORDERS} RENAME TO {SHOP}.others",
        f"DROP SCHEMA {SHOP} CASCADE",
    ):
        refused(partial(job.sql, statement), "0A000", "release")
    assert rows(plain, ORDERS) == rows(plain, f"{CATALOG}.{ORDERS}") == [(1, 10)]
    job.sql(f"CALL {CATALOG}.system.release(table => '{ORDERS}')")
    job.sql(f"DROP TABLE {ORDERS}")
    refused(lambda: rows(job, ORDERS), "42P01")


def test_two_tables_of_one_name_are_refused(job: Any, plain: Any) -> None:
    plain.sql(f"CREATE TABLE {CATALOG}.{SHOP}.later AS SELECT 2 AS id")
    for use in (f"SELECT * FROM {SHOP}.later", f"INSERT INTO {SHOP}.later VALUES (1)", f"DROP TABLE {SHOP}.later"):
        refused(partial(job.sql, use), "42702")
    assert rows(job, f"{CATALOG}.{SHOP}.later") == [(2,)]


def test_a_dataframe_from_before_the_lake_had_its_table_is_refused_in_a_transaction(job: Any, plain: Any) -> None:
    frame = job.sql(f"SELECT * FROM {SHOP}.later")
    plain.sql(f"CALL {CATALOG}.system.adopt(table => '{SHOP}.later', location => '{where(plain, f'{SHOP}.later')}')")
    job.sql("BEGIN")
    job.sql(f"INSERT INTO {SHOP}.later VALUES (2)")
    refused(frame.count, "0A000", "by its path")
    refused(lambda: frame.selectExpr("id", "id").write.insertInto(ORDERS), "0A000")
    plain.sql("BEGIN")
    refused(lambda: rows(plain, ORDERS), "0A000", "by its path")
    plain.sql("ROLLBACK")


def test_a_transaction_reads_no_table_that_the_lake_has_and_it_does_not_see(job: Any, plain: Any) -> None:
    job.sql("BEGIN")
    assert rows(job, ORDERS) == [(1, 10)]
    plain.sql(f"CALL {CATALOG}.system.adopt(table => '{SHOP}.later', location => '{where(plain, f'{SHOP}.later')}')")
    for name in (f"{SHOP}.later", f"{SHOP}.LATER"):
        refused(partial(job.table, name), "42P01", "adopted or made later")
    job.sql("ROLLBACK")
    job.sql("BEGIN READ ONLY AS OF VERSION 0")
    refused(lambda: job.table(ORDERS), "42P01")
    job.sql("ROLLBACK")
    assert rows(job, f"{SHOP}.later") == [(1,)]


def where(spark: Any, table: str) -> str:
    return spark.sql(f"DESCRIBE DETAIL {table}").first().location


def test_one_catalog_of_a_session_says_so_in_words_that_are_known(spark_session: Any, root: Path, plain: Any) -> None:
    session = opened(spark_session, root, {CATALOG: "yes"})
    refused(lambda: session.sql(f"SELECT * FROM {ORDERS}"), "22023", "session-names")
    session = opened(spark_session, root, {CATALOG: "true", "other_lake": "yes"})
    refused(lambda: session.sql(f"SELECT * FROM {ORDERS}"), "22023", "yes")
    session = opened(spark_session, root, {CATALOG: "true", "other_lake": "true"})
    refused(lambda: session.sql(f"SELECT * FROM {ORDERS}"), "22023", "lake, other_lake")
