"""What the tests of announcements share: a table with the file p, and two who both replace it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.conflict.lock_policy import Policy, Resolution
from lockstep.storage import Storage, open_storage
from tests.support.lakes import create, open_catalog
from tests.support.sides import Begin, Side


@pytest.fixture
def store(tmp_path: Path) -> Storage:
    found = open_storage(str(tmp_path / "lake"), create=True)
    create(open_catalog(found), "a", files=["p"])
    return found


@pytest.fixture
def begin(store: Storage) -> Iterator[Begin]:
    """Begin the older and the younger."""
    made: list[Side] = []

    def begun(policy: Policy, *, lock_timeout_seconds: float = 60) -> tuple[Side, Side]:
        for name in ("older", "younger"):
            catalog = open_catalog(store, resolution=Resolution(policy, lock_timeout_seconds))
            made.append(Side(catalog, catalog.begin(isolation="SNAPSHOT"), name))
        return made[0], made[1]

    yield begun
    for side in made:
        if side.tx.is_open:
            side.rollback()
        side.thread.shutdown()
