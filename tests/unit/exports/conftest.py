"""A lake of which versions become old, for what exports and expiry do to each other."""

from __future__ import annotations

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.timeline import fence
from tests.support.faulty import FaultyStorage
from tests.support.lakes import create, open_catalog
from tests.support.retained import Ticking


@pytest.fixture
def clock() -> Ticking:
    return Ticking()


@pytest.fixture
def aging(store: FaultyStorage, clock: Ticking, monkeypatch: pytest.MonkeyPatch) -> TransactionalCatalog:
    """A lake with a clock of its own."""
    monkeypatch.setattr(fence, "GRACE_SECONDS", 0.0)  # no process but this one
    catalog = open_catalog(store, clock=clock)
    create(catalog, "a", files=["p"])
    return catalog
