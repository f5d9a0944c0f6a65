"""What a crash and ROLLBACK leave behind, and who goes on from there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.log import staged_path, staging_folder
from lockstep.errors import (
    ConflictError,
    FailedTransactionError,
)
from lockstep.storage import open_storage
from lockstep.timeline.files import entry_path
from lockstep.transactions.state import State
from tests.support.faulty import FaultyStorage
from tests.support.lakes import (
    add,
    files,
    large,
    location,
    named,
    open_catalog,
    remove,
    stage,
    stage_new,
    tree,
)

# --- crashes ----------------------------------------------------------------------------------------------------------


class Crash(BaseException):
    """The process ends here; nothing of it runs on."""


def crash(store: FaultyStorage, path: str, nth: int = 1) -> None:
    """End the process just before the nth write of a file that ends like this."""
    seen: list[str] = []

    def die() -> None:
        seen.append(path)
        if len(seen) == nth:
            raise Crash

    for _ in range(nth):
        store.interrupt("put_if_absent", die, path=path)


def test_a_crash_before_ratifying_leaves_the_version_before(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    stage(catalog, tx, "b", add("y"))
    crash(store, entry_path(2))
    with pytest.raises(Crash):
        catalog.commit(tx)
    again = open_catalog(store.inner)
    assert (files(again, "a"), files(again, "b")) == ({"p"}, set())
    assert again.timeline.head.version == 1


@pytest.mark.parametrize("published", [0, 1])
@pytest.mark.parametrize("size", ["inline", "staged"])
def test_after_a_crash_before_publishing_whoever_comes_next_publishes(
    catalog: TransactionalCatalog, store: FaultyStorage, published: int, size: str
) -> None:
    """Ratified is committed: between ratify and publish, and between two publishes."""
    file = large if size == "staged" else add
    tx = catalog.begin()
    stage(catalog, tx, "a", file("x"))
    stage(catalog, tx, "b", file("y"))
    crash(store, f"_delta_log/{1:020d}.json", nth=published + 1)
    with pytest.raises(Crash):
        catalog.commit(tx)
    # The other table's thread may have been faster than the crash; each number of published tables must be right.
    again = open_catalog(store.inner)
    assert again.timeline.head.version == 2
    assert (files(again, "a"), files(again, "b")) == ({"p", "x"}, {"y"})
    assert again.timeline.published_through == 2


def test_a_reader_that_comes_between_ratify_and_publish_publishes(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    seen = []
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    store.interrupt("put_if_absent", lambda: seen.append(files(other, "a")), path=f"_delta_log/{1:020d}.json")
    catalog.commit(tx)
    assert seen == [{"p", "x"}]


# --- rollback ---------------------------------------------------------------------------------------------------------


def test_rollback_removes_exactly_what_the_transaction_made(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    before = tree(store)
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    stage(catalog, tx, "a", remove("p"), add("p2"), operation="UPDATE")
    stage(catalog, tx, "a", remove("p2"), add("p"), operation="RESTORE")
    stage_new(catalog, tx, "c", add("y"))
    stage_new(catalog, tx, "d", add("z"))
    tx.changing().rename_table(named("c"), named("c2"))
    tx.changing().drop_table(named("d"))
    stage(catalog, tx, "b", add("w"))
    tx.changing().drop_table(named("b"))
    tx.changing().rename_table(named("a"), named("a2"))
    failed = tx.reserve(named("e"), "e-id")
    store.put(f"{failed.location}/half.parquet", b"rows of a CREATE TABLE AS SELECT that failed")
    assert tree(store) != before
    catalog.rollback(tx)
    assert tx.state is State.ROLLED_BACK
    assert tree(store) == before


def test_rollback_goes_through_though_the_store_fails(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    """What is staged is visible to nobody: that it cannot be removed now is no reason to keep the session inside."""
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    stage(catalog, tx, "b", add("y"))
    store.fail("get", path=staged_path(location(catalog, "a"), tx.id, 1))
    store.fail("delete_folder", path=staging_folder(location(catalog, "b"), tx.id))
    catalog.rollback(tx)
    assert tx.state is State.ROLLED_BACK
    assert not store.exists(f"{location(catalog, 'b')}/y")


def test_a_failed_transaction_is_rolled_back_by_its_commit(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    before = tree(store)
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    tx.failure = "division by zero"
    with pytest.raises(FailedTransactionError, match="division by zero") as caught:
        catalog.commit(tx)
    assert caught.value.sqlstate == "25P02"
    assert tx.state is State.ROLLED_BACK
    assert tree(store) == before


LEAVES_IT_OPEN = """
import atexit, sys
from lockstep.storage import open_storage
from tests.support.lakes import add, append, create, open_catalog, stage
catalog = open_catalog(open_storage(sys.argv[1], create=True))
create(catalog, "a", "b")
append(catalog, "a", "x")                       # its threads have done something already
tx = catalog.begin()
stage(catalog, tx, "a", add("y"))
stage(catalog, tx, "b", add("z"))
atexit.register(catalog.rollback, tx)           # as a host is closed
"""


def test_what_is_open_when_python_ends_is_rolled_back(tmp_path: Path, repository: Path) -> None:
    """By then it gives nobody threads; nothing is left, and nothing is said."""
    command = [sys.executable, "-c", LEAVES_IT_OPEN, str(tmp_path / "lake")]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert not any(
        "/_lockstep/" in path or path.endswith(("/y", "/z")) for path in tree(open_storage(str(tmp_path / "lake")))
    )


def test_the_loser_of_a_drop_race_leaves_nothing_in_the_dropped_table(
    catalog: TransactionalCatalog, other: TransactionalCatalog, store: FaultyStorage
) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    other.run(lambda t: t.changing().drop_table(named("a")))
    before = tree(store) - {path for path in tree(store) if tx.id in path or path.endswith("/x")}
    with pytest.raises(ConflictError, match=r"dropped table default\.a"):
        catalog.commit(tx)
    assert tree(store) == before
