"""What the tests of tables without Spark share: an empty lake on a disk."""

from __future__ import annotations

from pathlib import Path

import pytest

import lockstep
from lockstep.tables.opened import OpenLake


@pytest.fixture
def lake(tmp_path: Path) -> OpenLake:
    """An empty lake."""
    return lockstep.open(str(tmp_path / "lake"), create=True)
