"""Records of open transactions, and their end by a person, seen from another process' catalog."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.commit.records import (
    ALIVE,
    FOLDER,
    MAX_TABLES,
    abort,
    open_transactions,
    record_of,
    remove,
    remove_ended,
    write,
)
from lockstep.errors import CancelledError, InvalidError, LockstepError, TransactionStateError, UndefinedError
from lockstep.timeline.entry import Entry
from lockstep.transactions.transaction import Transaction
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, append, create, files, named, stage, staged_commits


def begin(catalog: TransactionalCatalog, *tables: str) -> Transaction:
    tx = catalog.begin(comment="nightly")
    for table in tables:
        stage(catalog, tx, table, add(f"of-{tx.id}"))
    write(catalog.lake, record_of(tx, now=catalog.lake.clock(), process="here:1"))
    return tx


def end(catalog: TransactionalCatalog, tx: str, reason: str = "too long") -> Entry:
    return abort(catalog.lake, tx, author="bob", statement="CALL …", reason=reason)


def test_a_record_says_whose_transaction_it_is_and_what_it_wrote(
    catalog: TransactionalCatalog, other: TransactionalCatalog
) -> None:
    tx = begin(catalog, "a", "b")
    [record] = open_transactions(other.lake)
    assert (record.transaction, record.state.value, record.base_version) == (tx.id, "INFLIGHT", tx.base.version)
    assert (record.author, record.process, record.message) == ("ada", "here:1", "nightly")
    assert record.tables == (named("a"), named("b"))
    assert record.began_at == tx.began_at <= record.seen_at
    assert record.is_alive(record.seen_at + ALIVE - timedelta(seconds=1))
    assert not record.is_alive(record.seen_at + ALIVE)


def test_a_record_is_bounded(catalog: TransactionalCatalog, other: TransactionalCatalog) -> None:
    names = [f"t{number}" for number in range(MAX_TABLES + 1)]
    create(catalog, *names)
    begin(catalog, *names)
    [record] = open_transactions(other.lake)
    assert len(record.tables) == MAX_TABLES


@pytest.mark.parametrize("ends", ["commit", "abort"])
def test_what_has_ended_is_not_listed_and_its_record_stays_until_it_is_removed(
    catalog: TransactionalCatalog, other: TransactionalCatalog, ends: str
) -> None:
    tx, goes_on = begin(catalog, "a"), begin(catalog, "b")
    if ends == "commit":
        catalog.commit(tx)
    else:
        end(other, tx.id)
        write(catalog.lake, record_of(tx, now=catalog.lake.clock(), process="late:1"))
    assert [record.transaction for record in open_transactions(other.lake)] == [goes_on.id]
    assert set(other.lake.storage.list(FOLDER)) == {f"{tx.id}.json", f"{goes_on.id}.json"}, "a look changes nothing"
    remove_ended(other.lake)
    assert other.lake.storage.list(FOLDER) == [f"{goes_on.id}.json"]


def test_records_that_cannot_be_looked_at_stay_and_fail_nobody(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    tx = begin(catalog, "a")
    catalog.commit(tx)
    store.fail("list", path=FOLDER)
    remove_ended(catalog.lake)
    assert store.list(FOLDER) == [f"{tx.id}.json"]
    remove_ended(catalog.lake)
    assert store.list(FOLDER) == []


def test_what_is_no_record_is_passed_over(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    tx = begin(catalog, "a")
    good = store.get(f"{FOLDER}/{tx.id}.json")
    assert good is not None
    newer = good.replace(b'"format":1', b'"format":2').replace(tx.id.encode(), b"w")
    assert newer != good.replace(tx.id.encode(), b"w")
    for name, data in (("x", b"{"), ("y", b"[" * 10_000), ("z", good), ("w", newer)):
        store.put(f"{FOLDER}/{name}.json", data)
    assert [record.transaction for record in open_transactions(catalog.lake)] == [tx.id]


def test_who_was_ended_cannot_commit_and_is_told_by_whom_and_why(
    catalog: TransactionalCatalog, other: TransactionalCatalog, store: FaultyStorage
) -> None:
    tx = begin(catalog, "a")
    before = files(catalog, "a")
    entry = end(other, tx.id)
    assert (entry.kind, entry.aborts, entry.transaction.author) == ("abort", [tx.id], "bob")
    with pytest.raises(CancelledError, match=r"bob asked for that: too long.*ask why before") as caught:
        catalog.commit(tx)
    assert caught.value.sqlstate == "57014"
    assert not caught.value.retryable
    assert not tx.is_open
    assert files(other, "a") == before
    assert end_again(other, tx.id) == "42704"


def end_again(catalog: TransactionalCatalog, tx: str) -> str:
    with pytest.raises(LockstepError) as caught:
        end(catalog, tx)
    return caught.value.sqlstate


def test_to_end_what_is_committed_is_too_late(catalog: TransactionalCatalog, other: TransactionalCatalog) -> None:
    tx = begin(catalog, "a")
    version = catalog.commit(tx).version
    with pytest.raises(TransactionStateError, match=f"committed as database version {version}") as caught:
        end(other, tx.id)
    assert caught.value.sqlstate == "2D000"
    assert other.timeline.head.version == version


def test_a_process_that_is_gone_leaves_a_record_that_can_be_ended(
    catalog: TransactionalCatalog, other: TransactionalCatalog
) -> None:
    tx = begin(catalog, "a")
    for _ in range(3):
        append(other, "b", "q")
    entry = end(other, tx.id, reason="")
    assert entry.aborts == [tx.id]
    assert open_transactions(other.lake) == []


@pytest.mark.parametrize(
    ("id_", "kind", "state"),
    [("0" * 24, UndefinedError, "42704"), ("../timeline/x", InvalidError, "22023"), ("", InvalidError, "22023")],
)
def test_what_is_no_open_transaction(
    catalog: TransactionalCatalog, id_: str, kind: type[Exception], state: str
) -> None:
    head = catalog.timeline.head.version
    with pytest.raises(kind) as caught:
        end(catalog, id_)
    assert isinstance(caught.value, LockstepError)
    assert caught.value.sqlstate == state
    assert catalog.lake.refresh().version == head


def test_a_commit_and_an_abort_at_once_never_both_win(
    catalog: TransactionalCatalog, other: TransactionalCatalog, store: FaultyStorage
) -> None:
    ended = 0
    for round_ in range(20):
        tx, barrier = begin(catalog, "a"), threading.Barrier(2)
        outcome: list[str] = []

        def kill(id_: str = tx.id, barrier: threading.Barrier = barrier, outcome: list[str] = outcome) -> None:
            barrier.wait()
            try:
                end(other, id_)
                outcome.append("aborted")
            except TransactionStateError:
                outcome.append("committed")

        thread = threading.Thread(target=kill)
        thread.start()
        barrier.wait()
        try:
            catalog.commit(tx)
            mine = "committed"
        except CancelledError:
            mine = "aborted"
        thread.join()
        assert outcome == [mine], round_
        assert (f"of-{tx.id}" in files(other, "a")) == (mine == "committed")
        ended += mine == "aborted"
    assert not staged_commits_of(store)


def staged_commits_of(store: FaultyStorage) -> list[str]:
    return [str(path) for path in staged_commits(Path(store.url.removeprefix("file://")))]


def test_to_remove_a_record_that_is_not_there_is_nothing(catalog: TransactionalCatalog) -> None:
    remove(catalog.lake, "never-there")
    assert open_transactions(catalog.lake) == []
