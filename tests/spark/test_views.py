"""Views of a Lockstep catalog beyond SQL: their text, Spark's catalog API, and DataFrames over them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import lockstep
from tests.support.sparks import since

pytestmark = [pytest.mark.long, since("4.2", "views in catalogs")]


@pytest.fixture
def v(spark: Any) -> str:
    """Return the name of a view over a table with the rows 1 and 2, as version 1 of the database had it."""
    spark.sql("CREATE TABLE lake.default.t AS SELECT * FROM VALUES (1), (2) r(id)")
    spark.sql("INSERT INTO lake.default.t VALUES (3)")
    spark.sql("CREATE VIEW lake.default.v AS SELECT id FROM lake.default.t FOR SYSTEM_VERSION AS OF 1 WHERE id > '@0'")
    return "lake.default.v"


def test_a_views_text_is_what_was_written(v: str, spark: Any) -> None:
    ((text,),) = spark.sql(f"SHOW CREATE TABLE {v}").collect()
    assert "SELECT id FROM lake.default.t FOR SYSTEM_VERSION AS OF 1 WHERE id > '@0'" in text
    rows = {row.col_name: row.data_type for row in spark.sql(f"DESCRIBE EXTENDED {v}").collect()}
    assert not [value for value in rows.values() if "'@1'" in value or "lockstep:" in value]


def test_show_table_extended_says_of_views_and_tables_what_they_are(v: str, spark: Any, root: Path) -> None:
    spark.sql("CREATE TEMPORARY VIEW later AS SELECT 1 AS one")
    shown = spark.sql("SHOW TABLE EXTENDED IN lake.default LIKE '*'").collect()
    assert [(row.namespace, row.tableName, row.isTemporary) for row in shown[:2]] == [
        ("default", "t", False),
        ("default", "v", False),
    ]
    assert {row.tableName: row.isTemporary for row in shown}["later"]
    table, view = (row.information for row in shown[:2])
    assert f"\nLocation: file:{root}/default/t-" in table
    assert "\nType: VIEW\nView Text: SELECT id FROM lake.default.t FOR SYSTEM_VERSION AS OF 1" in view
    assert "\nSchema: root\n |-- id: integer (nullable = " in view
    assert not spark.sql("SHOW TABLE EXTENDED IN lake.default LIKE 'w*'").collect()


def test_sparks_catalog_knows_views(v: str, spark: Any, other: Any) -> None:
    assert spark.catalog.tableExists(v)
    assert not spark.catalog.tableExists("lake.default.w")
    spark.sql("BEGIN")
    spark.sql("CREATE VIEW lake.default.w AS SELECT count(*) AS n FROM lake.default.t")
    assert spark.table("lake.default.w").collect() == [(3,)]
    assert not other.catalog.tableExists("lake.default.w")
    spark.sql("ROLLBACK")
    with pytest.raises(PySparkException) as refused:
        spark.table("lake.default.w").collect()
    assert refused.value.getSqlState() == "42P01"


def test_all_of_a_query_is_of_one_version_through_views_too(spark: Any, other: Any) -> None:
    spark.sql("CREATE TABLE lake.default.a AS SELECT 0 AS n")
    spark.sql("CREATE TABLE lake.default.b AS SELECT 0 AS n")
    spark.sql("CREATE VIEW lake.default.va AS SELECT n FROM lake.default.a")
    both = spark.sql("SELECT va.n, b.n FROM lake.default.va, lake.default.b")
    other.sql("BEGIN")
    other.sql("UPDATE lake.default.a SET n = 1")
    other.sql("UPDATE lake.default.b SET n = 1")
    other.sql("COMMIT")
    assert both.collect() == [(0, 0)]


def test_a_frame_cannot_be_written_into_a_view(v: str, spark: Any) -> None:
    with pytest.raises(PySparkException) as refused:
        spark.sql("SELECT 1 AS id").writeTo(v).append()
    assert refused.value.getSqlState() in ("42809", "42P01")


def test_a_statement_that_used_an_older_definition_is_judged_by_it(spark: Any, other: Any) -> None:
    """Write skew through a view: the statement used its definition, and wrote what who replaced it had read."""
    for table in ("src", "u"):
        spark.sql(f"CREATE TABLE lake.default.{table} AS SELECT 1 AS id")
    spark.sql("CREATE NAMESPACE lake.a")
    spark.sql("CREATE NAMESPACE lake.a.b")
    spark.sql("CREATE VIEW lake.a.b.v AS SELECT id FROM lake.default.src")
    frames = [spark.sql("SELECT id FROM lake.a.b.v"), spark.sql("SELECT id FROM lake.a.b.v").where("id > 0").cache()]
    for added, session in enumerate((spark, other), 1):
        session.sql("BEGIN")
        session.sql("SELECT * FROM lake.default.u").collect()
        session.sql(f"CREATE OR REPLACE VIEW lake.a.b.v AS SELECT id + {added} AS id FROM lake.default.src")
        session.sql("COMMIT")
        for frame in frames:
            with pytest.raises(PySparkException, match=r"replaced view a\.b\.v, which this transaction read") as caught:
                frame.write.insertInto("lake.default.u")
            assert caught.value.getSqlState() == "40001"
    spark.sql("INSERT INTO lake.default.u SELECT id FROM lake.a.b.v")
    assert spark.table("lake.default.u").count() == 2
    shown = "".join(str(row) for row in spark.sql("DESCRIBE EXTENDED lake.a.b.v").collect())
    assert "lockstep.viewed" not in shown
    spark.sql("ALTER VIEW lake.a.b.v SET TBLPROPERTIES ('colour' = 'red')")
    assert [row.key for row in spark.sql("SHOW TBLPROPERTIES lake.a.b.v").collect()] == ["colour"]


@pytest.fixture
def w(spark: Any) -> str:
    """Return the name of a view over a table with the rows 1 and 2."""
    spark.sql("CREATE TABLE lake.default.s AS SELECT * FROM VALUES (1), (2) r(id)")
    spark.sql("CREATE VIEW lake.default.w AS SELECT id FROM lake.default.s")
    return "lake.default.w"


MERGED = "MERGE INTO lake.default.u USING (SELECT 1 AS id) s ON u.id = s.id"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE lake.default.u SET id = (SELECT max(id) FROM lake.default.w) WHERE id = 1",
        f"{MERGED} WHEN MATCHED THEN UPDATE SET id = (SELECT max(id) FROM lake.default.w)",
        f"{MERGED} + 1 WHEN NOT MATCHED THEN INSERT (id) VALUES ((SELECT max(id) FROM lake.default.w))",
    ],
)
def test_a_statement_uses_a_view_that_a_column_is_set_from(w: str, spark: Any, other: Any, statement: str) -> None:
    """Write skew: who replaces the view has read what the statement changes."""
    spark.sql("CREATE TABLE lake.default.u AS SELECT 1 AS id")
    other.sql("BEGIN")
    other.sql("SELECT * FROM lake.default.u").collect()
    other.sql(f"CREATE OR REPLACE VIEW {w} AS SELECT id + 1 AS id FROM lake.default.s")
    spark.sql(statement)
    with pytest.raises(PySparkException) as caught:
        other.sql("COMMIT")
    assert caught.value.getSqlState() == "40001"


def test_a_dataframe_from_before_begin_has_the_snapshots_definition_or_is_refused(
    w: str, spark: Any, other: Any, root: Path
) -> None:
    frame = spark.sql(f"SELECT id FROM {w}")
    spark.sql("CREATE TABLE lake.default.u (id INT)")
    spark.sql("BEGIN")
    assert sorted(row.id for row in frame.collect()) == [1, 2], "it is the same one"
    spark.sql("INSERT INTO lake.default.u VALUES (1)")
    spark.sql("COMMIT")
    timeline = lockstep.TransactionalCatalog.open(str(root)).timeline
    [entry] = timeline.entries(timeline.head.version - 1)
    assert [str(name) for name in entry.view_reads] == ["default.w"], "and others are judged by that"
    frame = spark.sql(f"SELECT id FROM {w}")
    other.sql(f"CREATE OR REPLACE VIEW {w} AS SELECT id + 10 AS id FROM lake.default.s")
    spark.sql("BEGIN")
    with pytest.raises(PySparkException, match=r"from before BEGIN uses view default\.w as it was") as refused:
        frame.collect()
    assert refused.value.getSqlState() == "25001"
    assert sorted(row.id for row in spark.sql(f"SELECT id FROM {w}").collect()) == [11, 12]
    spark.sql("ROLLBACK")


def test_write_skew_through_a_view_that_a_dataframe_from_before_begin_uses(w: str, spark: Any, other: Any) -> None:
    spark.sql("CREATE TABLE lake.default.u (id INT)")
    frame = spark.sql(f"SELECT id FROM {w}")
    for session in (spark, other):
        session.sql("BEGIN")
    frame.write.insertInto("lake.default.u")
    other.sql("SELECT * FROM lake.default.u").collect()
    other.sql(f"CREATE OR REPLACE VIEW {w} AS SELECT id + 10 AS id FROM lake.default.s")
    other.sql("COMMIT")
    with pytest.raises(PySparkException) as refused:
        spark.sql("COMMIT")
    assert refused.value.getSqlState() == "40001"
