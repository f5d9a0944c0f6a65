"""What the tests of COMMIT share: a lake of two tables, in a store that can be made to fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.storage import open_storage
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, open_catalog, stage_new


@pytest.fixture
def store(tmp_path: Path) -> FaultyStorage:
    return FaultyStorage(open_storage(str(tmp_path / "lake"), create=True))


@pytest.fixture
def catalog(store: FaultyStorage) -> TransactionalCatalog:
    """A lake with the tables a and b, at table version 0; a has the file p."""
    catalog = open_catalog(store)
    tx = catalog.begin()
    stage_new(catalog, tx, "a", add("p"))
    stage_new(catalog, tx, "b")
    catalog.commit(tx)
    return catalog


@pytest.fixture
def other(catalog: TransactionalCatalog, store: FaultyStorage) -> TransactionalCatalog:
    """The same lake, as another process has it."""
    return open_catalog(store.inner)
