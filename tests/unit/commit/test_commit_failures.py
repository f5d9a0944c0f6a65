"""What a store that fails at the worst moment, a crash and ROLLBACK leave behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import pytest
from pyroaring import BitMap64

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import render
from lockstep.delta.combine.deletion_vectors import file_name, file_path, in_a_file, serialize
from lockstep.delta.log import LOG, commit_path, staged_path, staging_folder
from lockstep.errors import (
    CommitUnknownError,
    ConflictError,
    FailedTransactionError,
    MissingFilesError,
    TransactionStateError,
    UnavailableError,
)
from lockstep.lake.verify import verify
from lockstep.storage import Theirs, open_storage
from lockstep.timeline.entry import Isolation
from lockstep.timeline.files import entry_path
from lockstep.transactions.transaction import State, Transaction
from tests.support.faulty import FaultyStorage, TakenError
from tests.support.lakes import (
    NEW_TABLE,
    add,
    append,
    create,
    files,
    foreign,
    large,
    location,
    named,
    open_catalog,
    remove,
    stage,
    stage_new,
    tree,
)
from tests.support.unsynced import UnsyncedFolder, UnsyncedStorage

# --- a store that fails -----------------------------------------------------------------------------------------------


def test_a_winner_that_cannot_be_read_now_is_no_conflict(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    """COMMIT says what happened, and leaves the transaction open: it may be tried again."""
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    foreign(catalog, "a", 1, add("f"), isBlindAppend=True)
    store.fail("get", path=commit_path(location(catalog, "a"), 1))
    with pytest.raises(UnavailableError):
        catalog.commit(tx)
    assert tx.is_open
    catalog.commit(tx)
    assert files(catalog, "a") == {"p", "f", "x"}


def test_a_lost_response_is_no_lost_commit(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    """The entry was written and the answer lost: reading it back tells, and COMMIT succeeds."""
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    store.fail("put_if_absent", path=entry_path(2), when="after")
    assert catalog.commit(tx).version == 2
    assert files(other, "a") == {"p", "x"}


def test_a_commit_is_told_once_its_entrys_name_is_on_the_disk(
    catalog: TransactionalCatalog, store: FaultyStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry that can be read may still vanish in a power cut: reading it back is no proof that it is durable."""
    entry = Path(store.url.removeprefix("file://"), entry_path(2))
    folder = UnsyncedFolder(entry.parent, failures=1)
    monkeypatch.setattr(os, "fsync", folder.fsync)
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    assert catalog.commit(tx).version == 2
    assert folder.is_synced
    tx = catalog.begin()
    stage(catalog, tx, "a", add("y"))
    folder.failures = 100
    for _ in range(2):
        with pytest.raises(CommitUnknownError, match="committed as database version 3"):
            catalog.commit(tx)
        assert tx.is_open
    folder.failures = 0
    assert catalog.commit(tx).version == 3
    assert folder.is_synced


def in_doubt(catalog: TransactionalCatalog, store: FaultyStorage, *, landed: bool) -> Transaction:
    """Return a transaction that appended x to a, and whose COMMIT got no answer."""
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    store.go_down(entry_path(2), landed=landed)
    with pytest.raises(CommitUnknownError, match="committed as database version 2") as caught:
        catalog.commit(tx)
    assert not caught.value.retryable
    assert (tx.is_open, tx.in_doubt) == (True, 2)
    return tx


@pytest.mark.parametrize("landed", [True, False])
def test_after_an_unanswered_commit_another_one_finds_out(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog, landed: bool
) -> None:
    tx = in_doubt(catalog, store, landed=landed)
    with pytest.raises(TransactionStateError, match="COMMIT again to find out"):
        stage(catalog, tx, "a", add("later"))
    with pytest.raises(CommitUnknownError):  # never "nothing was changed", on which the whole might be run again
        catalog.commit(tx)
    store.heal()
    assert catalog.commit(tx).version == 2
    assert files(other, "a") == {"p", "x"}
    assert not any("/_lockstep/" in path for path in tree(store))


def test_an_unanswered_commit_whose_version_another_took_is_judged_anew(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    tx = in_doubt(catalog, store, landed=False)
    store.heal()
    append(other, "b", "y")
    assert catalog.commit(tx).version == 3
    assert files(other, "a") == {"p", "x"}


@pytest.mark.parametrize("isolation", ["SNAPSHOT", "SERIALIZABLE"])
def test_an_unanswered_commit_that_lands_while_another_one_finds_out_is_committed(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog, isolation: Isolation
) -> None:
    """The late write arrives after the second COMMIT's look for it: its own entry is no winner that it lost to."""
    tx = catalog.begin(isolation=isolation)
    stage(catalog, tx, "a", remove("p"), add("x"))
    store.go_down(entry_path(2), landed=True)
    with pytest.raises(CommitUnknownError):
        catalog.commit(tx)
    store.heal()
    entry = Path(store.url.removeprefix("file://"), entry_path(2))
    late = entry.rename(entry.with_suffix(".late"))
    store.interrupt("get", lambda: late.rename(entry), path=staged_path(location(catalog, "a"), tx.id, 1))
    assert catalog.commit(tx).version == 2
    assert entry.exists(), "it arrived in between"
    assert (tx.state, tx.version) == (State.COMPLETED, 2)
    assert files(other, "a") == {"x"}
    assert store.exists(f"{location(other, 'a')}/x")
    assert other.timeline.head.version == 2


def test_an_unreadable_entry_where_ours_may_be_is_no_answer(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    """To say that nothing was committed would be a guess as long as nobody knows what became of the earlier attempt."""
    tx = in_doubt(catalog, store, landed=False)
    store.heal()
    store.put(entry_path(2), b"{")
    for _ in range(2):
        with pytest.raises(CommitUnknownError, match="expected a timeline entry"):
            catalog.commit(tx)
        assert (tx.is_open, tx.in_doubt) == (True, 2)


def test_rollback_after_an_unanswered_commit_that_landed_comes_too_late(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    """It must not remove a file of what is committed."""
    tx = in_doubt(catalog, store, landed=True)
    store.heal()
    with pytest.raises(TransactionStateError, match=r"too late to roll back: .* database version 2") as caught:
        catalog.rollback(tx)
    assert caught.value.sqlstate == "2D000"
    assert tx.state is State.COMPLETED
    assert files(other, "a") == {"p", "x"}
    assert store.exists(f"{location(other, 'a')}/x")


def test_rollback_after_an_unanswered_commit_that_did_not_land_sees_that_it_never_will(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    """The write may still be under way: its version is taken from it, and only then its files are removed."""
    tx = in_doubt(catalog, store, landed=False)
    store.heal()
    catalog.rollback(tx)
    assert isinstance(store.inner.put_if_absent(entry_path(2), b"{}"), Theirs), (
        "the request that was under way arrives, and loses"
    )
    assert files(other, "a") == {"p"}
    assert tx.state is State.ROLLED_BACK
    assert not store.exists(f"{location(other, 'a')}/x")


def test_rollback_while_the_store_is_down_ends_the_transaction_and_removes_nothing(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    tx = in_doubt(catalog, store, landed=True)
    with pytest.raises(CommitUnknownError, match="still does not say"):
        catalog.rollback(tx)
    assert tx.state is State.ROLLED_BACK
    assert store.exists(f"{location(other, 'a')}/x")
    assert files(other, "a") == {"p", "x"}, "it had landed"


def test_an_interrupted_commit_is_in_doubt(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    """Ctrl-C between the write and its answer: what the block's exit rolls back then is committed."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    store.interrupt("put", interrupt, path="_latest")  # the hint, right after ratifying and publishing
    with pytest.raises(KeyboardInterrupt):
        catalog.commit(tx)
    with pytest.raises(TransactionStateError, match="too late"):
        catalog.rollback(tx)
    assert store.exists(f"{location(other, 'a')}/x")

    tx = catalog.begin()
    stage(catalog, tx, "a", add("y"))
    store.interrupt("put_if_absent", interrupt, path=entry_path(3), when="after")
    with pytest.raises(KeyboardInterrupt):
        catalog.commit(tx)
    assert tx.in_doubt == 3
    with pytest.raises(TransactionStateError, match="too late"):
        catalog.rollback(tx)
    assert store.exists(f"{location(other, 'a')}/y")


def test_a_store_that_refuses_before_it_writes_leaves_no_doubt(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    """A full disk is 58030 and nothing was committed; the transaction is open, and may be committed later."""
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    store.fail("put_if_absent", path=entry_path(2), definite=True)
    with pytest.raises(UnavailableError) as caught:
        catalog.commit(tx)
    assert caught.value.sqlstate == "58030"
    assert (tx.is_open, tx.in_doubt) == (True, None)
    assert files(other, "a") == {"p"}
    assert catalog.commit(tx).version == 2


@pytest.mark.parametrize("operation", ["get", "exists", "put_if_absent"])
def test_a_failure_before_ratifying_leaves_the_transaction_open_and_cleanable(
    catalog: TransactionalCatalog, store: FaultyStorage, operation: Any
) -> None:
    before = tree(store)
    tx = catalog.begin()
    stage(catalog, tx, "a", large("x"))
    where = {"get": f"{1:020d}.json", "exists": f"{1:020d}.json", "put_if_absent": ".json"}[operation]
    store.fail(operation, path=where)
    with pytest.raises(UnavailableError):
        catalog.commit(tx)
    assert (tx.is_open, tx.in_doubt, tx.state) == (True, None, State.INFLIGHT)
    catalog.rollback(tx)
    assert tree(store) == before


def claims_it_is_there() -> None:
    raise TakenError


def fails() -> None:
    raise UnavailableError("injected: no answer")


FAULTS: dict[str, tuple[Callable[[], None], Literal["before", "after"]]] = {
    "claims that it is there, and wrote nothing": (claims_it_is_there, "before"),
    "wrote it, and claims that it was there": (claims_it_is_there, "after"),
    "failed before it wrote": (fails, "before"),
    "wrote it, and its answer was lost": (fails, "after"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_whichever_write_of_a_commit_meets_a_fault_the_answer_is_true(tmp_path: Path, fault: str) -> None:
    """Each write in turn: the staged commit, the entry, what is published, checksums.

    COMMIT, where it has to be asked again, commits all of it, once; others read it, and `verify` finds nothing.
    """
    action, when = FAULTS[fault]
    for nth in count(1):
        root = tmp_path / f"{nth}"
        root.mkdir()
        store = FaultyStorage(UnsyncedStorage(root))
        catalog = open_catalog(store)
        create(catalog, "a", "b", files=["p"])
        tx = catalog.begin()
        stage(catalog, tx, "a", large("x"))
        stage(catalog, tx, "b", remove("p"), add("y"))
        before = store.count("put_if_absent")
        at_write(store, nth, action, when)
        try:
            done = catalog.commit(tx)
        except (UnavailableError, CommitUnknownError):
            assert tx.is_open
            done = catalog.commit(tx)
        met = store.count("put_if_absent") - before >= nth
        store.heal()
        other = open_catalog(store.inner)
        assert (files(other, "a"), files(other, "b")) == ({"p", "x"}, {"y"})
        assert done.version == other.timeline.head.version == 2
        assert other.timeline.published_through == 2
        report = verify(store.inner, other.timeline)
        assert (report.differences, report.versions) == ((), 4)
        if not met:
            assert nth > 6, "a staged commit, an entry, two commits and two checksums were each met"
            return


def at_write(store: FaultyStorage, nth: int, action: Callable[[], None], when: Literal["before", "after"]) -> None:
    """Do this just before (or after) the nth conditional write."""
    seen: list[None] = []

    def met() -> None:
        seen.append(None)
        if len(seen) == nth:
            action()

    for _ in range(nth):
        store.interrupt("put_if_absent", met, when=when)


def test_a_staged_commit_that_was_not_written_is_never_committed(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", large("x"))
    before = tree(store)
    store.claim_taken(times=1000)
    with pytest.raises(UnavailableError, match="the store says it is there, and it is not"):
        catalog.commit(tx)
    assert (tx.is_open, tx.in_doubt, tree(store)) == (True, None, before)
    store.heal()
    assert catalog.commit(tx).version == 2
    assert files(other, "a") == {"p", "x"}


def test_a_store_that_fails_while_publishing_fails_no_commit(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    stage(catalog, tx, "b", add("y"))
    store.fail("put_if_absent", path=f"_delta_log/{1:020d}.json")
    assert catalog.commit(tx).version == 2
    assert tx.state is State.COMPLETED
    assert (files(other, "a"), files(other, "b")) == ({"p", "x"}, {"y"})


# --- files that are gone ----------------------------------------------------------------------------------------------


def vector(store: FaultyStorage, where: str, row: int) -> tuple[str, Any]:
    """Write a file with a deletion vector of one row; return its path and descriptor."""
    id_ = uuid4()
    descriptor, content = in_a_file(serialize(BitMap64([row])), 1, id_)
    path = f"{where}/{file_name(id_)}"
    store.put(path, content)
    return path, descriptor


@pytest.mark.parametrize("kind", ["data", "partition", "change", "vector"])
def test_a_commit_whose_files_are_gone_is_refused(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog, kind: str
) -> None:
    """A VACUUM beside it took them: committed, they would make the table unreadable."""
    where = location(catalog, "a")
    before = tree(store)
    tx = catalog.begin()
    path, marks = vector(store, where, 0)
    adds: dict[str, list[Any]] = {
        "data": [add("x")],
        "partition": [add("day=a%2520b/x", partitionValues={"day": "a%20b"})],
        "change": [add("x"), {"cdc": {"path": "_change_data/c", "size": 1, "partitionValues": {}}}],
        "vector": [remove("p"), add("p", deletionVector=marks)],
    }
    stage(catalog, tx, "a", *adds[kind], operation="DELETE")
    stage(catalog, tx, "b", add("y"))
    names = {"data": "x", "partition": "day=a%20b/x", "change": "_change_data/c", "vector": path.rpartition("/")[2]}
    name = names[kind]
    if kind == "partition":  # Spark writes what the log's path means, decoded
        store.put(f"{where}/{name}", b"rows")
        store.delete(f"{where}/day=a%2520b/x")
    store.delete(f"{where}/{name}")
    with pytest.raises(
        MissingFilesError, match=rf"wrote are gone: {re.escape(f'{where}/{name}')}\. To a VACUUM"
    ) as caught:
        catalog.commit(tx)
    assert (caught.value.sqlstate, caught.value.retryable, tx.state) == ("58P01", True, State.ROLLED_BACK)
    assert other.database().version == 1
    assert tree(store) - {path} == before


def test_a_message_about_many_files_is_short(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", *(add(f"x{n}") for n in range(50)))
    for n in range(40):
        store.delete(f"{location(catalog, 'a')}/x{n}")
    with pytest.raises(MissingFilesError, match=r"40 of the 50 files .*, .*, .* and 37 more\. To a VACUUM"):
        catalog.commit(tx)


def test_what_the_table_had_before_and_what_is_another_tables_is_not_looked_for(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    """One look for each file that is new, however many files a statement touches."""
    tx = catalog.begin()
    _, marks = vector(store, location(catalog, "a"), 0)
    stage(catalog, tx, "a", remove("p"), add("p", deletionVector=marks), operation="DELETE")
    stage(catalog, tx, "b", add("file:///elsewhere/x"), operation="CLONE")
    looked = len(store.calls)
    catalog.commit(tx)
    seen = {path.rpartition("/")[2] for kind, path in store.calls[looked:] if kind == "exists" and LOG not in path}
    assert seen == {file_path(marks, location="t", root="file:///r").rpartition("/")[2]}


def test_a_store_that_cannot_be_asked_for_files_leaves_the_transaction_open(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    store.fail("exists", path="/x")
    with pytest.raises(UnavailableError):
        catalog.commit(tx)
    assert tx.is_open
    assert catalog.commit(tx).version == 2
    assert files(other, "a") == {"p", "x"}


def test_a_statement_on_its_own_whose_files_are_gone_is_refused(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    before = tree(store)
    where = location(catalog, "a")
    content = render([{"commitInfo": {"operation": "WRITE"}}, add("x"), large("y")]).decode()
    with pytest.raises(MissingFilesError, match="2 of the 2 files that the statement"):
        catalog.write(where, 1, content)
    assert tree(store) == before
    creation = catalog.reserve(named("c"))
    store.put(f"{creation.location}/there", b"rows")
    content = render([*NEW_TABLE, add("there"), add("gone")]).decode()
    with pytest.raises(MissingFilesError):
        catalog.write(creation.location, 0, content, creation=creation)
    assert tree(store) == before
    assert other.database().version == 1


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
