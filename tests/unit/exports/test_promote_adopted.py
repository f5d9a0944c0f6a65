"""Promoting a table that was adopted in a clone, inside of its root or outside: its files are where it lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.storage import open_storage
from tests.support.adopting import adopted, ids, plain_table
from tests.support.exports import ROWS, file
from tests.support.faulty import FaultyStorage
from tests.support.lakes import location, open_catalog, stage_new
from tests.support.promotions import build, clone_to, promote


@pytest.fixture
def catalog(store: FaultyStorage) -> TransactionalCatalog:
    return build(store)


@pytest.mark.parametrize("place", ["clone/mine", "warehouse/mine"])
def test_a_table_that_was_adopted_in_a_clone_comes_with_its_files(
    catalog: TransactionalCatalog, store: FaultyStorage, tmp_path: Path, place: str
) -> None:
    clone = clone_to(catalog, tmp_path / "clone")
    adopted(clone, "mine", plain_table(tmp_path / place, 1, 2))
    promote(clone, catalog)
    again = open_catalog(open_storage(store.url))
    folder = tmp_path / "lake" / location(again, "mine")
    assert ids(folder) == [1, 2]
    assert len([*folder.glob("*.parquet")]) == 2, "in its folder, and not elsewhere"


def test_a_table_that_was_made_where_a_statement_said_becomes_an_ordinary_one(
    catalog: TransactionalCatalog, store: FaultyStorage, tmp_path: Path
) -> None:
    clone, folder = clone_to(catalog, tmp_path / "clone"), tmp_path / "warehouse" / "mine"
    tx = clone.begin()
    stage_new(clone, tx, "mine", file("p"), where=folder, data=ROWS)
    clone.commit(tx)
    promote(clone, catalog)
    place = location(open_catalog(open_storage(store.url)), "mine")
    assert place.startswith("default/mine-")
    assert (tmp_path / "lake" / place / "p").read_bytes() == ROWS
    assert (folder / "p").exists(), "which stays the clone's"
