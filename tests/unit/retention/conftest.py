"""A lake whose files have the ages that a clock gives them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.storage import open_storage
from lockstep.timeline import fence
from tests.support.retained import AgedStorage, Ticking


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has read the timeline before an entry went: there is nobody to wait for."""
    monkeypatch.setattr(fence, "GRACE_SECONDS", 0.0)


@pytest.fixture
def clock() -> Ticking:
    return Ticking()


@pytest.fixture
def aged(tmp_path: Path, clock: Ticking) -> AgedStorage:
    return AgedStorage(open_storage(str(tmp_path / "lake"), create=True), clock)
