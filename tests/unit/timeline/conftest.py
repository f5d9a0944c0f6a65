"""What the tests of the timeline share: one that is empty, its store and its clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.storage import open_storage
from lockstep.timeline.log import Timeline
from tests.support.entries import FakeClock
from tests.support.faulty import FaultyStorage


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path) -> FaultyStorage:
    return FaultyStorage(open_storage(str(tmp_path)))


@pytest.fixture
def timeline(store: FaultyStorage, clock: FakeClock) -> Timeline:
    return Timeline.create(store, clock=clock)
