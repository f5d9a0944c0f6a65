"""Files whose columns are spelled otherwise than the log has them: to Spark the case of a name says nothing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lockstep.errors import UnsupportedError
from lockstep.tables.opened import OpenLake
from tests.support.refused import refused_in

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.int64())])), ("n", pa.int64())])


def rewritten(lake: OpenLake, root: Path, rows: pa.Table) -> None:
    """Make a table whose only file has these rows, as a writer of old left it."""
    with lake.transaction() as tx:
        tx.create("t", SCHEMA).append([{"id": 1}, {"id": 2}])
    [file] = root.rglob("*.parquet")
    pq.write_table(rows, file)


def test_rows_are_what_spark_has_and_stay_so_when_they_are_copied(lake: OpenLake, tmp_path: Path) -> None:
    structs = pa.array([{"A": 5}, {"A": 6}], pa.struct([("A", pa.int64())]))
    rewritten(lake, tmp_path, pa.table({"ID": pa.array([1, 2]), "s": structs}))
    with lake.transaction() as tx:
        assert tx["t"].to_arrow(["n"]).to_pylist() == [{"n": None}] * 2
        tx["t"].delete("id = 1")
    assert lake.at()["t"].to_arrow().to_pylist() == [{"id": 2, "s": {"a": 6}, "n": None}]


def test_two_names_that_may_be_the_column_s_are_refused(lake: OpenLake, tmp_path: Path) -> None:
    rewritten(lake, tmp_path, pa.table({"ID": [1], "Id": [2]}))
    with lake.transaction() as tx, refused_in(tx, UnsupportedError, "ID, Id"):
        tx["t"].delete("id = 1")
