"""A table that a plain Delta writer wrote over is settled with both sides, and Spark reads each row once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import lockstep
from tests.support.diverged import as_it_is, write_over
from tests.support.lakes import location
from tests.support.sessions import CATALOG

pytestmark = pytest.mark.long

T = f"{CATALOG}.default.t"
PROPERTIES = ", ".join(
    f"'delta.{name}' = 'true'" for name in ("enableChangeDataFeed", "enableRowTracking", "enableDeletionVectors")
)


def merge(table: str, changed: int, new: int, who: str) -> str:
    """Return a statement that changes one row, and inserts one."""
    return (
        f"MERGE INTO {table} t USING (SELECT explode(array({changed}, {new})) AS id) s ON t.id = s.id "
        f"WHEN MATCHED THEN UPDATE SET v = '{who}' WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, '{who}')"
    )


def rows(session: Any, query: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in session.sql(query).collect())


@pytest.mark.deep  # tests/unit/recovery has the rules, without Spark
def test_spark_reads_each_row_of_both_once(spark: Any, other: Any, root: Path, tmp_path: Path) -> None:
    """By name and by path, with row ids that nobody else has, and with a feed of changes that adds up."""
    spark.sql(f"CREATE TABLE {T} (id INT, v STRING) TBLPROPERTIES ({PROPERTIES})")
    for number in range(1, 5):
        spark.sql(f"INSERT INTO {T} SELECT /*+ COALESCE(1) */ * FROM VALUES ({number}, 'old')")
    with_ids = "SELECT id, v, _metadata.row_id FROM {}"
    before = {id: row_id for id, _, row_id in rows(spark, with_ids.format(T))}
    folder = root / location(lockstep.TransactionalCatalog.open(str(root)), "t")
    copy = as_it_is(folder, tmp_path / "plain")
    version = lockstep.TransactionalCatalog.open(str(root)).timeline.head.version
    spark.sql(merge(T, 1, 5, "ours"))
    assert len(rows(spark, f"SELECT * FROM {T}")) == 5
    other.sql(merge(f"spark_catalog.delta.`{copy}`", 2, 6, "theirs"))
    other.sql(f"DELETE FROM spark_catalog.delta.`{copy}` WHERE id = 4")
    write_over(folder, copy)
    with pytest.raises(PySparkException, match="wrote over version 5") as refused:
        spark.sql(f"SELECT * FROM {T}").collect()
    assert refused.value.getSqlState() == "40002"

    [offered] = spark.sql("CALL lake.system.settle(table => 't', keep => 'both', dry_run => true)").collect()
    assert (offered.lost_versions, offered.refused, offered.database_version) == ("", None, None)
    spark.sql("CALL lake.system.settle(table => 't', keep => 'both')")
    expected = [(1, "ours"), (2, "theirs"), (3, "old"), (5, "ours"), (6, "theirs")]
    by_path = f"spark_catalog.delta.`{folder}`"
    for session, table in ((spark, T), (other, T), (other, by_path)):
        found = rows(session, with_ids.format(table))
        assert [row[:2] for row in found] == expected
        ids = {id: row_id for id, _, row_id in found}
        assert len({*ids.values(), before[4]}) == 6
        assert {id: ids[id] for id in (1, 2, 3)} == {id: before[id] for id in (1, 2, 3)}

    feed = other.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 5).load(str(folder))
    changes = feed.select("_commit_version", "_change_type", "id", "v").collect()
    assert Counter(map(tuple, changes)) == Counter(
        [
            *((5, kind, 2, v) for kind, v in (("update_preimage", "old"), ("update_postimage", "theirs"))),
            (5, "insert", 6, "theirs"),
            (6, "delete", 4, "old"),
            *((7, kind, 1, v) for kind, v in (("update_preimage", "old"), ("update_postimage", "ours"))),
            (7, "insert", 5, "ours"),
        ]
    )
    spark.sql(f"UPDATE {T} SET v = 'later' WHERE id IN (5, 6)")
    other.sql(f"INSERT INTO {by_path} VALUES (7, 'theirs')")
    assert rows(spark, f"SELECT id, v FROM {T} WHERE id > 4") == [(5, "later"), (6, "later"), (7, "theirs")]

    # Back to before the settlement, of which the log still tells; upkeep leaves what each version needs.
    both = lockstep.TransactionalCatalog.open(str(root)).timeline.head.version
    both_rows = rows(spark, f"SELECT id, v FROM {T}")
    spark.sql(f"CALL lake.system.restore(version => {version})")
    spark.sql("CALL lake.system.maintain()")
    old = [(number, "old", before[number]) for number in range(1, 5)]
    for session, table in ((spark, T), (other, T), (other, by_path), (other, f"{by_path} VERSION AS OF 4")):
        assert rows(session, with_ids.format(table)) == old
    assert rows(spark, with_ids.format(f"{T} FOR SYSTEM_VERSION AS OF {version}")) == old
    assert rows(spark, f"SELECT id, v FROM {T} FOR SYSTEM_VERSION AS OF {both}") == both_rows
    spark.sql(merge(T, 4, 8, "after"))
    assert rows(spark, f"SELECT id, v FROM {T} WHERE id >= 4") == [(4, "after"), (8, "after")]
