"""Savepoints: what ROLLBACK TO brings back, what it takes away, and what it leaves in the store."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.log import staging_folder
from lockstep.errors import FailedTransactionError, InvalidError, NoTransactionError, UnavailableError, UndefinedError
from lockstep.transactions.savepoint import MAX_SAVEPOINTS
from lockstep.transactions.transaction import Transaction
from tests.support.faulty import FaultyStorage, Operation
from tests.support.lakes import add, create, files, named, open_catalog, remove, stage, stage_new


@pytest.fixture
def catalog(store: FaultyStorage) -> TransactionalCatalog:
    """A lake with the tables a (file p) and b."""
    found = open_catalog(store)
    create(found, "a", files=["p"])
    create(found, "b")
    return found


def put(catalog: TransactionalCatalog, tx: Transaction, name: str, path: str) -> None:
    """Append a data file that is really there."""
    location = tx.table(named(name)).location
    catalog.lake.storage.put(f"{location}/{path}", b"rows")
    stage(catalog, tx, name, add(path))


def there(catalog: TransactionalCatalog, tx: Transaction, name: str, path: str) -> bool:
    return catalog.lake.storage.exists(f"{tx.table(named(name)).location}/{path}")


def appends(catalog: TransactionalCatalog, tx: Transaction, *paths: str, table: str = "a") -> int:
    for path in paths or ("y",):
        stage(catalog, tx, table, add(path))
    return len(paths)


Act = Callable[[TransactionalCatalog, Transaction], object]

ACTS: list[tuple[str, Act]] = [
    ("an append", lambda catalog, tx: stage(catalog, tx, "a", add("y"))),
    ("two appends", lambda catalog, tx: appends(catalog, tx, "y", "z")),
    ("another table", lambda catalog, tx: stage(catalog, tx, "b", add("y"))),
    ("a delete", lambda catalog, tx: stage(catalog, tx, "a", remove("p"), operation="DELETE")),
    ("a table made", lambda catalog, tx: stage_new(catalog, tx, "c")),
    ("a table made of two commits", lambda catalog, tx: (stage_new(catalog, tx, "c"), appends(catalog, tx, table="c"))),
    ("a table dropped", lambda _, tx: tx.changing().drop_table(named("a"))),
    ("a table renamed", lambda _, tx: tx.changing().rename_table(named("a"), named("d"))),
    ("a namespace", lambda _, tx: tx.changing().create_namespace(("s",), {})),
    ("a namespace altered", lambda _, tx: tx.changing().alter_namespace(("default",), {"k": "v"})),
    ("nothing", lambda *_: None),
]


@pytest.mark.parametrize("act", [act for _, act in ACTS], ids=[name for name, _ in ACTS])
@pytest.mark.parametrize("before", [False, True], ids=["first", "after an append"])
def test_what_is_undone_never_was(catalog: TransactionalCatalog, act: Act, before: bool) -> None:
    """The same transaction without what was undone commits the same."""
    tx = catalog.begin()
    if before:
        stage(catalog, tx, "a", add("x"))
    tx.savepoint("s")
    tables, namespaces = dict(tx.tables), dict(tx.namespaces)
    act(catalog, tx)
    catalog.rollback_to(tx, "s")
    assert (dict(tx.tables), dict(tx.namespaces)) == (tables, namespaces)
    assert tx.names.table_ddl(tx.id) == []
    assert tx.names.namespace_ddl() == []
    stage(catalog, tx, "a", add("w"))
    done = catalog.commit(tx)
    assert done.entry is not None
    assert [str(write.name) for write in done.entry.writes] == ["default.a"]
    assert (done.entry.tables, done.entry.namespaces) == ([], [])
    assert files(catalog, "a") == ({"p", "x", "w"} if before else {"p", "w"})


def test_files_of_undone_statements_go_and_others_stay(catalog: TransactionalCatalog) -> None:
    tx = catalog.begin()
    put(catalog, tx, "a", "kept")
    tx.savepoint("s")
    put(catalog, tx, "a", "undone")
    location = stage_new(catalog, tx, "c")
    catalog.rollback_to(tx, "s")
    assert there(catalog, tx, "a", "kept")
    assert not there(catalog, tx, "a", "undone")
    assert not catalog.lake.storage.list(f"{location}/_delta_log")
    catalog.rollback(tx)


def test_a_file_that_a_kept_statement_made_stays_when_its_removal_is_undone(catalog: TransactionalCatalog) -> None:
    tx = catalog.begin()
    put(catalog, tx, "a", "kept")
    tx.savepoint("s")
    stage(catalog, tx, "a", remove("kept"), operation="DELETE")
    catalog.rollback_to(tx, "s")
    assert there(catalog, tx, "a", "kept")
    catalog.commit(tx)
    assert files(catalog, "a") == {"p", "kept"}


def test_it_goes_on_under_other_uris_and_may_go_back_again(catalog: TransactionalCatalog) -> None:
    tx = catalog.begin()
    tx.savepoint("s")
    for epoch in (1, 2, 3):
        stage(catalog, tx, "a", add(f"x{epoch}"))
        catalog.rollback_to(tx, "S")
        assert tx.epoch == epoch
    assert catalog.commit(tx).entry is None


def test_names_hide_each_other_until_released(catalog: TransactionalCatalog) -> None:
    tx = catalog.begin()
    tx.savepoint("s")
    stage(catalog, tx, "a", add("x"))
    tx.savepoint("s")
    stage(catalog, tx, "a", add("y"))
    catalog.rollback_to(tx, "s")
    assert tx.staged[tx.table(named("a")).id] == [1]
    tx.release("s")
    catalog.rollback_to(tx, "s")
    assert tx.staged == {}


def test_going_back_and_releasing_take_the_later_savepoints(catalog: TransactionalCatalog) -> None:
    tx = catalog.begin()
    for name in ("one", "two", "three"):
        tx.savepoint(name)
    catalog.rollback_to(tx, "two")
    with pytest.raises(UndefinedError) as caught:
        tx.release("three")
    assert caught.value.sqlstate == "3B001"
    tx.release("one")
    with pytest.raises(UndefinedError):
        catalog.rollback_to(tx, "two")


def test_what_was_read_since_stays_read(catalog: TransactionalCatalog) -> None:
    """The user has seen it, and may have decided by it."""
    tx = catalog.begin()
    tx.savepoint("s")
    tx.read(tx.table(named("b")), "(id = 1)")
    catalog.rollback_to(tx, "s")
    assert [read.predicates for read in tx.reads()] == [["(id = 1)"]]


def test_a_transaction_that_failed_for_good_does_not_go_back(catalog: TransactionalCatalog) -> None:
    tx = catalog.begin()
    tx.savepoint("s")
    tx.failure = "an older transaction ended it"
    for refused in (lambda: catalog.rollback_to(tx, "s"), lambda: tx.savepoint("t"), lambda: tx.release("s")):
        with pytest.raises(FailedTransactionError, match="an older transaction"):
            refused()


def test_a_store_that_fails_half_way_fails_the_transaction(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    """What it could not take away would be seen again."""
    tx = catalog.begin()
    tx.savepoint("s")
    stage(catalog, tx, "a", add("x"))
    store.fail("delete", times=9)
    with pytest.raises(UnavailableError):
        catalog.rollback_to(tx, "s")
    store.heal()
    with pytest.raises(FailedTransactionError, match="could not undo everything"):
        catalog.commit(tx)
    assert files(catalog, "a") == {"p"}


@pytest.mark.parametrize("operation", ["list", "delete", "delete_folder"])
def test_who_is_interrupted_half_way_has_a_transaction_that_failed(
    catalog: TransactionalCatalog, store: FaultyStorage, operation: Operation
) -> None:
    """Ctrl-C leaves as much as a store that fails."""
    tx = catalog.begin()
    tx.savepoint("s")
    stage(catalog, tx, "a", add("x"))
    stage_new(catalog, tx, "c")

    def interrupt() -> None:
        raise KeyboardInterrupt

    store.interrupt(operation, interrupt)
    with pytest.raises(KeyboardInterrupt):
        catalog.rollback_to(tx, "s")
    with pytest.raises(FailedTransactionError, match="could not undo everything: KeyboardInterrupt"):
        stage(catalog, tx, "a", add("y"))
    catalog.rollback(tx)
    assert files(catalog, "a") == {"p"}


def test_commits_that_were_put_together_with_an_undone_one_are_seen_no_more(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    """Of a compacted log the last version counts, as for the overlay; a checkpoint of what is kept stays."""
    tx = catalog.begin()
    appends(catalog, tx, "w", "x")
    tx.savepoint("s")
    appends(catalog, tx, "y")
    folder = staging_folder(tx.table(named("a")).location, tx.id)
    kept = [f"{1:020d}.json", f"{1:020d}.{2:020d}.compacted.json", f"{2:020d}.checkpoint.parquet", f"{2:020d}.json"]
    for name in (*kept[1:3], f"{1:020d}.{3:020d}.compacted.json", f"{3:020d}.crc", "_last_checkpoint"):
        store.put(f"{folder}/{name}", b"")
    catalog.rollback_to(tx, "s")
    assert store.list(folder) == sorted(kept)


def test_an_ended_transaction_has_no_savepoints(catalog: TransactionalCatalog) -> None:
    tx = catalog.begin()
    tx.savepoint("s")
    catalog.rollback(tx)
    with pytest.raises(NoTransactionError):
        tx.savepoint("t")
    with pytest.raises(NoTransactionError):
        catalog.rollback_to(tx, "s")


def test_their_number_is_bounded(catalog: TransactionalCatalog) -> None:
    tx = catalog.begin()
    for number in range(MAX_SAVEPOINTS):
        tx.savepoint(f"s{number}")
    with pytest.raises(InvalidError, match="RELEASE some"):
        tx.savepoint("one more")
