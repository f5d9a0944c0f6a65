"""What the tests of tables without Spark share: lakes on a disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lockstep
from lockstep.tables.opened import OpenLake
from tests.support.looking import Looking


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> Iterator[Looking]:
    """The process' keeper, which looks when the test says so."""
    looking = Looking()
    for module in ("lockstep.catalog", "lockstep.tables.statement", "lockstep.exports.promote"):
        monkeypatch.setattr(f"{module}.KEEPER", looking)
    yield looking
    assert not looking._watched, "what has ended is watched"


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
