"""Transactions, statements and tools that meet versions which expired: a plain error, and never a wrong answer."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.commit.records import ALIVE, abort, open_transactions, record_of, write
from lockstep.delta.log import commit_path
from lockstep.errors import (
    CommitUnknownError,
    CorruptTimelineError,
    ExpiredError,
    SnapshotTooOldError,
    TransactionStateError,
    UnavailableError,
)
from lockstep.lake.verify import verify
from lockstep.recovery.dropped import dropped_tables, find_dropped, last_state
from lockstep.storage import Storage
from lockstep.timeline.base import base_path
from lockstep.timeline.expiry import ExpiryReport, expire
from lockstep.timeline.files import entry_path
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, append, create, files, location, named, open_catalog, stage


@pytest.fixture(autouse=True)
def _nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody counts on what he saw, since nothing waits here between the fence and the first deletion."""
    monkeypatch.setattr("lockstep.timeline.fence.GRACE_SECONDS", 0.0)


def drop(catalog: TransactionalCatalog, name: str) -> None:
    tx = catalog.begin()
    tx.changing().drop_table(named(name))
    catalog.commit(tx)


def let_expire(store: Storage, *keep: int) -> ExpiryReport:
    """Another process lets all but the newest version expire."""
    lake = open_catalog(store).lake
    lake.refresh()
    return expire(lake.timeline, first_kept=lake.timeline.head.version, keep=keep, wait=lambda: None)


def test_a_transaction_whose_base_expired_is_run_again(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    """Nobody can judge it any more. Nothing of it is committed, and the next one is as ever."""
    tx = catalog.begin()
    stage(catalog, tx, "a", add("mine"))
    append(open_catalog(store), "b", "x")
    append(open_catalog(store), "b", "y")
    let_expire(store)
    with pytest.raises(SnapshotTooOldError, match="run a transaction that began before that again") as raised:
        catalog.commit(tx)
    assert raised.value.retryable
    catalog.rollback(tx)
    append(catalog, "a", "again")
    assert "again" in files(open_catalog(store), "a")
    assert "mine" not in files(open_catalog(store), "a")


@pytest.mark.parametrize("seconds_ago", [0, 11], ids=["just looked", "looked long ago"])
def test_what_landed_and_expires_before_it_is_read_back_is_in_doubt(
    catalog: TransactionalCatalog, store: FaultyStorage, seconds_ago: int
) -> None:
    """It is committed, though its answer was lost: nobody says that nothing was, and ROLLBACK keeps its files."""
    tx = catalog.begin()
    stage(catalog, tx, "a", add("mine"))
    version = catalog.timeline.head.version + 1
    other = open_catalog(store.inner)
    expires, may_delete = threading.Event(), threading.Event()

    def expire_slowly() -> None:
        def wait() -> None:
            expires.set()
            may_delete.wait(60)

        expire(other.timeline, first_kept=other.timeline.head.version, keep=(), wait=wait)

    expirer = threading.Thread(target=expire_slowly)

    def commit_on_and_let_expire() -> None:
        append(other, "a", "x")
        append(other, "a", "y")
        expirer.start()
        assert expires.wait(60)
        catalog.timeline._sure_at -= seconds_ago
        raise UnavailableError("injected: no answer")

    store.interrupt("put_if_absent", commit_on_and_let_expire, path=entry_path(version), when="after")
    with pytest.raises(CommitUnknownError):
        catalog.commit(tx)
    with pytest.raises((CommitUnknownError, TransactionStateError)):
        catalog.rollback(tx)
    may_delete.set()
    expirer.join()
    assert "mine" in files(other, "a")
    assert store.exists(f"{location(other, 'a')}/mine")


def test_one_that_began_at_what_is_kept_commits(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", add("mine"))
    report = let_expire(store)
    assert report.first_kept == tx.base.version
    catalog.commit(tx)
    assert "mine" in files(open_catalog(store), "a")


def test_a_read_of_what_expired_says_what_there_is(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    append(catalog, "a", "x")
    append(catalog, "a", "y")
    first = let_expire(store, 0).first_kept
    for reader in (catalog, open_catalog(store)):
        reader.lake.refresh()
        with pytest.raises(ExpiredError, match=f"there are {first} to {first + 1}, and 0") as raised:
            reader.timeline.at(1)
        assert (raised.value.sqlstate, raised.value.retryable) == ("72000", False)
        assert reader.timeline.at(0).version == 0


def test_who_had_it_open_has_ended(
    catalog: TransactionalCatalog, other: TransactionalCatalog, store: FaultyStorage
) -> None:
    """One that can never commit is listed while its process lives, for it may read; it hides no other."""
    tx = catalog.begin()
    stage(catalog, tx, "a", add("mine"))
    now = catalog.lake.clock()
    write(catalog.lake, record_of(tx, now=now, process="here:1"))
    append(other, "b", "x")
    append(other, "b", "y")
    assert [record.transaction for record in open_transactions(other.lake)] == [tx.id]
    let_expire(store)
    assert [record.transaction for record in open_transactions(other.lake)] == [tx.id]
    write(catalog.lake, record_of(tx, now=now - 2 * ALIVE, process="here:1"))
    assert open_transactions(other.lake) == []


def test_verify_looks_at_what_is_kept_and_at_bases(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    for path in "xyz":
        append(catalog, "a", path)
    first = let_expire(store, 2).first_kept
    found = verify(store, open_catalog(store).timeline)
    assert (found.differences, found.wrong_checkpoints) == ((), ())
    store.put(base_path(2), b"damaged")
    [wrong] = verify(store, open_catalog(store).timeline).wrong_checkpoints
    assert (wrong.database_version, wrong.path) == (2, base_path(2))
    store.delete(base_path(first))
    with pytest.raises(CorruptTimelineError, match=base_path(first)):
        verify(store, open_catalog(store).timeline)


def test_a_log_that_lost_what_expired_is_not_healed(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    """The timeline does not have the commit any more: that is told, and nothing is guessed."""
    append(catalog, "a", "x")
    append(catalog, "b", "y")
    append(catalog, "b", "z")
    let_expire(store)
    store.delete(commit_path(location(catalog, "a"), 1))
    fresh = open_catalog(store)
    tx = fresh.begin()
    with pytest.raises(CorruptTimelineError, match="or whose entry has expired"):
        stage(fresh, tx, "a", add("more"))


def test_a_table_that_was_dropped_before_is_not_listed(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    create(catalog, "gone")
    drop(catalog, "gone")
    append(catalog, "a", "x")
    assert find_dropped(catalog.timeline, named("gone")).name == named("gone")
    let_expire(store)
    fresh = open_catalog(store).timeline
    assert [*dropped_tables(fresh)] == []
    create(catalog, "late")
    drop(catalog, "late")
    fresh.refresh()
    [late] = dropped_tables(fresh)
    assert last_state(fresh, late).name == named("late")


def test_what_began_before_what_expired_is_ended_all_the_same(
    catalog: TransactionalCatalog, other: TransactionalCatalog, store: FaultyStorage
) -> None:
    """And one that committed in an entry that has expired is told to be committed: the history says so."""
    tx, committed = catalog.begin(), catalog.begin()
    for each, path in ((tx, "mine"), (committed, "done")):
        stage(catalog, each, "a", add(path))
        write(catalog.lake, record_of(each, now=catalog.lake.clock(), process="here:1"))
    version = catalog.commit(committed).version
    append(other, "b", "x")
    append(other, "b", "y")
    let_expire(store)
    ask = partial(abort, author="ada", statement="abort")
    assert ask(other.lake, tx.id).aborts == [tx.id]
    with pytest.raises(TransactionStateError, match=f"database version {version}"):
        ask(other.lake, committed.id, snapshot=committed.base.version)
