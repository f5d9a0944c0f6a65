"""New tables where the lake has, or had, one: whose claim it is that lies there, and what nobody is told to delete."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.commit.elsewhere import hold, reserve
from lockstep.errors import DuplicateError, InvalidError
from tests.support.lakes import add, named, open_catalog, stage_new


def made(catalog: TransactionalCatalog, folder: Path) -> None:
    tx = catalog.begin()
    stage_new(catalog, tx, "orders", add("p"), where=folder)
    catalog.commit(tx)


def test_a_drop_and_a_create_at_the_same_place_are_refused_alike_in_one_transaction_and_in_two(
    catalog: TransactionalCatalog, folder: Path
) -> None:
    """The claim is that of the table which the lake has yet: nobody is told to delete it."""
    made(catalog, folder)
    tx = catalog.begin()
    tx.changing().drop_table(named("orders"))
    with pytest.raises(InvalidError, match=r"table default\.orders lies there, which this transaction drops") as caught:
        reserve(catalog.lake, tx, named("orders"), str(folder))
    assert caught.value.sqlstate == "22023"
    assert "lake.json" not in caught.value.message
    catalog.commit(tx)
    with pytest.raises(InvalidError, match="a Delta table is there already") as caught:
        catalog.reserve(named("orders"), location=str(folder))
    assert caught.value.sqlstate == "22023"


def test_nobody_is_told_to_delete_the_claim_of_a_table_that_the_lake_has_meanwhile(
    catalog: TransactionalCatalog, folder: Path
) -> None:
    tx = catalog.begin()
    made(open_catalog(catalog.lake.storage), folder)
    with pytest.raises(DuplicateError, match=r"it is table default\.orders of this lake already") as caught:
        reserve(catalog.lake, tx, named("other"), str(folder))
    assert "lake.json" not in caught.value.message


def test_who_finds_a_folder_empty_and_is_too_late_is_not_told_to_delete_the_claim(
    catalog: TransactionalCatalog, folder: Path
) -> None:
    tx = catalog.begin()
    creation = reserve(catalog.lake, tx, named("other"), str(folder))
    made(open_catalog(catalog.lake.storage), folder)
    with pytest.raises(DuplicateError, match=r"it is table default\.orders of this lake already") as caught:
        hold(catalog.lake, tx, creation.location)
    assert "lake.json" not in caught.value.message
