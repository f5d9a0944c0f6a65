"""What others made where a statement failed to make a table: taking it in, and undoing that, costs nobody a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.adoption.adopt import Wanted, adopt, look
from lockstep.catalog import TransactionalCatalog
from lockstep.commit.elsewhere import reserve
from lockstep.delta.actions import Action
from lockstep.transactions.transaction import Transaction
from tests.support.adopting import files_of, written_log
from tests.support.lakes import add, named, remove, stage

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
