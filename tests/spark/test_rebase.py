"""What a transaction leaves in a table behind a winner, read by Delta itself: rows, row ids, history, change feed."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

pytestmark = pytest.mark.long

T = "lake.default.t"
FEATURES = {
    "delta.enableRowTracking": "true",
    "delta.enableInCommitTimestamps": "true",
    "delta.enableDeletionVectors": "true",
    "delta.columnMapping.mode": "name",
}


def rows(session: Any, query: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in session.sql(query).collect())


def make(session: Any, clauses: str, properties: dict[str, str]) -> None:
    """Make a table with the rows (1, 0) … (10, 0) in one file."""
    said = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    session.sql(f"CREATE TABLE {T} (id INT, v INT) {clauses} TBLPROPERTIES ({said})")
    session.sql(f"INSERT INTO {T} SELECT /*+ COALESCE(1) */ CAST(id AS INT), 0 FROM range(1, 11)")


def race(winner: Any, theirs: list[str], loser: Any, ours: list[str]) -> None:
    """Open two transactions at once, and commit the one before the other."""
    for session, statements in ((winner, theirs), (loser, ours)):
        session.sql("BEGIN ISOLATION LEVEL SNAPSHOT")
        for statement in statements:
            session.sql(statement)
    winner.sql("COMMIT")
    loser.sql("COMMIT")


def test_a_table_with_every_feature_is_right_behind_a_winner(spark: Any, other: Any, root: Path) -> None:
    make(spark, "CLUSTER BY (id)", FEATURES)
    ids = dict(rows(spark, f"SELECT id, _metadata.row_id FROM {T}"))
    race(
        other, [f"INSERT INTO {T} VALUES (21, 21)", f"DELETE FROM {T} WHERE id = 5"],
        spark, [f"INSERT INTO {T} VALUES (11, 11)", f"INSERT INTO {T} VALUES (12, 12)",
                f"UPDATE {T} SET v = 1 WHERE id = 1"],
    )  # fmt: skip
    expected = [(1, 1), *((id, 0) for id in (2, 3, 4, 6, 7, 8, 9, 10)), (11, 11), (12, 12), (21, 21)]
    assert rows(spark, f"SELECT id, v FROM {T}") == expected
    (folder,) = root.glob("**/t-*/")
    plain = spark.read.format("delta").load(str(folder))
    assert sorted(tuple(row) for row in plain.collect()) == expected, "without Lockstep, by path"

    found = rows(spark, f"SELECT id, _metadata.row_id, _metadata.row_commit_version FROM {T}")
    assert len({row_id for _, row_id, _ in found}) == len(found)
    assert {id: row_id for id, row_id, _ in found if id in ids} == {id: ids[id] for id in ids if id != 5}

    history = spark.sql(f"DESCRIBE HISTORY {T}").orderBy("version").collect()
    assert [row.version for row in history] == list(range(len(history)))
    assert all(one.timestamp < next.timestamp for one, next in pairwise(history))
    changed = {id: version for id, _, version in found}
    assert changed[2] == 1
    assert changed[21] < changed[11] <= changed[12] <= changed[1] == history[-1].version

    spark.sql(f"OPTIMIZE {T}")
    spark.sql(f"INSERT INTO {T} VALUES (31, 31)")
    assert rows(spark, f"SELECT id, v FROM {T}") == [*expected, (31, 31)]
    after = rows(spark, f"SELECT id, _metadata.row_id FROM {T}")
    assert len({row_id for _, row_id in after}) == len(after)
    assert {id: row_id for id, row_id in after if id in changed} == {id: row_id for id, row_id, _ in found}


@pytest.mark.parametrize("vectors", [pytest.param("false", marks=pytest.mark.deep), "true"])
def test_a_change_feed_tells_what_became_of_the_table(vectors: str, spark: Any, other: Any) -> None:
    make(spark, "", {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": vectors})
    race(
        other, [f"INSERT INTO {T} VALUES (21, 21)"],
        spark, [f"UPDATE {T} SET v = 1 WHERE id <= 2", f"DELETE FROM {T} WHERE id = 2",
                f"INSERT INTO {T} VALUES (11, 0)", f"DELETE FROM {T} WHERE id = 11",
                f"UPDATE {T} SET v = v + 1 WHERE id = 1"],
    )  # fmt: skip
    feed = spark.sql(f"SELECT _commit_version, _change_type, id, v FROM table_changes('{T}', 1)").collect()
    state: list[tuple[int, int]] = []
    for version in sorted({row[0] for row in feed}):
        changes = [(kind, (id, v)) for at, kind, id, v in feed if at == version]
        for kind, row in changes:
            if kind in ("delete", "update_preimage"):
                state.remove(row)  # a row that is not there fails here
        state += [row for kind, row in changes if kind in ("insert", "update_postimage")]
    assert sorted(state) == rows(spark, f"SELECT id, v FROM {T}")
    assert sorted(state) == [(1, 2), *((id, 0) for id in range(3, 11)), (21, 21)]


def make_tracked(session: Any) -> None:
    session.sql(f"CREATE TABLE {T} (id INT, v INT) TBLPROPERTIES ('delta.enableRowTracking' = 'true')")
    session.sql(f"INSERT INTO {T} VALUES (1, 0), (2, 0)")


def tracked(session: Any) -> dict[int, tuple[int, int]]:
    """Return each row's id and commit version; fails where two rows have one id."""
    found = rows(session, f"SELECT id, _metadata.row_id, _metadata.row_commit_version FROM {T}")
    assert len({row_id for _, row_id, _ in found}) == len(found), found
    return {id: (row_id, version) for id, row_id, version in found}


def operations(session: Any) -> dict[int, str]:
    return {row.version: row.operation for row in session.sql(f"DESCRIBE HISTORY {T}").collect()}


def test_row_ids_that_stand_in_data_files_are_not_given_out_twice(spark: Any, other: Any) -> None:
    make_tracked(spark)
    statements = [f"INSERT INTO {T} VALUES (3, 0)", f"UPDATE {T} SET v = 1 WHERE id = 3"]
    spark.sql("BEGIN ISOLATION LEVEL SNAPSHOT")
    for statement in statements:
        spark.sql(statement)
    other.sql(f"INSERT INTO {T} VALUES (4, 0)")
    with pytest.raises(PySparkException, match="updated or moved rows") as refused:
        spark.sql("COMMIT")
    assert refused.value.getSqlState() == "40001"
    for statement in ("BEGIN", *statements, "COMMIT"):
        spark.sql(statement)
    head = max(operations(spark))
    assert {id: version for id, (_, version) in tracked(spark).items()} == {1: 1, 2: 1, 3: head, 4: head - 2}


def test_row_commit_versions_that_stand_in_data_files_exist(spark: Any) -> None:
    make_tracked(spark)
    statements = [f"INSERT INTO {T} VALUES ({id}, 0)" for id in (3, 4, 5)]
    for statement in ("BEGIN", *statements, f"OPTIMIZE {T}", "COMMIT"):
        spark.sql(statement)
    found = {id: version for id, (_, version) in tracked(spark).items()}
    assert found == {1: 1, 2: 1, 3: 2, 4: 3, 5: 4}
    assert operations(spark) == {0: "CREATE TABLE", 1: "WRITE", 2: "WRITE", 3: "WRITE", 4: "WRITE", 5: "OPTIMIZE"}


def test_a_transaction_that_moves_none_of_its_own_rows_is_one_version(spark: Any, other: Any) -> None:
    make_tracked(spark)
    race(
        other, [f"INSERT INTO {T} VALUES (4, 0)"],
        spark, [f"INSERT INTO {T} VALUES (3, 0)", f"UPDATE {T} SET v = 1 WHERE id = 1"],
    )  # fmt: skip
    assert {id: version for id, (_, version) in tracked(spark).items()} == {1: 3, 2: 1, 3: 3, 4: 2}
