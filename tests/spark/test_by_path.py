"""A table of the lake is read by its name where its reads count: by its path it is neither the snapshot nor judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import lockstep
from lockstep.timeline.entry import Name
from tests.support.sampled import sampled

pytestmark = pytest.mark.long


def by_path(folder: Path | str) -> str:
    return f"spark_catalog.delta.`{folder}`"


def of_second_kind(spark: Any) -> Any:
    spark.conf.set("spark.sql.sources.useV1SourceList", "")
    return spark.read


def mounted(spark: Any, folder: Path) -> Any:
    """Return a reader to which the folder is a mount of a file system of views."""
    spark._jsc.hadoopConfiguration().set("fs.viewfs.mounttable.mounts.link./lake", f"file://{folder}")
    return spark.read


READS: dict[str, Callable[[Any, Path], Any]] = {
    "SQL": lambda spark, folder: spark.sql(f"SELECT * FROM {by_path(folder)}"),
    "DataFrame": lambda spark, folder: spark.read.format("delta").load(str(folder)),
    "a subquery": lambda spark, folder: spark.sql(f"SELECT 1 WHERE 1 IN (SELECT id FROM {by_path(folder)})"),
    "an older version": lambda spark, folder: spark.sql(f"SELECT * FROM {by_path(folder)} VERSION AS OF 1"),
    "changes": lambda spark, folder: spark.sql(f"SELECT * FROM table_changes_by_path('{folder}', 1)"),
    "files": lambda spark, folder: spark.read.parquet(str(next(folder.glob("*.parquet")))),
    "all files": lambda spark, folder: spark.read.option("recursiveFileLookup", "true").parquet(str(folder.parent)),
    "a file source of the second kind": lambda spark, folder: of_second_kind(spark).parquet(str(folder)),
    "a scheme in upper case": lambda spark, folder: spark.read.format("delta").load(f"FILE:{folder}"),
    "files, by such a scheme": lambda spark, folder: spark.read.parquet(f"File://{folder}"),
    "the URI that plans show": lambda spark, folder: spark.read.format("delta").load(f"lockstep://head.file{folder}"),
    "that URI in SQL": lambda spark, folder: spark.sql(f"SELECT * FROM {by_path(f'lockstep://head.file{folder}')}"),
    "files by that URI": lambda spark, folder: spark.read.parquet(f"lockstep://head.file{folder}"),
    "changes by that URI": lambda spark, folder: spark.sql(
        f"SELECT * FROM table_changes_by_path('lockstep://head.file{folder}', 1)"
    ),
    "a mount of Hadoop's": lambda spark, folder: mounted(spark, folder).parquet("viewfs://mounts/lake"),
    "its log": lambda spark, folder: spark.read.json(str(folder / "_delta_log" / f"{1:020d}.json")),
}


@pytest.fixture
def folder(spark: Any, root: Path) -> Path:
    """Return where table t lies; u is another."""
    spark.sql("CREATE TABLE t (id INT) TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    spark.sql("INSERT INTO t VALUES (1)")
    spark.sql("CREATE TABLE u (id INT)")
    database = lockstep.TransactionalCatalog.open(str(root)).database()
    return root / database.tables[Name(namespace=("default",), table="t")].location


def refused(spark: Any, read: Callable[[], Any]) -> None:
    with pytest.raises(PySparkException, match=r"is of table default\.t.*Read the table by its name") as caught:
        read()
    assert caught.value.getSqlState() == "0A000"


@pytest.mark.parametrize("how", sampled(zip(READS, READS, strict=True), 2))
def test_in_a_transaction_no_table_is_read_by_its_path(spark: Any, folder: Path, how: str) -> None:
    assert READS[how](spark, folder).count() >= 1
    spark.sql("BEGIN")
    refused(spark, lambda: READS[how](spark, folder).count())
    spark.sql("ROLLBACK")


def test_a_table_of_another_catalog_is_read_that_has_no_partition_there(spark: Any, folder: Path) -> None:
    spark.sql("CREATE TABLE spark_catalog.default.parts (id INT, q INT) USING parquet PARTITIONED BY (q)")
    try:
        with lockstep.transaction(spark):
            assert spark.table("spark_catalog.default.parts").count() == 0
        spark.sql(f"ALTER TABLE spark_catalog.default.parts ADD PARTITION (q = 1) LOCATION '{folder}'")
        with lockstep.transaction(spark, read_only=True):
            refused(spark, lambda: spark.table("spark_catalog.default.parts").count())
        refused(spark, lambda: spark.sql("INSERT INTO u SELECT id FROM spark_catalog.default.parts WHERE id > 0"))
    finally:
        spark.sql("DROP TABLE spark_catalog.default.parts")


PARTS = "spark_catalog.default.parts"


@pytest.fixture
def parts(spark: Any, folder: Path, tmp_path: Path) -> Iterator[str]:
    """A table of the session catalog, one of whose partitions lies where a table of the lake does."""
    spark.sql(f"CREATE TABLE {PARTS} (id INT, q INT) USING parquet PARTITIONED BY (q)")
    spark.sql(f"INSERT INTO {PARTS} VALUES (7, 2)")
    spark.sql(f"ALTER TABLE {PARTS} ADD PARTITION (q = 1) LOCATION '{folder}'")
    yield PARTS
    spark.sql(f"DROP TABLE {PARTS}")


QUERIES: dict[str, Callable[[Any, int], Any]] = {
    "SQL": lambda spark, q: spark.sql(f"SELECT id FROM {PARTS} WHERE q = {q}").collect(),
    "rows of an RDD": lambda spark, q: spark.table(PARTS).where(f"q = {q}").rdd.collect(),
    "one by one": lambda spark, q: [*spark.table(PARTS).where(f"q = {q}").toLocalIterator()],
    "a subquery": lambda spark, q: spark.sql(f"SELECT (SELECT max(id) FROM {PARTS} WHERE q = {q})").collect(),
    "a join": lambda spark, q: spark.sql(f"SELECT * FROM u RIGHT JOIN {PARTS} p USING (id) WHERE p.q = {q}").collect(),
    "INSERT": lambda spark, q: spark.sql(f"INSERT INTO u SELECT id FROM {PARTS} WHERE q = {q}"),
}


@pytest.mark.parametrize("how", QUERIES)
def test_of_a_partitioned_table_those_partitions_count_that_are_read(spark: Any, parts: str, how: str) -> None:
    assert spark.table(parts).count() == 2
    spark.sql("BEGIN")
    spark.table(parts).printSchema()
    QUERIES[how](spark, 2)
    refused(spark, lambda: QUERIES[how](spark, 1))
    spark.sql("ROLLBACK")


def test_so_it_is_of_a_query_from_before_begin_and_of_what_a_statement_on_its_own_writes(
    spark: Any, parts: str
) -> None:
    frames = {q: spark.table(parts).where(f"q = {q}") for q in (1, 2)}
    assert [frames[q].count() for q in (1, 2)] == [1, 1]
    spark.sql("BEGIN")
    assert frames[2].count() == 1
    refused(spark, frames[1].count)
    spark.sql("ROLLBACK")
    QUERIES["INSERT"](spark, 2)
    refused(spark, lambda: QUERIES["INSERT"](spark, 1))
    source = f"(SELECT id FROM {parts} WHERE q = 1)"
    merge = f"MERGE INTO u USING {source} s ON s.id = u.id WHEN NOT MATCHED THEN INSERT *"
    refused(spark, lambda: spark.sql(merge))
    assert [row.id for row in spark.table("u").collect()] == [7]


def test_a_read_by_another_spelling_before_hides_nothing(spark: Any, other: Any, folder: Path) -> None:
    """Delta keeps what it knows of a log under the path that somebody spelled first."""
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    other.sql(f"SELECT * FROM {by_path(f'FILE:{folder}')}").collect()
    spark.sql("BEGIN")
    refused(spark, lambda: READS["SQL"](spark, folder).count())
    spark.sql("ROLLBACK")


def test_what_a_transaction_staged_is_no_other_sessions_to_read_by_its_uri(spark: Any, other: Any, root: Path) -> None:
    spark.sql("CREATE TABLE t (id INT)")
    spark.sql("BEGIN")
    spark.sql("INSERT INTO t VALUES (1)")
    uri = spark.table("t").inputFiles()[0].rpartition("/")[0]
    for read in (lambda: other.read.parquet(uri), lambda: other.read.text(f"{uri}/_delta_log")):
        with pytest.raises(PySparkException, match="of another session") as caught:
            read().count()
        assert caught.value.getSqlState() == "25001"
    spark.sql("ROLLBACK")


def test_nor_by_a_link_to_it_nor_by_a_frame_from_before_begin(spark: Any, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder.parent)
    frame = READS["DataFrame"](spark, folder)
    frame.count()
    spark.sql("BEGIN")
    refused(spark, lambda: READS["SQL"](spark, tmp_path / "link" / folder.name).count())
    refused(spark, frame.count)
    spark.sql("ROLLBACK")


def test_a_statement_on_its_own_that_writes_reads_none_by_its_path(spark: Any, folder: Path) -> None:
    """It would be judged for what it read of other tables, and this nobody sees."""
    refused(spark, lambda: spark.sql(f"INSERT INTO u SELECT id FROM {by_path(folder)}"))
    refused(spark, lambda: READS["DataFrame"](spark, folder).write.insertInto("u"))
    merge = "MERGE INTO u USING {} AS s ON s.id = u.id WHEN NOT MATCHED THEN INSERT *"
    refused(spark, lambda: spark.sql(merge.format(by_path(folder))))
    assert (spark.table("u").count(), spark.table("t").count()) == (0, 1)
    spark.sql("SET lockstep.isolation = snapshot")
    spark.sql(f"INSERT INTO u SELECT id FROM {by_path(folder)}")
    spark.sql("RESET lockstep.isolation")
    assert spark.table("u").count() == 1


@pytest.mark.parametrize("value", ["count(*)", "max(id)", "sum(id)"])
def test_nor_what_delta_answers_from_statistics(spark: Any, folder: Path, value: str) -> None:
    """Of what a column is set from nothing is left in the plan that is executed."""
    spark.sql("INSERT INTO u VALUES (2)")
    query = f"SELECT int({value}) AS id FROM {by_path(folder)}"
    for statement in (
        f"UPDATE u SET id = ({query})",
        f"MERGE INTO u USING (SELECT 2 AS n) s ON u.id = s.n WHEN MATCHED THEN UPDATE SET id = ({query})",
        f"MERGE INTO u USING (SELECT 3 AS n) s ON u.id = s.n WHEN NOT MATCHED THEN INSERT (id) VALUES (({query}))",
        f"INSERT INTO u {query}",
    ):
        refused(spark, partial(spark.sql, statement))
    using = spark.sql(query).write.mode("overwrite").option("replaceUsing", "id")
    condition = f"u.id = new.id AND u.id = ({query})"
    on = spark.sql("SELECT 2 AS id").alias("new").write.mode("overwrite")
    on = on.option("targetAlias", "u").option("replaceOn", condition)
    for begin, end in (("SELECT 1", "SELECT 1"), ("BEGIN", "ROLLBACK")):
        for rows in (using, on):
            spark.sql(begin)
            refused(spark, partial(rows.insertInto, "u"))
            spark.sql(end)
    assert [row.id for row in spark.table("u").collect()] == [2]


def test_what_is_no_table_of_the_lake_is_read_by_its_path(spark: Any, root: Path, tmp_path: Path, folder: Path) -> None:
    places = [tmp_path / "outside", root / "landing" / "files"]
    for place in places:
        spark.range(3).selectExpr("int(id) AS id").write.format("delta").save(str(place))
    for begin, end in ((), ()), (("BEGIN",), ("COMMIT",)):
        for statement in (
            *begin,
            *(f"INSERT INTO u SELECT id FROM {by_path(place)}" for place in places),
            *end,
        ):
            spark.sql(statement)
    assert spark.table("u").count() == 12


def test_no_clone_is_made_of_a_path_and_no_table_is_read_that_came_after_begin(
    spark: Any, other: Any, root: Path, folder: Path
) -> None:
    spark.sql("BEGIN")
    refused(spark, lambda: spark.sql(f"CREATE TABLE c SHALLOW CLONE {by_path(folder)}"))
    other.sql("CREATE TABLE late AS SELECT 1 AS id")
    database = lockstep.TransactionalCatalog.open(str(root)).database()
    late = root / database.tables[Name(namespace=("default",), table="late")].location
    with pytest.raises(PySparkException, match=r"is of table default\.late"):
        READS["DataFrame"](spark, late).count()
    spark.sql("ROLLBACK")
