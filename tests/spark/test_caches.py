"""What is cached is used where it is what was asked for, and nowhere else, however it was cached."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.both import Both

pytestmark = pytest.mark.long


@pytest.fixture
def both(spark: Any, root: Path) -> Iterator[Both]:
    """Return tables a and b, in the lake of the session `spark`, whose cache is empty."""
    spark.catalog.clearCache()  # all sessions of a Spark share it
    yield Both(root)
    spark.catalog.clearCache()


def cache(spark: Any, how: str, table: str = "a") -> None:
    if how == "cacheTable":
        spark.catalog.cacheTable(table)
    elif how == "CACHE TABLE":
        spark.sql(f"CACHE TABLE {table}")
    else:
        spark.table(table).cache()


def read(frame: Any) -> tuple[list[int], bool]:
    """Return the ids, and whether they came out of the cache."""
    ids = sorted(row.id for row in frame.collect())
    return ids, "InMemoryRelation" in frame._jdf.queryExecution().withCachedData().toString()


@pytest.mark.parametrize("how", ["cacheTable", "CACHE TABLE", "cache"])
def test_a_cached_table_is_what_sql_and_frames_read(spark: Any, both: Both, how: str) -> None:
    assert not spark.catalog.isCached("a")
    cache(spark, how)
    assert spark.catalog.isCached("a")
    assert read(spark.table("a")) == ([0], True)
    assert read(spark.sql("SELECT * FROM a")) == ([0], True)
    assert read(spark.sql("SELECT id FROM b WHERE id IN (SELECT id FROM a)")) == ([0], True)
    spark.catalog.uncacheTable("a")
    assert not spark.catalog.isCached("a")
    assert read(spark.sql("SELECT * FROM a")) == ([0], False)


@pytest.mark.parametrize("how", ["cacheTable", "CACHE TABLE", "cache"])
def test_a_cached_table_with_char_columns_is_what_sql_and_frames_read(spark: Any, both: Both, how: str) -> None:
    """Spark reads such a table through a projection, which is what it caches."""
    spark.sql("CREATE TABLE c (id INT, code CHAR(3)) USING delta")
    spark.sql("INSERT INTO c VALUES (1, 'x')")
    cache(spark, how, "c")
    assert read(spark.table("c")) == ([1], True)
    assert read(spark.sql("SELECT id FROM c s WHERE s.code = 'x'")) == ([1], True)
    spark.sql("INSERT INTO c VALUES (2, 'x')")
    assert read(spark.sql("SELECT id FROM c s WHERE s.code = 'x'"))[0] == [1, 2]
    spark.catalog.uncacheTable("c")
    assert read(spark.sql("SELECT * FROM c")) == ([1, 2], False)


@pytest.mark.parametrize("how", ["cacheTable", "CACHE TABLE", "cache"])
def test_nobody_reads_what_is_cached_when_the_table_has_moved_on(spark: Any, both: Both, how: str) -> None:
    cache(spark, how)
    assert read(spark.table("a")) == ([0], True)
    query = spark.sql("SELECT * FROM a WHERE id >= 0")
    both.commit()
    assert read(spark.table("a"))[0] == [1]
    assert read(spark.sql("SELECT a.id FROM a JOIN b USING (id)"))[0] == [1]
    assert read(query)[0] == [0], "it was made before"
    both.plain_append("a", 7)
    assert read(spark.sql("SELECT * FROM a"))[0] == [1, 7]
    assert read(spark.table("a"))[0] == [1, 7]


def test_a_table_that_is_cached_by_name_is_cached_anew_when_it_has_moved_on(spark: Any, both: Both) -> None:
    spark.catalog.cacheTable("a")
    both.commit()
    assert read(spark.sql("SELECT * FROM a")) == ([1], True)
    spark.sql("INSERT INTO a VALUES (7)")
    assert read(spark.sql("SELECT * FROM a")) == ([1, 7], True)
    assert read(spark.table("a")) == ([1, 7], True)


@pytest.mark.parametrize("how", ["cacheTable", "CACHE TABLE", "cache"])
def test_commit_ends_what_is_cached_in_nested_namespaces_too(spark: Any, both: Both, how: str) -> None:
    spark.sql("CREATE NAMESPACE n")
    spark.sql("CREATE NAMESPACE n.m")
    spark.sql("CREATE TABLE n.m.t AS SELECT 0L AS id")
    cache(spark, how, "n.m.t")
    query = spark.table("n.m.t").where("id >= 0").cache()
    assert read(query) == ([0], True)
    spark.sql("BEGIN")
    spark.sql("INSERT INTO n.m.t VALUES (1)")
    spark.sql("COMMIT")
    assert read(spark.table("n.m.t").where("id >= 0")) == ([0, 1], False)
    assert read(spark.table("n.m.t")) == ([0, 1], False)
    assert read(spark.sql("SELECT * FROM n.m.t")) == ([0, 1], False)
    assert spark._jsparkSession.sharedState().cacheManager().isEmpty(), "nothing is kept for nobody"
