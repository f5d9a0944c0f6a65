"""A writer that names no format means that of the table: it does what `.format("delta")` does on plain Delta."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

pytestmark = pytest.mark.long

PLAIN = "spark_catalog.writer_format.t"
OURS = "lake.default.t"


@pytest.fixture
def plain(spark: Any) -> Iterator[Any]:
    """Return the session, with a namespace for plain Delta's table."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS spark_catalog.writer_format")
    yield spark
    spark.sql("DROP NAMESPACE spark_catalog.writer_format CASCADE")


class Write(NamedTuple):
    """A write of a DataFrame: how it is set up, its columns and rows."""

    set_up: Callable[[Any], Any]
    columns: str = "id INT, p STRING, v INT"
    rows: tuple[tuple[Any, ...], ...] = ((7, "x", 70),)


WRITES = {
    "overwrite": Write(lambda w: w.mode("overwrite")),
    "dynamic": Write(lambda w: w.mode("overwrite").option("partitionOverwriteMode", "dynamic")),
    "replaceWhere": Write(lambda w: w.mode("overwrite").option("replaceWhere", "p = 'x'")),
    "overwriteSchema": Write(
        lambda w: w.mode("overwrite").option("overwriteSchema", True).partitionBy("p"),
        "id INT, p STRING, v INT, other STRING",
        ((7, "z", 70, "o"),),
    ),
    "mergeSchema": Write(
        lambda w: w.mode("append").option("mergeSchema", True), "id INT, p STRING, v INT, w INT", ((7, "x", 70, 1),)
    ),
    "check": Write(lambda w: w.mode("overwrite"), rows=((7, "x", -1),)),
    "error": Write(lambda w: w),
}


def left(session: Any, table: str) -> dict[str, Any]:
    """Return all that a write may have changed of a table."""
    detail = session.sql(f"DESCRIBE DETAIL {table}").select("description", "partitionColumns", "properties").first()
    return {
        "rows": sorted(map(tuple, session.table(table).collect())),
        "columns": [(f.name, f.dataType, f.nullable, f.metadata) for f in session.table(table).schema],
        "detail": detail.asDict(),
        # Of a table by its path, as it is here to Delta, it calls that a REPLACE.
        "replaced": newest(session, table) in ("CREATE OR REPLACE TABLE AS SELECT", "REPLACE TABLE AS SELECT", "WRITE"),
    }


def newest(session: Any, table: str) -> str:
    return str(session.sql(f"DESCRIBE HISTORY {table}").orderBy("version", ascending=False).first().operation)


def written(session: Any, table: str, write: Write, *, said: bool, transaction: bool = False) -> dict[str, Any]:
    session.sql(f"DROP TABLE IF EXISTS {table}")
    session.sql(
        f"CREATE TABLE {table} (id INT NOT NULL COMMENT 'key', p STRING, v INT) USING delta PARTITIONED BY (p) "
        "COMMENT 'said' TBLPROPERTIES ('mine' = 'yes', 'delta.constraints.positive' = 'v > 0')"
    )
    session.sql(f"INSERT INTO {table} VALUES (1, 'x', 10), (2, 'x', 20), (3, 'y', 30)")
    refused = None
    if transaction:
        session.sql("BEGIN")
    try:
        writer = session.createDataFrame(list(write.rows), write.columns).coalesce(1).write
        write.set_up(writer.format("delta") if said else writer).saveAsTable(table)
    except PySparkException as error:
        refused = error.getSqlState()
    except Py4JJavaError as error:  # of a job: PySpark leaves it to Py4J
        refused = error.java_exception.getClass().getSimpleName()
    if transaction:
        inside = None if refused else left(session, table)["rows"]
        session.sql("ROLLBACK" if refused else "COMMIT")
        assert inside in (None, left(session, table)["rows"])
    return left(session, table) | {"refused": refused}


OFTEN = ("overwrite", "mergeSchema")
"""What of them `make test` tries, too."""


@pytest.mark.parametrize(
    "write",
    [pytest.param(write, id=id_, marks=[] if id_ in OFTEN else pytest.mark.deep) for id_, write in WRITES.items()],
)
def test_a_writer_without_a_format_means_the_tables(write: Write, plain: Any) -> None:
    expected = written(plain, PLAIN, write, said=True)
    assert written(plain, OURS, write, said=False) == expected
    assert written(plain, OURS, write, said=False, transaction=True) == expected


def test_another_format_is_refused_where_it_is_said(plain: Any) -> None:
    """So it is by SQL's USING; what is there stays as it was."""
    plain.sql(f"CREATE TABLE {OURS} AS SELECT 1 AS id")
    frame = plain.range(1)
    writes: list[Callable[[], Any]] = [
        lambda: frame.write.format("parquet").saveAsTable("new"),
        lambda: frame.write.format("parquet").mode("overwrite").saveAsTable(OURS),
        lambda: frame.write.format("orc").mode("overwrite").saveAsTable(OURS),
        lambda: frame.writeTo("new").using("parquet").create(),
        lambda: frame.writeTo(OURS).using("parquet").createOrReplace(),
    ]
    for write in writes:
        with pytest.raises(PySparkException) as caught:
            write()
        assert caught.value.getSqlState() == "0A000"
    assert [tuple(row) for row in plain.table(OURS).collect()] == [(1,)]


def test_a_new_table_needs_no_format(plain: Any) -> None:
    """Even where the frame came from a text with a USING of its own, or the session says a default."""
    frame = plain.sql("SELECT * FROM VALUES (1) AS a(id) JOIN VALUES (1) AS b(id) USING (id)")
    frame.write.saveAsTable("one")
    frame.writeTo("two").create()
    plain.catalog.createTable("three", schema=frame.schema)
    plain.conf.set("spark.sql.sources.default", "parquet")
    frame.write.mode("overwrite").saveAsTable("one")
    plain.conf.unset("spark.sql.sources.default")
    for name in ("one", "two", "three"):
        assert plain.sql(f"DESCRIBE DETAIL {name}").first()["format"] == "delta"
