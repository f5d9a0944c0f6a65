"""What Delta itself keeps of a table's log: checksums that are true, and so checkpoints, whatever a transaction did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lockstep
from lockstep.lake.verify import verify

T = "lake.default.t"


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param(
            [f"ALTER TABLE {T} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')"], id="row ids for old files"
        ),
        pytest.param([f"DELETE FROM {T} WHERE p = 'x'", f"RESTORE TABLE {T} TO VERSION AS OF 2"], id="restored files"),
    ],
)
def test_a_table_goes_on_getting_checkpoints(statements: list[str], spark: Any, root: Path) -> None:
    spark.sql(f"CREATE TABLE {T} PARTITIONED BY (p) AS SELECT 1 AS id, 'x' AS p")
    spark.sql(f"INSERT INTO {T} VALUES (2, 'y')")
    spark.sql(f"INSERT INTO {T} VALUES (3, 'y')")
    spark.sql("BEGIN")
    for statement in (*statements, f"OPTIMIZE {T} WHERE p = 'y'"):
        spark.sql(statement)
    spark.sql("COMMIT")
    for id in range(4, 12):
        spark.sql(f"INSERT INTO {T} VALUES ({id}, 'z')")
    (log,) = root.glob("**/t-*/_delta_log")
    assert [path.name[:20] for path in log.glob("*.checkpoint*.parquet")] == [f"{10:020d}"]
    assert (log / f"{3:020d}.crc").exists(), "the transaction's own"
    catalog = lockstep.TransactionalCatalog.open(str(root))
    assert verify(catalog.lake.storage, catalog.timeline).differences == ()
