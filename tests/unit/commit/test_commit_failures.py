"""What a store that fails at the worst moment leaves behind, and what is told of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Literal

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.commit.outcomes import Committed
from lockstep.delta.log import commit_path, staged_path
from lockstep.errors import (
    CommitUnknownError,
    TransactionStateError,
    UnavailableError,
)
from lockstep.lake.verify import verify
from lockstep.storage import Theirs
from lockstep.timeline.entry import Isolation
from lockstep.timeline.files import entry_path
from lockstep.timeline.hint import Hint, write_hint
from lockstep.timeline.layered_map import LayeredMap
from lockstep.transactions.state import State
from lockstep.transactions.transaction import Transaction
from tests.support.faulty import FaultyStorage, TakenError
from tests.support.lakes import (
    add,
    append,
    create,
    files,
    foreign,
    large,
    lay,
    location,
    named,
    open_catalog,
    remove,
    stage,
    stage_new,
    tree,
)
from tests.support.unsynced import UnsyncedFolder, UnsyncedStorage


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


def of_a_checkpoint(catalog: TransactionalCatalog, store: FaultyStorage) -> TransactionalCatalog:
    """Open a lake whose head stands on a checkpoint, of which nothing is in memory."""
    version = catalog.timeline.head.version
    catalog.timeline.secure_version(version)
    catalog.lake.upkeep.settle()
    write_hint(store, Hint(version=version, published_through=version, checkpoint=version))
    opened = open_catalog(store)
    assert isinstance(opened.timeline.head.tables, LayeredMap)
    return opened


def fails_behind_the_entry(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    """Have nothing of the checkpoint in memory any more, nor readable, once the next entry is written."""

    def fail() -> None:
        catalog.timeline._checkpoints._parts._kept.clear()
        store.fail("get", path=".jsonl", times=1_000)

    store.interrupt("put_if_absent", fail, path=entry_path(catalog.timeline.head.version + 1), when="after")


@pytest.mark.parametrize("path", ["x", "large"])
def test_a_statement_that_is_committed_is_not_told_to_have_failed(
    catalog: TransactionalCatalog, store: FaultyStorage, path: str
) -> None:
    """What is looked up behind the entry cannot be read: whoever ran the statement again would have its rows twice."""
    opened = of_a_checkpoint(catalog, store)
    actions = [{"commitInfo": {"operation": "WRITE"}}, large("x") if path == "large" else add("x")]
    lay(store, location(catalog, "a"), actions)
    content = "".join(json.dumps(action) + "\n" for action in actions)
    store.interrupt(
        "put_if_absent",
        lambda: store.fail("get", path=".jsonl", times=1_000),
        path=entry_path(opened.timeline.head.version + 1),
        when="after",
    )
    assert isinstance(opened.write(location(catalog, "a"), 1, content), Committed)
    store.heal()
    assert files(open_catalog(store), "a") == {"p", "x"}


@pytest.mark.parametrize("what", ["writes", "drops", "makes"])
def test_a_transaction_that_is_committed_is_not_told_to_be_in_doubt(
    catalog: TransactionalCatalog, store: FaultyStorage, what: str
) -> None:
    """What is looked up behind the entry cannot be read: at worst something stays that nobody needs."""
    opened = of_a_checkpoint(catalog, store)
    tx = opened.begin()
    match what:
        case "writes":
            stage(opened, tx, "a", large("x"))
        case "drops":
            opened.table(tx, named("b"))
            tx.changing().drop_table(named("b"))
        case _:
            stage_new(opened, tx, "new")
    fails_behind_the_entry(opened, store)
    assert opened.commit(tx).version == 2
    store.heal()
    assert open_catalog(store).database().version == 2


def test_a_rollback_that_cannot_look_up_its_tables_is_done_all_the_same(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    """What it wrote stays as litter: that is no reason to tell that it failed."""
    opened = of_a_checkpoint(catalog, store)
    tx = opened.begin()
    stage(opened, tx, "a", add("x"))
    opened.timeline._checkpoints._parts._kept.clear()
    store.fail("get", path=".jsonl", times=1_000)
    opened.rollback(tx)
    assert tx.state is State.ROLLED_BACK
    store.heal()
    assert files(open_catalog(store), "a") == {"p"}
