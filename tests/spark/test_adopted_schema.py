"""Adopting a schema of Spark's session catalog: what that lists, where it says that it lies. This one is in memory.

`tests/hosts/test_hive_metastore.py` has one of Hive's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import lockstep
from lockstep.lake.claims import claim_path
from tests.spark.test_adoption import rows
from tests.support.interposed import host_of
from tests.support.sessions import CATALOG
from tests.support.sparks import is_before

CLAIMS = f"*/{claim_path('.').removeprefix('./')}"
SHOP = "spark_catalog.adopted_shop"
ADOPT = f"CALL {CATALOG}.system.adopt(schema => '{SHOP}'"

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("shop")]


@pytest.fixture
def shop(spark: Any, tmp_path: Path) -> Iterator[Path]:
    """A schema with tables of all kinds; the folder of those that it manages."""
    folder = tmp_path / "warehouse" / "shop.db"
    spark.sql(f"CREATE SCHEMA {SHOP} LOCATION '{folder}'")
    for statement in (
        "CREATE TABLE {s}.orders USING delta AS SELECT 1 AS id, 10 AS amount",
        "CREATE TABLE {s}.`2024` (id INT, day INT) USING delta PARTITIONED BY (day) LOCATION '{t}/far away/50%25'",
        "INSERT INTO {s}.`2024` VALUES (1, 1), (2, 2)",
        "CREATE TABLE {s}.raw USING parquet AS SELECT 1 AS id",
        "CREATE TABLE {s}.lines USING csv LOCATION '{t}/lines' AS SELECT 1 AS id",
        "CREATE VIEW {s}.big AS SELECT * FROM {s}.orders WHERE amount > 5",
        "CREATE TEMPORARY VIEW mine AS SELECT 1 AS id",
    ):
        spark.sql(statement.format(s=SHOP, t=tmp_path))
    yield folder
    spark.sql("DROP VIEW mine")
    spark.sql(f"DROP SCHEMA {SHOP} CASCADE")


def answer(spark: Any, more: str = "") -> dict[str, Any]:
    """Adopt the schema, or look at it, and return the rows by table."""
    return {row.table: row for row in spark.sql(f"{ADOPT}{more})").collect()}


def test_the_delta_tables_of_a_schema_are_adopted_where_they_are_and_the_rest_is_named(
    spark: Any, shop: Path, tmp_path: Path
) -> None:
    places = {"orders": f"file://{shop}/orders", "2024": f"file://{tmp_path}/far away/50%25"}
    reasons = {
        "big": "it is a view" if is_before("4.2") else f"it says {SHOP}.orders",
        "lines": "it is a table of csv",
        "mine": "it is a temporary view",
        "raw": "it is a table of parquet",
    }
    looked = answer(spark, ", dry_run => true")
    assert not [*tmp_path.rglob(CLAIMS)]
    done = answer(spark)
    for found, made in ((looked, None), (done, 1)):
        assert {row.namespace for row in found.values()} == {"adopted_shop"}
        assert {name: row.location for name, row in found.items() if row.refused is None} == places
        assert {
            name: row.refused.split(":")[0].split(",")[0].split(" of this")[0]
            for name, row in found.items()
            if row.refused is not None
        } == reasons
        assert {name: row.database_version for name, row in found.items()} == {
            name: made if name in places else None for name in places | reasons
        }
    assert looked["raw"].location == done["raw"].location == f"file:{shop}/raw"
    assert done["big"].location is None

    spark.sql("BEGIN")
    spark.sql(f"INSERT INTO {CATALOG}.adopted_shop.orders VALUES (2, 20)")
    spark.sql(f"DELETE FROM {CATALOG}.adopted_shop.`2024` WHERE day = 1")
    spark.sql("COMMIT")
    assert rows(spark, f"{SHOP}.orders") == [(1, 10), (2, 20)]
    spark.sql(f"INSERT INTO {SHOP}.`2024` VALUES (3, 3)")
    assert rows(spark, f"{CATALOG}.adopted_shop.`2024`") == [(2, 2), (3, 3)]
    with pytest.raises(PySparkException, match="of this lake already"):
        answer(spark)


def test_in_a_transaction_the_tables_are_its_own_and_a_rollback_leaves_no_claim(spark: Any, tmp_path: Path) -> None:
    for end in ("ROLLBACK", "COMMIT"):
        spark.sql("BEGIN")
        found = answer(spark, ", namespace => 'a.b'")
        assert [row.database_version for row in found.values()] == [None] * 6
        spark.sql(f"INSERT INTO {CATALOG}.a.b.orders VALUES (2, 20)")
        assert rows(spark, f"{CATALOG}.a.b.orders") == [(1, 10), (2, 20)]
        assert len([*tmp_path.rglob(CLAIMS)]) == 2
        spark.sql(end)
        if end == "ROLLBACK":
            assert not [*tmp_path.rglob(CLAIMS)]
            assert rows(spark, f"{SHOP}.orders") == [(1, 10)]
            assert not lockstep.TransactionalCatalog.open(str(tmp_path / CATALOG)).database().tables
    assert rows(spark, f"{SHOP}.orders") == rows(spark, f"{CATALOG}.a.b.orders") == [(1, 10), (2, 20)]


def test_names_are_found_as_spark_finds_them_and_others_are_refused(spark: Any) -> None:
    for said, state in (
        ("adopted_shop", "22023"),
        ("spark_catalog.nowhere", "3F000"),
        (f"{CATALOG}.adopted_shop", "0A000"),
        ("spark_catalog.a.b", "22023"),
    ):
        with pytest.raises(PySparkException) as refused:
            spark.sql(f"CALL {CATALOG}.system.adopt(schema => '{said}')")
        assert (said, refused.value.getSqlState()) == (said, state)
    found = spark.sql(f"CALL {CATALOG}.system.adopt(schema => '`Spark_Catalog`.`ADOPTED_shop`')").collect()
    assert {row.namespace for row in found} == {"adopted_shop"}


def move(spark: Any, table: str, location: str | None) -> None:
    """Have the metastore say another location of a table, as Spark itself would not write it."""
    catalog, jvm = spark._jsparkSession.sharedState().externalCatalog(), spark._jvm
    found = catalog.getTable(SHOP.split(".")[1], table)
    where = jvm.scala.Option.apply(None if location is None else jvm.java.net.URI(location))
    others = [getattr(found, f"withNewStorage$default${n}")() for n in range(2, 7 if is_before("4.2") else 8)]
    catalog.alterTable(found.withNewStorage(where, *others))


def test_a_path_without_a_scheme_is_one_of_the_default_file_system(spark: Any, shop: Path) -> None:
    """And a table without a path is refused."""
    move(spark, "orders", f"{shop}/orders")
    assert answer(spark, ", dry_run => true")["orders"].refused is None
    spark.conf.set("fs.defaultFS", "s3a://bucket")
    try:
        row = answer(spark, ", dry_run => true")["orders"]
    finally:
        spark.conf.unset("fs.defaultFS")
    assert (row.location, "in another kind of store" in row.refused) == (f"s3a://bucket{shop}/orders", True)
    move(spark, "orders", None)
    assert "its location is empty" in answer(spark, ", dry_run => true")["orders"].refused
    with pytest.raises(PySparkException, match="its location is empty"):
        answer(spark)


def test_what_is_dropped_while_the_schema_is_adopted_refuses_it(
    spark: Any, other: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And it is adopted without that when it is asked for again."""
    host = host_of(spark)
    ask, drops = host.call, iter([f"DROP TABLE {SHOP}.orders"])

    def call(request: str) -> str:
        if '"listed"' in request:
            for drop in drops:
                other.sql(drop)
        return ask(request)

    monkeypatch.setattr(host, "call", call)
    with pytest.raises(PySparkException, match=r"as adopted_shop\.orders\): it is no Delta table") as refused:
        answer(spark)
    assert refused.value.getSqlState() == "22023"
    assert not [*tmp_path.rglob(CLAIMS)]
    assert {name for name, row in answer(spark).items() if row.refused is None} == {"2024"}
