"""ROLLBACK TO and tables where statements said: what it removes, what of others it does not, and when a store fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.adoption.adopt import Wanted, adopt, look
from lockstep.catalog import TransactionalCatalog
from lockstep.commit.elsewhere import reserve
from lockstep.delta.actions import Action
from lockstep.delta.log import staged_path
from lockstep.errors import UnavailableError
from lockstep.lake.claims import claim_path
from lockstep.storage import open_storage
from lockstep.storage.outside import OutsideStorage
from lockstep.transactions.transaction import Transaction
from tests.support.adopting import files_of, written_log
from tests.support.faulty import FaultyStorage, Operation
from tests.support.lakes import add, create, location, named, open_catalog, remove, stage, stage_new

VECTOR = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}

WRITES: list[tuple[str, list[Action], str]] = [
    ("a vector", [remove("p"), add("p", deletionVector=VECTOR)], "DELETE"),
    ("added again", [add("p")], "RESTORE"),
    ("backfilled", [add("p", dataChange=False)], "ROW TRACKING BACKFILL"),
]


@pytest.mark.parametrize(("actions", "operation"), [case[1:] for case in WRITES], ids=[case[0] for case in WRITES])
@pytest.mark.parametrize(
    "undo", [lambda c, tx: c.rollback_to(tx, "s"), lambda c, tx: c.rollback(tx)], ids=["to", "all"]
)
def test_undoing_what_was_taken_in_where_a_create_failed_leaves_its_files(
    catalog: TransactionalCatalog,
    folder: Path,
    undo: Callable[[TransactionalCatalog, Transaction], object],
    actions: list[Action],
    operation: str,
) -> None:
    """The location is that of a creation which came to nothing, and the table is somebody else's."""
    tx = catalog.begin()
    tx.savepoint("s")
    reserve(catalog.lake, tx, named("orders"), str(folder))  # a statement that failed after it had a place
    written_log(folder, add("p"))
    (folder / "p").write_bytes(b"theirs")
    before = files_of(folder)
    adopt(catalog.lake, tx, look(catalog.lake, tx.names, [Wanted(named("orders"), str(folder))]))
    stage(catalog, tx, "orders", *actions, operation=operation)
    stage(catalog, tx, "orders", add("ours"))
    undo(catalog, tx)
    assert files_of(folder) == before


@pytest.mark.parametrize("fault", ["get", "delete"])
def test_a_store_that_fails_at_another_table_keeps_no_folder_from_who_comes_next(
    tmp_path: Path, fault: Operation
) -> None:
    store = FaultyStorage(open_storage(str(tmp_path / "lake"), create=True))
    catalog, folder = open_catalog(OutsideStorage(store)), tmp_path / "lake" / "plain" / "orders"
    create(catalog, "a")
    tx = catalog.begin()
    tx.savepoint("s")
    stage(catalog, tx, "a", add("q"))
    stage_new(catalog, tx, "orders", add("day=1/p"), where=folder)
    store.fail(fault, path=staged_path(location(catalog, "a"), tx.id, 1), times=9)
    with pytest.raises(UnavailableError):
        catalog.rollback_to(tx, "s")
    store.heal()
    catalog.rollback(tx)
    assert not files_of(folder)
    catalog.reserve(named("orders"), location=str(folder))


def test_a_claim_that_a_store_kept_is_given_up_at_the_end(tmp_path: Path) -> None:
    store = FaultyStorage(open_storage(str(tmp_path / "lake"), create=True))
    catalog, folder = open_catalog(OutsideStorage(store)), tmp_path / "lake" / "plain" / "orders"
    tx = catalog.begin()
    tx.savepoint("s")
    stage_new(catalog, tx, "orders", add("p"), where=folder)
    store.fail("delete", path=claim_path("orders"), times=1)
    catalog.rollback_to(tx, "s")
    assert files_of(folder).keys() == {claim_path(".").removeprefix("./")}
    catalog.commit(tx)
    assert not files_of(folder)
    catalog.reserve(named("orders"), location=str(folder))


class Folders(FaultyStorage):
    """Records the removal of empty folders, too."""

    def delete_empty_folder(self, path: str) -> None:
        self.calls.append(("delete_folder", path))
        self.inner.delete_empty_folder(path)


def test_a_folder_is_free_once_all_that_was_empty_in_it_is_gone(tmp_path: Path) -> None:
    """Whoever comes next begins to fill it then, and a folder that he has just made would go."""
    store = Folders(open_storage(str(tmp_path / "lake"), create=True))
    catalog, folder = open_catalog(OutsideStorage(store)), tmp_path / "lake" / "plain" / "orders"
    tx = catalog.begin()
    stage_new(catalog, tx, "orders", add("day=1/hour=2/p"), where=folder)
    store.calls.clear()
    catalog.rollback(tx)
    asked = [path.removeprefix("plain/orders/") for operation, path in store.calls if operation.startswith("delete")]
    behind = asked[asked.index(claim_path(".").removeprefix("./")) :]
    assert behind == ["_delta_log/_lockstep/lake.json", "_delta_log/_lockstep", "_delta_log"]
    assert asked.index("day=1/hour=2") < asked.index("day=1") < len(asked) - 3
    assert not list(folder.iterdir())
