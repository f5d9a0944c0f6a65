"""Features of Spark's tables that Python keeps when it writes them: clustering, views, and what commits tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lockstep
from lockstep.tables.opened import OpenLake
from tests.support.refused import refused_in
from tests.support.sparks import is_before


@pytest.fixture
def lake(spark: Any, root: Path) -> OpenLake:
    """The session's lake, opened without Spark."""
    spark.sql("CREATE NAMESPACE lake.py")
    return lockstep.open(str(root))


def query(spark: Any, sql: str) -> list[Any]:
    return [tuple(row) for row in spark.sql(sql).collect()]


def test_a_clustered_table_is_clustered_by_spark_after_python_wrote_it(spark: Any, lake: OpenLake) -> None:
    spark.sql("CREATE TABLE lake.py.c (id BIGINT, st STRUCT<a: DOUBLE, b: STRING>, k STRING) CLUSTER BY (k, st.a)")
    spark.sql("INSERT INTO lake.py.c VALUES (1, named_struct('a', 1.5D, 'b', 'x'), 'k1')")
    with lake.transaction() as tx:
        t = tx["py.c"]
        t.append({"id": [2, 3, 4], "st": [{"a": 2.5, "b": "y"}, None, {"a": 0.5, "b": "z"}], "k": ["k2", "k3", None]})
        assert t.delete("id = 3") == 1
        assert t.update({"k": "'k4'"}, "id = 4") == 1
        assert t.merge({"id": [1], "k": ["m"]}, on="id").when_matched_update({"k": "source.k"}).execute() == (0, 1, 0)
    expected = [(1, "m", 1.5), (2, "k2", 2.5), (4, "k4", 0.5)]
    rows = "SELECT id, k, st.a FROM lake.py.c ORDER BY id"
    assert query(spark, rows) == expected
    assert query(spark, "SELECT id FROM lake.py.c WHERE k = 'k2' AND st.a > 2") == [(2,)]
    spark.sql("OPTIMIZE lake.py.c FULL")
    assert query(spark, rows) == expected
    with lake.transaction() as tx:
        tx["py.c"].append({"id": [5], "k": ["k5"]})
    detail = spark.sql("DESCRIBE DETAIL lake.py.c").select("clusteringColumns").first()
    assert list(detail[0]) == ["k", "st.a"]
    spark.sql("ALTER TABLE lake.py.c CLUSTER BY (id)")
    with lake.transaction() as tx:
        tx["py.c"].append({"id": [6]})
        with refused_in(tx, lockstep.errors.UnsupportedError, match="of which files have no statistics"):
            tx["py.c"].alter.set_table_properties({"delta.dataSkippingNumIndexedCols": "0"})
    spark.sql("OPTIMIZE lake.py.c FULL")
    assert query(spark, rows) == [*expected, (5, "k5", None), (6, None, None)]


@pytest.mark.skipif(is_before("4.2"), reason="Spark has views of other catalogs from 4.2 on")
def test_views_of_spark_are_renamed_and_dropped_in_python(spark: Any, lake: OpenLake) -> None:
    with lake.transaction() as tx:
        tx.create("py.t", pa.schema([("id", pa.int64())])).append({"id": [1]})
    spark.sql("CREATE VIEW lake.py.v AS SELECT id + 1 AS n FROM lake.py.t")
    spark.sql("CREATE VIEW lake.py.w AS SELECT n FROM lake.py.v")
    with lake.transaction() as tx:
        assert [str(name) for name in tx.views] == ["py.v", "py.w"]
        tx.rename_view("py.v", "py.renamed")
        tx.drop_view("py.w")
        tx.set_namespace_properties("py", {"team": "ada", "comment": "of Python"})
    assert query(spark, "SELECT n FROM lake.py.renamed") == [(2,)]
    assert [row[1] for row in query(spark, "SHOW VIEWS IN lake.py")] == ["renamed"]
    described = dict(query(spark, "DESCRIBE NAMESPACE EXTENDED lake.py"))
    assert described["Comment"] == "of Python"
    assert "team" in described["Properties"]
    spark.sql("BEGIN")
    spark.sql("ALTER NAMESPACE lake.py SET PROPERTIES (team = 'grace')")
    with lake.transaction() as tx:
        assert tx.namespaces["py",]["team"] == "ada"
    spark.sql("COMMIT")
    with lake.transaction() as tx:
        assert tx.namespaces["py",] == {"team": "grace", "comment": "of Python"}


def test_history_tells_which_tables_a_transaction_wrote(spark: Any, lake: OpenLake) -> None:
    """Of Spark's transactions as of Python's."""
    with lake.transaction() as tx:
        for name in ("a", "b"):
            tx.create(f"py.{name}", pa.schema([("id", pa.int64())]))
    spark.sql("BEGIN")
    spark.sql("INSERT INTO lake.py.a VALUES (1)")
    spark.sql("INSERT INTO lake.py.b VALUES (1)")
    spark.sql("COMMIT")
    ids = sorted(table.id for name, table in lake.catalog.database().tables.items() if name.namespace == ("py",))
    for name in ("a", "b"):
        for row in spark.sql(f"DESCRIBE HISTORY lake.py.{name}").collect():
            said = json.loads(row["operationParameters"]["lockstepTables"])
            assert (said["count"], sorted(said["ids"])) == (2, ids)
