"""The driver's state of a table is Delta's whatever the table has, and whatever has become of its log meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import lockstep
from tests.spark.test_reads import begins, commits
from tests.spark.test_table_states import T, compare, folder, kind, snapshot
from tests.support.diverged import as_it_is, write_over
from tests.support.lakes import location
from tests.support.sessions import ROOTS

pytestmark = pytest.mark.long

VECTORS = "'delta.enableDeletionVectors' = 'true'"
INSERT = f"INSERT INTO {T} SELECT id, id % 3 AS v FROM range(100)"
DELETE = f"DELETE FROM {T} WHERE id < 5"

HISTORIES: dict[str, tuple[str, ...]] = {
    "restored": (VECTORS, INSERT, DELETE, f"RESTORE TABLE {T} TO VERSION AS OF 1", DELETE),
    "replaced": (
        VECTORS,
        INSERT,
        f"CREATE OR REPLACE TABLE {T} (id BIGINT, w STRING) TBLPROPERTIES ({VECTORS})",
        f"INSERT INTO {T} VALUES (1, 'one'), (2, 'two')",
        f"CREATE OR REPLACE TABLE {T} TBLPROPERTIES ({VECTORS}) AS SELECT id, id AS v FROM range(50)",
        DELETE,
    ),
    "without statistics": (f"{VECTORS}, 'delta.dataSkippingNumIndexedCols' = '0'", INSERT, DELETE, INSERT),
    "in-commit timestamps": (f"{VECTORS}, 'delta.enableInCommitTimestamps' = 'true'", INSERT, DELETE, INSERT),
    "in-commit timestamps, later": (
        VECTORS,
        INSERT,
        f"ALTER TABLE {T} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
        DELETE,
    ),
    "row tracking": (f"{VECTORS}, 'delta.enableRowTracking' = 'true'", INSERT, DELETE, f"OPTIMIZE {T}", INSERT),
    "mapped columns": (
        f"{VECTORS}, 'delta.columnMapping.mode' = 'name'",
        INSERT,
        f"ALTER TABLE {T} RENAME COLUMN v TO w",
        f"UPDATE {T} SET w = 7 WHERE id < 9",
        f"ALTER TABLE {T} DROP COLUMN w",
        DELETE,
    ),
    "another protocol, later": (
        "'delta.minReaderVersion' = '1', 'delta.minWriterVersion' = '2'",
        INSERT,
        f"ALTER TABLE {T} SET TBLPROPERTIES ({VECTORS}, 'delta.checkpointInterval' = '2')",
        DELETE,
        INSERT,
    ),
    "checkpoints of the second kind": (
        f"{VECTORS}, 'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2'",
        *(INSERT, DELETE, INSERT, f"UPDATE {T} SET v = 9 WHERE id = 7", INSERT),
    ),
}
"""The properties that a table is made with, and what becomes of it."""


IN_EVERY_RUN = ("mapped columns", "another protocol, later")


@pytest.mark.parametrize("level", ["statement", pytest.param("transaction", marks=pytest.mark.deep)])
@pytest.mark.parametrize(
    "name", [name if name in IN_EVERY_RUN else pytest.param(name, marks=pytest.mark.deep) for name in HISTORIES]
)
def test_the_state_of_a_table_with_this_is_what_delta_computes(spark: Any, name: str, level: str) -> None:
    properties, *statements = HISTORIES[name]
    spark.sql(f"CREATE TABLE {T} (id BIGINT, v BIGINT) TBLPROPERTIES ({properties})")
    has_vectors = VECTORS in properties  # without, Delta counts none, which `compare` asks for
    for statement in statements:
        if level == "transaction":
            begins(spark)
        spark.sql(statement)
        has_vectors = has_vectors or VECTORS in statement
        if has_vectors and spark.table(T).inputFiles():
            compare(spark)
        if level == "transaction":
            assert commits(spark)
    compare(spark)


@pytest.mark.skipif(bool(ROOTS), reason="it writes over a file as no store but a folder lets it")
def test_a_commit_that_was_written_over_is_in_no_later_state(
    spark: Any, other: Any, root: Path, tmp_path: Path
) -> None:
    """Not though it is not the last one: Delta reads all of the log again, and a known state would be gone on from."""
    spark.sql(f"CREATE TABLE {T} (id BIGINT) TBLPROPERTIES ({VECTORS})")
    spark.sql(f"INSERT INTO {T} VALUES (1)")
    where = root / location(lockstep.TransactionalCatalog.open(str(root)), "t")
    copy = as_it_is(where, tmp_path / "plain")
    spark.sql(f"INSERT INTO {T} VALUES (2)")
    other.sql(f"INSERT INTO spark_catalog.delta.`{copy}` VALUES (22)")
    spark.sql(f"INSERT INTO {T} VALUES (3)")
    assert ids(spark) == [1, 2, 3]
    write_over(where, copy)
    begins(spark)
    spark.sql(f"INSERT INTO {T} VALUES (4)")
    assert ids(spark) == [1, 3, 4, 22]
    assert commits(spark)
    assert ids(spark) == ids(other) == [1, 3, 4, 22]
    compare(spark)


def test_a_state_that_a_checksum_does_not_agree_with_is_left_to_spark(spark: Any, root: Path) -> None:
    spark.sql(f"CREATE TABLE {T} (id BIGINT) TBLPROPERTIES ({VECTORS})")
    spark.sql(f"INSERT INTO {T} SELECT id FROM range(3)")
    where = root / location(lockstep.TransactionalCatalog.open(str(root)), "t")
    checksum = where / "_delta_log" / f"{1:020}.crc"
    said = json.loads(checksum.read_text())
    checksum.write_text(json.dumps({**said, "numFiles": said["numFiles"] + 1}))
    (checksum.parent / f".{checksum.name}.crc").unlink(missing_ok=True)  # Hadoop's own, of what was there before
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    assert ids(spark) == [0, 1, 2]
    ours = snapshot(spark, folder(spark))
    assert (kind(ours), ours.stateReconstructionTriggered()) == ("LocalSnapshot", True)


def ids(session: Any) -> list[int]:
    return sorted(row.id for row in session.sql(f"SELECT id FROM {T}").collect())
