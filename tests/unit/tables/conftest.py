"""What the tests of tables without Spark share: lakes on a disk."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lockstep
from lockstep.tables.opened import OpenLake


@pytest.fixture
def lake(tmp_path: Path) -> OpenLake:
    """An empty lake."""
    return lockstep.open(str(tmp_path / "lake"), create=True)


@pytest.fixture
def table(lake: OpenLake) -> OpenLake:
    """A lake with a table of one row."""
    with lake.transaction() as tx:
        tx.create("t", pa.schema([("id", pa.int64()), ("v", pa.string())])).append({"id": [1], "v": ["a"]})
    return lake
