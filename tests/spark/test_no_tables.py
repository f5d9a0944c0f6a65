"""Plans in which Lockstep looks for nothing, for they surely read no table: everything else is looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.sparks import since

WITHOUT = (
    "SELECT 1",
    "SELECT id + 1 AS n FROM range(9) WHERE id > 3 GROUP BY id ORDER BY n LIMIT 2 OFFSET 1",
    "SELECT DISTINCT a.x FROM VALUES (1), (2) AS a(x) JOIN VALUES (1) AS b(x) ON a.x = b.x UNION ALL SELECT 3",
)
WITH = (
    "TABLE a",
    "SELECT 1 FROM a WHERE false",
    "SELECT (SELECT max(id) FROM a)",
    "SELECT 1 WHERE EXISTS (TABLE a)",
    "SELECT 1 WHERE 1 IN (TABLE a)",
    "SELECT id FROM range(3) WHERE id = (SELECT max(id) FROM a) ORDER BY id LIMIT 1",
    "SELECT r.id FROM range(3) r JOIN a ON r.id = a.id",
    "SELECT 1 UNION ALL TABLE a",
    "WITH c AS (TABLE a) SELECT * FROM c, c AS d",
    "SELECT * FROM a VERSION AS OF 0",
    "SELECT * FROM range(2) r, LATERAL (SELECT * FROM a WHERE a.id = r.id)",
    "SELECT * FROM cached",
    "SELECT * FROM lake.system.history",
    "SELECT 1 FROM lake.system.tables WHERE false",
    "SHOW TABLES",
    "EXPLAIN SELECT 1",
    "SET lockstep.isolation",
    "CREATE OR REPLACE TEMPORARY VIEW one AS SELECT 1",
)
FRAMES: dict[str, Callable[[Any], Any]] = {
    "a frame": lambda spark: spark.table("a"),
    "an RDD": lambda spark: spark.createDataFrame(spark.table("a").rdd),
    "a cache": lambda spark: spark.table("cached"),
    "files": lambda spark: spark.read.text(__file__),
    "a stream": lambda spark: spark.readStream.format("rate").load(),
}


def surely_none(frame: Any) -> list[bool]:
    """Tell of a query's plans whether each is one without tables: analyzed, with what is cached, optimized."""
    execution = frame._jdf.queryExecution()
    ask = getattr(frame.sparkSession._jvm.lockstep.spark.scans.NoTables, "in")
    if frame.isStreaming:  # it is optimized by nobody who could read it
        return [ask(execution.analyzed())]
    return [ask(plan) for plan in (execution.analyzed(), execution.withCachedData(), execution.optimizedPlan())]


@pytest.fixture
def tables(spark: Any) -> Any:
    spark.sql("CREATE TABLE a AS SELECT 1L AS id")
    spark.sql("CREATE TABLE cached AS SELECT 2L AS id")
    spark.catalog.cacheTable("cached")
    yield
    spark.catalog.clearCache()


@pytest.mark.usefixtures("tables")
def test_only_what_is_known_to_read_no_table_is_not_looked_at(spark: Any) -> None:
    assert {text: surely_none(spark.sql(text)) for text in WITHOUT} == dict.fromkeys(WITHOUT, [True] * 3)
    # Once the optimizer has seen that no row can come, there need be no table left; before that there is one.
    found = {text: surely_none(spark.sql(text))[:2] for text in WITH}
    found |= {name: surely_none(make(spark))[:2] for name, make in FRAMES.items()}
    assert {name: said for name, said in found.items() if any(said)} == {}


@since("4.2", "views in catalogs")
def test_a_view_is_looked_at_whatever_it_reads(spark: Any) -> None:
    """Which definition of it was used, COMMIT has to know."""
    spark.sql("CREATE VIEW one AS SELECT 1 AS id")
    assert surely_none(spark.sql("SELECT * FROM one"))[:2] == [False, False]


def test_a_statement_that_reads_nothing_is_one_all_the_same(spark: Any) -> None:
    """Its text is the newest one of its thread, and what comes behind it is a statement of its own."""
    spark.sql("CREATE TABLE a (id INT)")
    spark.sql("SELECT 1").collect()
    spark.sql("INSERT INTO a VALUES (1)")
    spark.sql("SELECT 2").collect()
    spark.createDataFrame([(2,)], "id INT").write.mode("append").saveAsTable("a")
    rows = spark.sql("SELECT version, statements FROM lake.system.history ORDER BY version DESC LIMIT 2").collect()
    assert [row.statements for row in rows] == [["WRITE default.a"], ["INSERT INTO a VALUES (1)"]]
