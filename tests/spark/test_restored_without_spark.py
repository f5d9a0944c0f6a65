"""What Python restores without Spark is what Spark's RESTORE DATABASE makes of the same lake, and Spark reads it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import lockstep
from lockstep.catalog import TransactionalCatalog
from lockstep.delta.combine.going_back import said
from lockstep.delta.snapshot import Snapshot, read_snapshot
from lockstep.errors import ConflictError
from lockstep.timeline.database import Database
from tests.support.sessions import new_session

ROWS = "INSERT INTO {} SELECT id, id % 3, 'v' || id FROM range(20)"

HISTORIES: dict[str, tuple[str, list[str]]] = {
    "rows": (
        "",
        ["INSERT INTO {} VALUES (100, 1, 'new')", "DELETE FROM {} WHERE id = 1", "UPDATE {} SET p = 9 WHERE id = 2"],
    ),
    "vectors": (
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        [
            "DELETE FROM {} WHERE id = 1",
            "UPDATE {} SET v = 'x' WHERE id % 2 = 0",
            "MERGE INTO {} t USING (SELECT 5 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
            "OPTIMIZE {}",
        ],
    ),
    "no vectors": (
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')",
        [
            "DELETE FROM {} WHERE id = 1",
            "INSERT OVERWRITE {} SELECT id, p, v FROM {} WHERE id > 10",
            "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', 'mine' = 'a')",
            "DELETE FROM {} WHERE id = 12",
        ],
    ),
    "partitions": ("PARTITIONED BY (p)", ["INSERT OVERWRITE {} PARTITION (p = 1) SELECT id, v FROM {}"]),
    "columns": (
        "",
        [
            "ALTER TABLE {} ADD COLUMN more INT COMMENT 'late'",
            "INSERT INTO {} VALUES (100, 1, 'new', 7)",
            "ALTER TABLE {} ALTER COLUMN v COMMENT 'why'",
            "ALTER TABLE {} ADD CONSTRAINT positive CHECK (id >= 0)",
            "COMMENT ON TABLE {} IS 'a table'",
        ],
    ),
    "mapped": (
        "PARTITIONED BY (p) TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        [
            "ALTER TABLE {} RENAME COLUMN v TO w",
            "ALTER TABLE {} RENAME COLUMN p TO q",
            "ALTER TABLE {} ADD COLUMN more INT",
            "INSERT INTO {} VALUES (100, 1, 'new', 7)",
            "ALTER TABLE {} DROP COLUMN w",
            "DELETE FROM {} WHERE id = 3",
        ],
    ),
    "mapped since": (
        "",
        [
            "ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
            "ALTER TABLE {} DROP COLUMN v",
            "ALTER TABLE {} ADD COLUMN v INT",
            "INSERT INTO {} VALUES (100, 1, 7)",
        ],
    ),
    "replaced": ("PARTITIONED BY (p)", ["CREATE OR REPLACE TABLE {} AS SELECT 1 AS other, 'x' AS v"]),
    "times": ("TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')", ["DELETE FROM {} WHERE id = 1"]),
    "a feed": (
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
        ["UPDATE {} SET v = 'x' WHERE id = 1", "DELETE FROM {} WHERE id = 2"],
    ),
    "renamed": ("", ["DELETE FROM {} WHERE id = 1", "ALTER TABLE {} RENAME TO elsewhere"]),
    "dropped": ("", ["DELETE FROM {} WHERE id = 1", "DROP TABLE {}", "CREATE TABLE {} AS SELECT 'another' AS v"]),
    "dropped as it was": ("", ["DROP TABLE {}"]),
}
"""By what happens to a table: what it is made with, and the statements that follow behind the tag."""


def make(spark: Any) -> dict[str, str]:
    """Make a table for each history, tag the version, let it happen; return what each table is called."""
    tables = {kind: f"t{number}" for number, kind in enumerate(HISTORIES)}
    for kind, (clause, _) in HISTORIES.items():
        spark.sql(f"CREATE TABLE {tables[kind]} (id BIGINT, p BIGINT, v STRING) {clause}")
        spark.sql(ROWS.format(tables[kind]))
    spark.sql("CREATE TAG good")
    for kind, (_, statements) in HISTORIES.items():
        for statement in statements:
            spark.sql(statement.replace("{}", tables[kind]))
    return tables


def state(root: Path, name: str) -> dict[str, Any]:
    """What the log of a table says of it, as far as two logs of one history can say the same."""
    catalog = TransactionalCatalog.open(str(root))
    [table] = [table for each, table in catalog.database().tables.items() if each.table == name]
    snapshot: Snapshot = read_snapshot(catalog.lake.storage, table.location, table.version)
    metadata = said(snapshot.metadata)
    return {
        "version": table.version,
        "protocol": said(snapshot.protocol),
        "metadata": {**metadata, "schemaString": json.loads(metadata["schemaString"])},
        "domains": snapshot.domains,
        "files": snapshot.files,
    }


def read(session: Any, name: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in session.sql(f"SELECT * FROM {name}").collect()), key=repr)


def head(root: Path) -> Database:
    return TransactionalCatalog.open(str(root)).database()


@pytest.mark.slow
@pytest.mark.deep
def test_python_restores_what_spark_restores(spark: Any, spark_session: Any, root: Path, tmp_path: Path) -> None:
    tables = make(spark)
    copy = tmp_path / "copy"
    shutil.copytree(root, copy, ignore=shutil.ignore_patterns(".*.tmp"))  # upkeep goes on behind the last COMMIT
    beside = new_session(spark_session, copy)
    beside.sql("RESTORE DATABASE lake TO TAG good")
    done = lockstep.open(str(root)).restore("good")
    assert {str(name) for name in head(root).tables} == {f"default.{name}" for name in tables.values()}
    assert sorted(head(root).tables) == sorted(head(copy).tables)
    assert {each.name.table for each in done.tables} == {*tables.values()} - {tables["dropped as it was"]}
    for kind, name in tables.items():
        assert state(root, name) == state(copy, name), kind
        assert read(spark, name) == read(beside, name), kind
        assert [row[0] for row in read(spark, f"(SELECT id FROM {name} ORDER BY id)")] == sorted(range(20), key=str), (
            kind
        )
    name = tables["a feed"]
    changes = f"SELECT * EXCEPT (_commit_timestamp) FROM table_changes('{name}', {state(root, name)['version']})"
    assert read(spark, f"({changes})") == read(beside, f"({changes})")
    history = [row.operation for row in spark.sql(f"DESCRIBE HISTORY {name} LIMIT 1").collect()]
    assert history == ["RESTORE"]
    for kind, name in tables.items():  # and it goes on from there
        spark.sql(f"INSERT INTO {name} VALUES (500, 1, 'later')")
        spark.sql(f"DELETE FROM {name} WHERE id < 5")
        assert len(read(spark, name)) == 16, kind


@pytest.mark.parametrize("who", ["spark", "python"])
@pytest.mark.parametrize(
    ("beside", "collides"), [("INSERT INTO t VALUES (2)", False), ("DELETE FROM t WHERE id = 1", True)]
)
def test_beside_others_a_restore_conflicts_as_sparks_does(
    spark: Any, other: Any, root: Path, who: str, beside: str, *, collides: bool
) -> None:
    spark.sql("CREATE TABLE t AS SELECT /*+ REPARTITION(1) */ id FROM VALUES (1), (5) AS v(id)")
    spark.sql("CREATE TAG good")
    spark.sql("DELETE FROM t WHERE id = 5")

    def in_spark() -> None:
        with lockstep.transaction(spark):
            spark.sql("CALL lake.system.restore(tag => 'good', tables => array('default.t'))")
            other.sql(beside)

    def in_python() -> None:
        with lockstep.open(str(root)).transaction() as tx:
            tx.restore("good", tables=["t"])
            other.sql(beside)

    run = in_spark if who == "spark" else in_python
    if collides:
        with pytest.raises(ConflictError):
            run()
    else:
        run()
        assert read(spark, "t") == [(1,), (2,), (5,)]
