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

pytestmark = pytest.mark.long


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
        assert tx.namespaces["py",].items() >= {"team": "grace", "comment": "of Python"}.items()


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


def ids(spark: Any) -> dict[int, tuple[int, int]]:
    """Return of each row of a table its row id, and the version that it came with."""
    rows = query(spark, "SELECT id, _metadata.row_id, _metadata.row_commit_version FROM lake.py.r")
    assert len({row_id for _, row_id, _ in rows}) == len(rows), "no id twice"
    return {id: (row_id, version) for id, row_id, version in rows}


def test_row_ids_are_unique_and_stay_whoever_writes(spark: Any, lake: OpenLake) -> None:
    """Also where both append at once, whoever is first."""
    tracked = "delta.enableRowTracking = true, delta.enableDeletionVectors = true"
    spark.sql(f"CREATE TABLE lake.py.r (id BIGINT) TBLPROPERTIES ({tracked})")
    spark.sql("INSERT INTO lake.py.r SELECT /*+ COALESCE(1) */ id FROM range(5)")
    with lake.transaction() as tx:
        tx["py.r"].append({"id": [10, 11, 12]})
        tx["py.r"].append({"id": [13]})
    first = ids(spark)
    assert set(first) == {0, 1, 2, 3, 4, 10, 11, 12, 13}
    with lake.transaction() as tx:
        assert tx["py.r"].delete("id IN (1, 11)") == 2
    assert ids(spark) == {id: row for id, row in first.items() if id not in (1, 11)}, "those that stay keep theirs"

    spark.sql("BEGIN")
    spark.sql("INSERT INTO lake.py.r VALUES (20), (21)")
    with lake.transaction() as tx:
        tx["py.r"].append({"id": [30, 31]})
    spark.sql("COMMIT")
    with lake.transaction() as tx:
        tx["py.r"].append({"id": [40, 41]})
        assert tx["py.r"].delete("id = 12") == 1
        spark.sql("INSERT INTO lake.py.r VALUES (50)")
    racing = ids(spark)
    assert {20, 21, 30, 31, 40, 41, 50} <= set(racing)

    spark.sql("UPDATE lake.py.r SET id = id + 1000 WHERE id IN (10, 40)")
    assert {id % 1000: row_id for id, (row_id, _) in ids(spark).items()} == {
        id: row_id for id, (row_id, _) in racing.items()
    }, "Spark's update keeps the ids that Python gave"
    spark.sql("OPTIMIZE lake.py.r")
    with lake.transaction() as tx:
        tx["py.r"].append({"id": [60]})
        assert tx["py.r"].update({"id": "61"}, "id = 60") == 1
    assert len(ids(spark)) == len(racing) + 1
    with lake.transaction() as tx:
        tx["py.r"].overwrite({"id": [70, 71]})
    assert set(ids(spark)) == {70, 71}
    assert min(row_id for row_id, _ in ids(spark).values()) > max(row_id for row_id, _ in racing.values())


def test_identity_values_are_unique_whoever_writes(spark: Any, lake: OpenLake) -> None:
    spark.sql(
        "CREATE TABLE lake.py.i (id BIGINT, g BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 100 INCREMENT BY -5), "
        "d BIGINT GENERATED BY DEFAULT AS IDENTITY)"
    )
    spark.sql("INSERT INTO lake.py.i (id) SELECT /*+ COALESCE(1) */ id FROM range(2)")
    with lake.transaction() as tx:
        tx["py.i"].append({"id": [10, 11]})
        tx["py.i"].append({"id": [12], "d": [-7]})
        with refused_in(tx, lockstep.errors.InvalidError, match="GENERATED ALWAYS"):
            tx["py.i"].append({"id": [13], "g": [1]})
    spark.sql("INSERT INTO lake.py.i (id) VALUES (20)")
    rows = "SELECT id, g, d FROM lake.py.i ORDER BY id"
    assert query(spark, rows) == [
        (0, 100, 1),
        (1, 95, 2),
        (10, 90, 3),
        (11, 85, 4),
        (12, 80, -7),
        (20, 75, 5),
    ]
    spark.sql("BEGIN")
    spark.sql("INSERT INTO lake.py.i (id) VALUES (30)")

    def python_first() -> None:
        with lake.transaction() as tx:
            tx["py.i"].append({"id": [40]})
            spark.sql("COMMIT")

    with pytest.raises(lockstep.errors.ConflictError):
        python_first()
    with lake.transaction() as tx:
        tx["py.i"].overwrite({"id": [50]})
    assert query(spark, rows) == [(50, 65, 7)]
