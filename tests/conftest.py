"""What all tests share. Spark's own fixtures are in `tests/spark`, so that unit tests never start it."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def repository() -> Path:
    """Return the folder that this source tree lies in."""
    return Path(__file__).parents[1]
