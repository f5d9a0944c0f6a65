"""New tables where statements say, of which one would lie inside of another, or where another is begun."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.commit.elsewhere import reserve
from lockstep.delta.actions import render
from lockstep.errors import DuplicateError, InvalidError
from tests.support.lakes import NEW_TABLE, add, files, lay, named, stage_new

# --- of one transaction -----------------------------------------------------------------------------------------------


def test_a_transaction_makes_no_table_inside_of_another_of_its_own(catalog: TransactionalCatalog, folder: Path) -> None:
    tx = catalog.begin()
    tx.savepoint("before")
    stage_new(catalog, tx, "outer", add("p"), where=folder)
    with pytest.raises(InvalidError, match=r"it is inside the Delta table .*, table default\.outer of this lake"):
        reserve(catalog.lake, tx, named("inner"), str(folder / "deep" / "inner"))
    catalog.rollback_to(tx, "before")
    stage_new(catalog, tx, "inner", add("p"), where=folder / "deep" / "inner")
    with pytest.raises(InvalidError, match=r"table default\.inner of this lake lies inside of it"):
        reserve(catalog.lake, tx, named("outer"), str(folder))
    catalog.commit(tx)


@pytest.mark.parametrize(
    ("first", "second"),
    [("x", "x"), ("x", "x/deep/inner"), ("x/deep/inner", "x")],
    ids=["the same folder", "inside", "around"],
)
def test_of_two_statements_of_one_transaction_that_name_one_folder_the_second_is_refused(
    catalog: TransactionalCatalog, folder: Path, first: str, second: str
) -> None:
    """None has written anything: two threads of a shared transaction, or the first one failed."""
    tx = catalog.begin()
    tx.savepoint("before")
    creation = reserve(catalog.lake, tx, named("one"), str(folder / first))
    with pytest.raises(DuplicateError, match=r"this transaction has begun to make table default\.one at") as refused:
        reserve(catalog.lake, tx, named("two"), str(folder / second))
    assert refused.value.sqlstate == "42P07"
    assert reserve(catalog.lake, tx, named("one"), str(folder / first)).location == creation.location, "tried again"
    catalog.rollback_to(tx, "before")
    stage_new(catalog, tx, "two", add("p"), where=folder / second)
    catalog.commit(tx)
    assert files(catalog, "two") == {"p"}


def test_a_folder_of_the_lake_lies_in_none_that_a_statement_of_its_transaction_named(
    catalog: TransactionalCatalog, root: Path
) -> None:
    catalog.run(lambda tx: tx.changing().create_namespace(("shop",), {}))
    tx = catalog.begin()
    reserve(catalog.lake, tx, named("one"), str(root / "shop"))
    assert "/" not in reserve(catalog.lake, tx, named("shop.two")).location
    tx = catalog.begin()
    reserve(catalog.lake, tx, named("shop.two"))
    with pytest.raises(DuplicateError, match=r"this transaction has begun to make table shop\.two at"):
        reserve(catalog.lake, tx, named("one"), str(root / "shop"))


# --- committed meanwhile ----------------------------------------------------------------------------------------------


def test_a_folder_that_the_lake_chose_before_another_table_came_around_it_is_refused(
    catalog: TransactionalCatalog, root: Path
) -> None:
    catalog.run(lambda tx: tx.changing().create_namespace(("shop",), {}))
    creation = catalog.reserve(named("shop.two"))
    tx = catalog.begin()
    stage_new(catalog, tx, "orders", add("p"), where=root / "shop")
    catalog.commit(tx)
    lay(catalog.lake.storage, creation.location, [add("q")])
    said = r"cannot lie at shop/two-.*, where table default\.orders is by now"
    with pytest.raises(DuplicateError, match=said) as refused:
        catalog.write(creation.location, 0, render([*NEW_TABLE, add("q")]).decode(), creation=creation)
    assert refused.value.sqlstate == "42P07"
    assert catalog.reserve(named("shop.two")).location.startswith("two-")
