"""Tables with row tracking that Python changes: Spark reads the ids that plain Delta's own statements leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lockstep
from lockstep.tables.opened import OpenLake

COLUMNS = "id BIGINT, v STRING, p STRING"
ROWS = "SELECT /*+ COALESCE(1) */ id, 'old' AS v, concat('p', id % 2) AS p FROM range(10)"
NEWS = pa.table({"id": [1, 2, 3, 20, 21], "v": ["m1", "m2", "m3", "m20", "m21"], "p": ["p1", "p0", "p1", "p0", "p1"]})
PROPERTIES = {
    "vectors": "delta.enableDeletionVectors = true",
    "files": "delta.enableDeletionVectors = false",
    "mapped": "delta.enableDeletionVectors = false, delta.columnMapping.mode = 'name'",
    "partitioned": "delta.enableDeletionVectors = false, delta.enableChangeDataFeed = true",
}


def rows(spark: Any, table: str) -> dict[int, tuple[Any, ...]]:
    """Return of each row what it has, its row id, and the version that it came with."""
    found = spark.sql(f"SELECT id, v, p, _metadata.row_id, _metadata.row_commit_version FROM {table}").collect()
    assert len({row["row_id"] for row in found}) == len(found), "no id twice"
    return {row["id"]: tuple(row)[1:] for row in found}


def alike(ours: dict[int, tuple[Any, ...]], deltas: dict[int, tuple[Any, ...]], new: set[int]) -> None:
    """Compare all of both tables, but for the very ids of rows that are new, of which each has others' not."""
    assert {id: row for id, row in ours.items() if id not in new} == {
        id: row for id, row in deltas.items() if id not in new
    }
    assert {id: (*row[:2], row[3]) for id, row in ours.items()} == {
        id: (*row[:2], row[3]) for id, row in deltas.items()
    }


def merge_in_spark(spark: Any, target: str) -> None:
    spark.createDataFrame(NEWS.to_pylist(), COLUMNS).createOrReplaceTempView("news")
    spark.sql(
        f"MERGE INTO {target} t USING news s ON t.id = s.id WHEN MATCHED AND t.id = 3 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET t.v = s.v WHEN NOT MATCHED THEN INSERT * "
        "WHEN NOT MATCHED BY SOURCE AND t.id = 7 THEN UPDATE SET t.v = 'orphan'"
    )


IN_EVERY_RUN = "files"
KINDS = [kind if kind == IN_EVERY_RUN else pytest.param(kind, marks=pytest.mark.deep) for kind in PROPERTIES]


@pytest.mark.parametrize("kind", KINDS)
def test_update_merge_and_delete_keep_ids_as_deltas_do(spark: Any, root: Path, tmp_path: Path, kind: str) -> None:
    plain = f"spark_catalog.default.plain_{kind}"
    by = "PARTITIONED BY (p)" if kind == "partitioned" else ""
    spark.sql("CREATE NAMESPACE lake.py")
    for target, place in ((plain, f"LOCATION '{tmp_path / 'plain'}'"), ("lake.py.r", "")):
        spark.sql(
            f"CREATE TABLE {target} ({COLUMNS}) USING delta {by} {place} "
            f"TBLPROPERTIES (delta.enableRowTracking = true, {PROPERTIES[kind]})"
        )
        spark.sql(f"INSERT INTO {target} {ROWS}")
    lake: OpenLake = lockstep.open(str(root))
    first = rows(spark, "lake.py.r")
    assert first == rows(spark, plain)

    spark.sql(f"UPDATE {plain} SET v = 'new' WHERE id IN (2, 5)")
    with lake.transaction() as tx:
        assert tx["py.r"].update({"v": "'new'"}, "id IN (2, 5)") == 2
    second = rows(spark, "lake.py.r")
    alike(second, rows(spark, plain), set())
    assert {id: row[2] for id, row in second.items()} == {id: row[2] for id, row in first.items()}

    merge_in_spark(spark, plain)
    with lake.transaction() as tx:
        merge = tx["py.r"].merge(NEWS, on="id")
        merge.when_matched_delete("target.id = 3").when_matched_update({"v": "source.v"})
        merge.when_not_matched_insert_all().when_not_matched_by_source_update({"v": "'orphan'"}, "target.id = 7")
        assert merge.execute() == (2, 3, 1)
    third = rows(spark, "lake.py.r")
    alike(third, rows(spark, plain), {20, 21})
    assert min(third[id][2] for id in (20, 21)) > max(row[2] for row in first.values())

    for id in (4, 20):
        spark.sql(f"DELETE FROM {plain} WHERE id = {id}")
        with lake.transaction() as tx:
            assert tx["py.r"].delete(f"id = {id}") == 1
    alike(rows(spark, "lake.py.r"), rows(spark, plain), {21})

    spark.sql(f"DROP TABLE {plain}")

    before = rows(spark, "lake.py.r")
    spark.sql("UPDATE lake.py.r SET v = 'of Spark' WHERE id IN (2, 21)")
    spark.sql("OPTIMIZE lake.py.r")
    with lake.transaction() as tx:
        assert tx["py.r"].update({"v": "'last'"}, "id IN (0, 2)") == 2
    after = rows(spark, "lake.py.r")
    assert {id: row[2] for id, row in after.items()} == {id: row[2] for id, row in before.items()}
    assert [after[id][0] for id in (0, 2, 21)] == ["last", "last", "of Spark"]
    assert {id: row for id, row in after.items() if id not in (0, 2, 21)} == {
        id: row for id, row in before.items() if id not in (0, 2, 21)
    }, "those that were only copied came with the commits that they came with"
