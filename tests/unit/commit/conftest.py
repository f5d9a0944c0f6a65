"""What the tests of COMMIT share: a lake of two tables."""

from __future__ import annotations

import pytest

from lockstep.catalog import TransactionalCatalog
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, open_catalog, stage_new


@pytest.fixture
def catalog(store: FaultyStorage) -> TransactionalCatalog:
    """A lake with the tables a and b, at table version 0; a has the file p."""
    catalog = open_catalog(store)
    tx = catalog.begin()
    stage_new(catalog, tx, "a", add("p"))
    stage_new(catalog, tx, "b")
    catalog.commit(tx)
    return catalog
