"""Delta's `DeltaTable` and `DeltaTableBuilder` on tables of a catalog, which need not be the current one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable

from lockstep.errors import ActiveTransactionError
from lockstep.spark.raised import lockstep_errors

T = "lake.default.t"


def build(session: Any) -> DeltaTable:
    return DeltaTable.create(session).tableName(T).addColumn("id", "INT").property("made", "so").execute()


def test_a_table_is_built_optimized_and_restored_in_a_transaction(spark: Any) -> None:
    spark.sql("USE spark_catalog")
    spark.sql("BEGIN")
    table = build(spark)
    for id in (1, 2):
        spark.sql(f"INSERT INTO {T} VALUES ({id})")
    assert table.optimize().executeCompaction().first().metrics.numFilesRemoved == 2
    assert table.detail().first().properties == {"made": "so"}
    table.restoreToVersion(1)
    spark.sql("COMMIT")
    assert [row.id for row in spark.table(T).collect()] == [1]


def test_a_manifest_names_files_as_other_readers_know_them(spark: Any, root: Path) -> None:
    build(spark)
    spark.sql(f"INSERT INTO {T} VALUES (1)")
    table = DeltaTable.forName(spark, T)
    assert table.detail().first().numFiles == 1
    table.generate("symlink_format_manifest")
    (manifest,) = root.glob("default/t-*/_symlink_format_manifest/manifest")
    (line,) = manifest.read_text().splitlines()
    assert line.startswith(f"file:{root}/default/t-")


def test_a_manifest_is_not_written_of_what_nobody_else_sees(spark: Any, root: Path) -> None:
    spark.sql("BEGIN")
    table = build(spark)
    with pytest.raises(ActiveTransactionError, match="manifest"), lockstep_errors():
        table.generate("symlink_format_manifest")
    spark.sql("ROLLBACK")
    assert not [*root.glob("default/t-*/_symlink_format_manifest")]
