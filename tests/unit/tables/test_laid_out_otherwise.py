"""Files in which Arrow's writer noted layouts of its own: the values are the same, and so is the table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lockstep.tables.opened import OpenLake

INNER = pa.struct([("x", pa.int64())])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("numbers", pa.list_(pa.float32())),
        ("nested", pa.list_(pa.list_(pa.int64()))),
        ("s", pa.struct([("inner", pa.list_(INNER))])),
    ]
)
ROWS: dict[str, list[Any]] = {
    "id": [1, 2, 3, 4, 5],
    "numbers": [[1, 2], None, [3, None], [5, 6], None],
    "nested": [[[1, 2], None], [[3, 4], [5, 6]], None, [None, [7, 8]], None],
    "s": [{"inner": [{"x": 1}, None]}, None, {"inner": None}, {"inner": [{"x": None}, {"x": 2}]}, None],
}
LISTS: dict[str, Callable[[pa.DataType], pa.DataType]] = {
    "of one length": lambda type_: pa.list_(type_, 2),
    "large": pa.large_list,
    "views": pa.list_view,
    "large views": pa.large_list_view,
}


@pytest.mark.parametrize("layout", LISTS)
def test_lists_are_read_and_copied_however_they_were_laid_out(lake: OpenLake, tmp_path: Path, layout: str) -> None:
    lists = LISTS[layout]
    with lake.transaction() as tx:
        tx.create("t", SCHEMA).append({"id": ROWS["id"]})
    [file] = tmp_path.rglob("*.parquet")
    columns = {
        "id": pa.array(ROWS["id"]),
        "numbers": pa.array(ROWS["numbers"], lists(pa.float32())),
        "nested": pa.array(ROWS["nested"], lists(lists(pa.int64()))),
        "s": pa.array(ROWS["s"], pa.struct([("inner", lists(INNER))])),
    }
    pq.write_table(pa.table(columns), file, row_group_size=3)
    with lake.transaction() as tx:
        read = tx["t"].to_arrow()
        read.validate(full=True)
        assert read.to_pydict() == ROWS
        tx["t"].delete("id = 1")
    kept = lake.at()["t"].to_arrow().sort_by("id")
    assert kept.to_pydict() == {name: values[1:] for name, values in ROWS.items()}
