"""New tables where statements say, of which one would lie inside of another, or where another is begun."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from lockstep.adoption.making import hold_new
from lockstep.catalog import TransactionalCatalog
from lockstep.commit.elsewhere import reserve
from lockstep.delta.actions import render
from lockstep.errors import ConflictError, DuplicateError, InvalidError
from lockstep.lake.claims import claim_path
from tests.support.adopting import adopted, files_of, written_log
from tests.support.lakes import CREATED, NEW_TABLE, add, files, lay, named, stage_new

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


# --- meanwhile --------------------------------------------------------------------------------------------------------


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
        catalog.write(creation.location, 0, render([*CREATED, add("q")]).decode(), creation=creation)
    assert refused.value.sqlstate == "42P07"
    assert catalog.reserve(named("shop.two")).location.startswith("two-")


def plain_table(catalog: TransactionalCatalog, place: Path) -> str:
    return f"it is inside the Delta table file://{written_log(place)}"


def another_lake(catalog: TransactionalCatalog, place: Path) -> str:
    TransactionalCatalog.open(str(place), create=True)
    return f"it is inside the lake file://{place}"


def a_claim(catalog: TransactionalCatalog, place: Path) -> str:
    rival = TransactionalCatalog.open(f"{catalog.lake.storage.url}-rival", create=True)
    hold_new(rival.lake, "0" * 32, f"file://{place}")
    return f"it is inside file://{place}, which the lake {rival.lake.storage.url} has claimed for a Delta table"


@pytest.mark.parametrize("is_alone", [False, True], ids=["a transaction", "a statement"])
@pytest.mark.parametrize(
    ("place", "made"),
    [
        ("warehouse", plain_table),
        ("inside", plain_table),
        ("warehouse", another_lake),  # a lake lies in no other
        ("warehouse", a_claim),
        ("inside", a_claim),
    ],
)
def test_what_others_make_around_a_folder_before_commit_is_found(
    catalog: TransactionalCatalog,
    request: pytest.FixtureRequest,
    place: str,
    made: Callable[[TransactionalCatalog, Path], str],
    is_alone: bool,
) -> None:
    around = request.getfixturevalue(place) / "around"
    inner = around / "inner"
    tx = catalog.begin()
    commit: Callable[[], object] = partial(catalog.commit, tx)
    if is_alone:
        creation = catalog.reserve(named("t"), location=str(inner))
        lay(catalog.lake.storage, creation.location, [add("p")])
        content = render([*CREATED, add("p")]).decode()
        commit = partial(catalog.write, creation.location, 0, content, creation=creation)
    else:
        stage_new(catalog, tx, "t", add("p"), where=inner)
    text = made(catalog, around)
    with pytest.raises(ConflictError, match=text) as lost:
        commit()
    assert lost.value.sqlstate == "40001"
    assert not catalog.database().tables
    assert not files_of(inner)
    with pytest.raises(InvalidError, match=text) as refused:
        catalog.reserve(named("t"), location=str(inner))
    assert refused.value.sqlstate == ("42P07" if made is a_claim else "22023")


def test_the_claim_of_a_table_that_the_lake_took_in_meanwhile_stays(
    catalog: TransactionalCatalog, folder: Path
) -> None:
    tx = catalog.begin()
    tx.savepoint("before")
    stage_new(catalog, tx, "mine", add("p"), where=folder)
    theirs = folder / "_delta_log" / f"{0:020d}.json"
    theirs.write_bytes(render([*NEW_TABLE, add("theirs")]))
    adopted(catalog, "theirs", folder)
    catalog.rollback_to(tx, "before")
    assert (folder / claim_path(".")).exists()
    assert not (folder / "p").exists()
    catalog.rollback(tx)
    assert (folder / claim_path(".")).exists()
    assert files(catalog, "theirs") == {"theirs"}
