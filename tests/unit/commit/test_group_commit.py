"""Group commit of transactions and statements: what may land together, and what is judged, refused, published then."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.commit.outcomes import Committed
from lockstep.delta.log import commit_path
from lockstep.errors import CommitUnknownError, ConflictError, UnavailableError
from lockstep.lake.gate import Gate
from lockstep.lake.verify import verify
from lockstep.timeline.append import LOSSES
from lockstep.timeline.files import entry_path, find
from lockstep.transactions.transaction import Transaction
from tests.support.faulty import FaultyStorage
from tests.support.lakes import (
    add,
    append,
    create,
    files,
    foreign,
    lay,
    location,
    named,
    open_catalog,
    remove,
    stage,
    stage_new,
)
from tests.support.queueing import PATIENCE_S, until, waiting

TABLES = ("a", "b", "c", "d")


@pytest.fixture
def catalog(store: FaultyStorage) -> TransactionalCatalog:
    """Tables with one file each, made as database version 1."""
    catalog = open_catalog(store)
    create(catalog, *TABLES, files=["p"])
    return catalog


Ask = Callable[[], object]


def staged(catalog: TransactionalCatalog, table: str, *actions: Any, reads: Sequence[str] = ()) -> Transaction:
    """Begin a transaction that has read some tables and written one."""
    tx = catalog.begin()
    for name in reads:
        tx.read(tx.table(named(name)))
    stage(catalog, tx, table, *(actions or [add(f"{table}-1")]))
    return tx


def together(
    catalog: TransactionalCatalog, store: FaultyStorage, *asks: Ask, joins: Sequence[bool] | None = None
) -> list[Any]:
    """Append to table d as the next version, have others come while that is put, and return what became of these.

    Args:
        joins: of each whether it is expected to find a place in the group.
    """
    futures: list[Future[object]] = []

    def come() -> None:
        for ask, does_join in zip(asks, joins or [True] * len(asks), strict=True):
            before = waiting(catalog.timeline)
            futures.append(pool.submit(ask))
            if does_join:
                until(lambda before=before: waiting(catalog.timeline) == before + 1)  # type: ignore[misc]

    with ThreadPoolExecutor(16) as pool:
        store.interrupt("put_if_absent", come, path=entry_path(catalog.timeline.head.version + 1))
        append(catalog, "d", "first")
        return [future.exception(PATIENCE_S) or future.result() for future in futures]


def commits(catalog: TransactionalCatalog, tx: Transaction) -> Ask:
    return lambda: catalog.commit(tx)


def test_transactions_on_other_tables_land_in_one_file(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    """All are published when they are answered, and known to be."""
    txs = [staged(catalog, name) for name in "abc"]
    results = together(catalog, store, *(commits(catalog, tx) for tx in txs))
    assert [result.version for result in results] == [3, 4, 5]
    file = find(store, 4)
    assert file is not None
    assert (file.first, file.last) == (3, 5)
    for name in "abc":
        assert store.exists(commit_path(location(catalog, name), 1))
        assert files(catalog, name) == {"p", f"{name}-1"}
    assert catalog.timeline.published_through == 5
    assert not verify(store, catalog.timeline).differences


def test_one_who_reads_meanwhile_waits_for_those_who_publish(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    """It does not do their work a second time, and sees all of the group, or nothing."""
    txs = [staged(catalog, name) for name in "abc"]
    path = commit_path(location(catalog, "b"), 1)
    seen: list[Any] = []
    reader = threading.Thread(target=lambda: seen.append(catalog.database().version))

    def read() -> None:
        reader.start()
        reader.join(0.2)

    store.interrupt("put_if_absent", read, path=path)
    together(catalog, store, *(commits(catalog, tx) for tx in txs))
    reader.join()
    assert seen == [5]
    assert store.count("put_if_absent", path) == 1


def test_write_skew_inside_a_group_is_refused(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    """Each has read what the other writes: the second has no place behind the first, is judged again, and refused."""
    one, two = staged(catalog, "a", reads="b"), staged(catalog, "b", reads="a")
    first, second = together(catalog, store, commits(catalog, one), commits(catalog, two), joins=[True, False])
    assert isinstance(first, Committed)
    assert isinstance(second, ConflictError)
    assert files(catalog, "b") == {"p"}


def test_one_that_has_read_what_the_group_writes_says_that_it_comes_before(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    """Its entry says so, for the check of those that come later."""
    one, two = staged(catalog, "a"), staged(catalog, "b", reads="a")
    _, second = together(catalog, store, commits(catalog, one), commits(catalog, two))
    assert (second.version, second.entry.precedes) == (4, 3)
    three = staged(catalog, "c", reads="b")
    assert catalog.commit(three).entry.precedes is None  # type: ignore[union-attr]


def test_a_table_is_in_a_group_once(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    """A second commit is ratified once the first is published: a plain writer's in between would be missed."""
    one, two = staged(catalog, "a", add("x")), staged(catalog, "a", add("y"))
    results = together(catalog, store, commits(catalog, one), commits(catalog, two), joins=[True, False])
    assert sorted(result.version for result in results) == [3, 4]
    assert find(store, 4).first == 4  # type: ignore[union-attr]
    assert files(catalog, "a") == {"p", "x", "y"}


def test_two_that_remove_the_same_file_do_not_both_commit(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    one, two = staged(catalog, "a", remove("p")), staged(catalog, "a", remove("p"))
    first, second = together(catalog, store, commits(catalog, one), commits(catalog, two), joins=[True, False])
    assert isinstance(first, Committed)
    assert isinstance(second, ConflictError)


def test_what_changes_names_is_never_followed_unseen(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    """It joins the group itself; who comes after it is proposed anew, and lands behind it."""
    maker = catalog.begin()
    stage_new(catalog, maker, "new")
    other = staged(catalog, "b")
    results = together(catalog, store, commits(catalog, maker), commits(catalog, other), joins=[True, False])
    assert [result.version for result in results] == [3, 4]
    assert find(store, 4).first == 4  # type: ignore[union-attr]
    assert named("new") in catalog.database().tables


def test_a_statement_on_its_own_lands_in_a_group(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    def statement(name: str) -> Ask:
        actions = [{"commitInfo": {"operation": "WRITE"}}, add("s")]
        lay(store, location(catalog, name), actions)
        content = "".join(json.dumps(action) + "\n" for action in actions)
        return lambda: catalog.write(location(catalog, name), 1, content)

    tx = staged(catalog, "b")
    results = together(
        catalog, store, statement("a"), commits(catalog, tx), statement("c"), statement("b"), joins=[True] * 3 + [False]
    )
    assert [result.version for result in results[:3]] == [3, 4, 5]
    assert not isinstance(results[3], Committed), "its version of the table is taken"
    assert find(store, 5).first == 3  # type: ignore[union-attr]


def test_a_plain_writer_takes_the_version_of_one_in_a_group(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    """That one is moved behind it, the others stay."""
    txs = [staged(catalog, name) for name in "abc"]
    store.interrupt("put_if_absent", lambda: foreign(catalog, "b", 1, add("f")), path=entry_path(3))
    results = together(catalog, store, *(commits(catalog, tx) for tx in txs))
    assert [result.version for result in results] == [3, 4, 5]
    assert files(catalog, "b") == {"p", "f", "b-1"}
    assert files(catalog, "c") == {"p", "c-1"}
    assert not verify(store, catalog.timeline).differences


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("then", ["commit", "rollback"])
def test_in_doubt_is_each_of_a_group_and_each_finds_out(
    catalog: TransactionalCatalog, store: FaultyStorage, landed: bool, then: str
) -> None:
    txs = [staged(catalog, name) for name in "abc"]
    store.go_down(entry_path(3), landed=landed)
    results = together(catalog, store, *(commits(catalog, tx) for tx in txs))
    assert [type(result) for result in results] == [CommitUnknownError] * 3
    assert [tx.in_doubt for tx in txs] == [3, 4, 5]
    store.heal()
    for tx in reversed(txs):
        if then == "commit":
            catalog.commit(tx)
        elif landed:
            with pytest.raises(Exception, match="too late to roll back"):
                catalog.rollback(tx)
        else:
            catalog.rollback(tx)
    is_there = landed or then == "commit"
    for name in "abc":
        assert files(catalog, name) == ({"p", f"{name}-1"} if is_there else {"p"})
    assert not verify(store, catalog.timeline).differences


def test_after_a_firm_no_each_may_commit_again(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    txs = [staged(catalog, name) for name in "abc"]
    store.fail("put_if_absent", path=entry_path(3), definite=True)
    results = together(catalog, store, *(commits(catalog, tx) for tx in txs))
    assert [type(result) for result in results] == [UnavailableError] * 3
    assert [tx.in_doubt for tx in txs] == [None] * 3
    for tx in txs:
        catalog.commit(tx)
    assert all(files(catalog, name) == {"p", f"{name}-1"} for name in "abc")


def test_one_that_loses_to_many_small_ones_goes_alone(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    """It reads before it can follow others, and another thread commits meanwhile: five times, and not for ever."""
    heavy = staged(catalog, "a")
    rivals: list[Future[object]] = []
    lost = 0

    def rival() -> None:
        nonlocal lost
        if not heavy.is_open:
            return
        stage_new(catalog, tx := catalog.begin(), f"r{len(rivals)}")  # changes names: nothing follows it unseen
        rivals.append(pool.submit(catalog.commit, tx))
        until(lambda: rivals[-1].done() or catalog.lake.gate._holder == heavy.id)
        lost += rivals[-1].done()
        if len(rivals) < 12:
            store.interrupt("exists", rival, path=commit_path(location(catalog, "a"), 1))

    with ThreadPoolExecutor(16) as pool:
        store.interrupt("exists", rival, path=commit_path(location(catalog, "a"), 1))
        catalog.commit(heavy)
        assert lost == LOSSES
        assert len(rivals) == LOSSES + 1, "the last one waited"
    assert all(isinstance(each.result(), Committed) for each in rivals)


def test_many_in_two_processes_lose_and_double_nothing(store: FaultyStorage) -> None:
    """Threads of two processes append to tables of their own and to one that all share."""
    catalogs = [open_catalog(store), open_catalog(store.inner)]
    create(catalogs[0], *(f"t{me}" for me in range(8)), "shared")
    errors: list[BaseException] = []

    def work(me: int) -> None:
        catalog = catalogs[me % 2]
        try:
            for number in range(6):
                tx = catalog.begin()
                stage(catalog, tx, f"t{me}", add(f"{me}-{number}"))
                if number % 3 == 0:
                    stage(catalog, tx, "shared", add(f"{me}-{number}"))
                catalog.commit(tx)
        except BaseException as error:  # noqa: BLE001 (the test's own thread raises it)
            errors.append(error)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    reader = open_catalog(store.inner)
    for me in range(8):
        assert files(reader, f"t{me}") == {f"{me}-{number}" for number in range(6)}
    assert files(reader, "shared") == {f"{me}-{number}" for me in range(8) for number in (0, 3)}
    assert not verify(store.inner, reader.timeline).differences


def test_what_a_waiting_entry_comes_to_precede_is_not_what_it_preceded_before(store: FaultyStorage) -> None:
    """One waits behind p, and is looked at by c; then another process takes p's version, so that b precedes that."""
    here = open_catalog(store)
    create(here, *"abcde", files=["p"])
    there = open_catalog(store.inner)
    other = staged(there, "a", add("a-1"), remove("q"), reads="e")
    stage(there, other, "c", remove("p"))
    stage(there, other, "d", remove("p"))
    first, b = staged(here, "d", remove("p")), staged(here, "b", reads="a")
    c, last = staged(here, "c", remove("p")), staged(here, "e", reads="b")
    futures: list[Future[Committed]] = []

    def has_waiting(entries: int) -> bool:
        return waiting(here.timeline) == entries

    def come() -> None:
        for tx in (b, c):
            more = waiting(here.timeline) + 1
            futures.append(pool.submit(here.commit, tx))
            until(partial(has_waiting, more))
        there.commit(other)

    with ThreadPoolExecutor(4) as pool:
        store.interrupt("put_if_absent", come, path=entry_path(here.timeline.head.version + 1))
        with pytest.raises(ConflictError):
            here.commit(first)
        landed = futures[0].result(PATIENCE_S)
        assert isinstance(futures[1].exception(PATIENCE_S), ConflictError)
    assert landed.entry is not None
    assert landed.entry.precedes == there.timeline.head.version == landed.version - 1
    with pytest.raises(ConflictError):  # other before last, last before b, b before other: no serial order
        here.commit(last)


def test_a_reader_whose_lost_commit_arrives_late_is_in_the_timeline_once(store: FaultyStorage) -> None:
    catalog = open_catalog(store)
    create(catalog, "a", files=["p"])
    tx = catalog.begin(record_reads=True)
    tx.read(tx.table(named("a")))
    path = entry_path(catalog.timeline.head.version + 1)
    store.go_down(path, landed=True)
    with pytest.raises(CommitUnknownError):
        catalog.commit(tx)
    store.heal()
    late = store.inner.get(path)
    assert late is not None
    store.inner.delete(path)  # it is still on its way when the second COMMIT looks for it

    class Arriving(Gate):  # asked as soon as everything has been looked at
        def wait(self, transaction: str) -> None:
            if store.inner.get(path) is None:
                store.inner.put(path, late or b"")
                catalog.timeline.refresh()
            super().wait(transaction)

    catalog.lake.gate = Arriving()
    catalog.commit(tx)
    ids = [entry.transaction.id for entry in catalog.timeline.entries(-1)]
    assert ids.count(tx.id) == 1


def test_who_is_interrupted_as_it_goes_alone_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C just behind the lock under which it became the one that goes."""

    class Interrupted(threading.Condition):
        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            super().__exit__(kind, error, trace)
            if not interrupted:
                interrupted.append(1)
                raise KeyboardInterrupt

    interrupted: list[int] = []
    gate = Gate()
    gate._changed = Interrupted()
    with pytest.raises(KeyboardInterrupt), gate.held_by("a"):
        pass
    monkeypatch.setattr("lockstep.lake.gate.HELD_SECONDS", 0.0)
    with gate.held_by("b"):
        assert gate._holder == "b"


def test_what_was_looked_at_and_never_put_is_not_taken_for_what_its_transaction_did_later(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    """The store refuses a group's file. One of its transactions goes on, and commits more, as the same version."""
    one, two, other = staged(catalog, "a"), staged(catalog, "b", reads="a"), staged(catalog, "a", remove("p"))
    store.fail("put_if_absent", path=entry_path(3), definite=True)
    refused = together(catalog, store, commits(catalog, one), commits(catalog, two))
    assert [type(error) for error in refused] == [UnavailableError, UnavailableError]
    stage(catalog, one, "a", remove("p"))
    assert catalog.commit(one).version == 3
    with pytest.raises(ConflictError):
        catalog.commit(other)
