"""Which database version a transaction reads: BEGIN's, or a later one that it cannot tell from that."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.log import commit_path
from lockstep.errors import ConflictError, CorruptTimelineError, UnavailableError
from lockstep.lake.snapshots import of_statement
from lockstep.timeline.entry import Batch
from lockstep.transactions.transaction import Transaction
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, append, create, files, foreign, location, named, open_catalog, remove, stage
from tests.support.queueing import PATIENCE_S, until
from tests.support.together import Together


def version(catalog: TransactionalCatalog, tx: Transaction, name: str) -> int:
    return catalog.table(tx, named(name)).version


@pytest.mark.parametrize("tables", [1, 10, 100])
def test_begin_is_one_request_however_many_tables_there_are(store: FaultyStorage, tables: int) -> None:
    catalog = open_catalog(store)
    create(catalog, *(f"t{n}" for n in range(tables)))
    for n in range(tables):
        foreign(catalog, f"t{n}", 1, add("f"))
    store.calls.clear()
    tx = catalog.begin()
    assert len(store.calls) == 1
    catalog.rollback(tx)
    assert len(store.calls) == 1, "and its end costs nothing, if it did nothing"


@pytest.mark.parametrize("tables", [1, 10, 100])
def test_the_first_use_of_young_tables_is_two_requests_each_side_by_side(store: FaultyStorage, tables: int) -> None:
    made = open_catalog(store)
    names = [named(f"t{n}") for n in range(tables)]
    create(made, *(name.table for name in names))
    together = Together(store.inner, 2 * tables)
    catalog = open_catalog(together)
    tx = catalog.begin()
    together.expect()
    catalog.look(tx, names)
    assert together.met == [2 * tables], "of each table the log is listed and its newest commit read, and none waits"
    catalog.look(tx, names)
    assert together.met == [2 * tables], "once a transaction"


def test_what_a_plain_writer_did_before_begin_is_seen(catalog: TransactionalCatalog) -> None:
    foreign(catalog, "a", 1, add("f"))
    tx = catalog.begin()
    assert tx.base.tables[named("a")].version == 0, "nobody has looked"
    assert version(catalog, tx, "a") == 1
    assert version(catalog, tx, "b") == 0
    stage(catalog, tx, "a", remove("f"))
    catalog.commit(tx)
    assert files(catalog, "a") == {"p"}


def test_what_it_did_after_the_first_use_is_not(catalog: TransactionalCatalog) -> None:
    tx = catalog.begin()
    assert version(catalog, tx, "a") == 0
    foreign(catalog, "a", 1, add("f"))
    assert version(catalog, tx, "a") == 0
    catalog.database([named("a")])  # another statement takes it in
    assert version(catalog, tx, "a") == 0


def test_what_another_session_took_in_after_begin_is_seen(catalog: TransactionalCatalog) -> None:
    foreign(catalog, "a", 1, add("f"))
    tx = catalog.begin()
    catalog.database([named("a")])
    append(catalog, "b", "x")
    assert version(catalog, tx, "a") == 1
    assert version(catalog, tx, "b") == 0, "no more of what others committed than it takes"


def test_a_snapshot_stays_where_something_seen_has_changed(catalog: TransactionalCatalog) -> None:
    foreign(catalog, "a", 1, add("f"))
    tx = catalog.begin()
    assert version(catalog, tx, "b") == 0
    append(catalog, "b", "x")
    assert version(catalog, tx, "a") == 0, "the two would be of different times"
    tx.read(catalog.table(tx, named("b")))
    stage(catalog, tx, "a", remove("p"))
    with pytest.raises(ConflictError):
        catalog.commit(tx)


def test_a_name_that_none_had_stays_so(catalog: TransactionalCatalog) -> None:
    tx = catalog.begin()
    tx.see(named("c"))
    assert named("c") not in tx.names.tables
    create(catalog, "c")
    foreign(catalog, "a", 1, add("f"))
    assert version(catalog, tx, "a") == 0
    assert named("c") not in tx.names.tables


def test_a_list_of_names_stays_as_it_was(catalog: TransactionalCatalog) -> None:
    tx = catalog.begin()
    names = set(tx.tables)
    create(catalog, "c")
    foreign(catalog, "a", 1, add("f"))
    assert version(catalog, tx, "a") == 0
    assert set(tx.tables) == names


def test_a_transaction_that_made_tables_sees_a_plain_writers_commit(catalog: TransactionalCatalog) -> None:
    """What it made, renamed and dropped itself stays, in its savepoints, too."""
    foreign(catalog, "a", 1, add("f"))
    tx = catalog.begin()
    tx.changing().create_namespace(("s",), {})
    tx.savepoint("one")
    tx.changing().rename_table(named("a"), named("s.a"))
    tx.changing().drop_table(named("b"))
    assert version(catalog, tx, "s.a") == 1
    assert set(map(str, tx.tables)) == {"s.a"}
    catalog.rollback_to(tx, "one")
    assert {str(name): table.version for name, table in tx.tables.items()} == {"default.a": 1, "default.b": 0}
    assert tx.base.version == catalog.timeline.head.version == tx.names.base.version
    stage(catalog, tx, "a", remove("f"))
    catalog.commit(tx)
    assert files(catalog, "a") == {"p"}


def test_a_transaction_that_made_tables_does_not_see_others(catalog: TransactionalCatalog) -> None:
    foreign(catalog, "a", 1, add("f"))
    tx = catalog.begin()
    tx.changing().create_namespace(("s",), {})
    create(catalog, "c")
    assert version(catalog, tx, "a") == 0
    assert set(map(str, tx.tables)) == {"default.a", "default.b"}


def test_a_batch_that_was_done_meanwhile_is_not_passed(catalog: TransactionalCatalog) -> None:
    """Else the transaction would turn into a replay in the middle of it."""
    tx = catalog.begin(batch=Batch(application="orders", number=1))
    first = catalog.begin(batch=Batch(application="orders", number=1))
    stage(catalog, first, "b", add("x"))
    catalog.commit(first)
    foreign(catalog, "a", 1, add("f"))
    assert version(catalog, tx, "a") == 0
    assert not tx.is_replay


def test_a_snapshot_stays_while_nobody_knows_whether_it_committed(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "b", add("x"))
    tx.in_doubt = 2
    foreign(catalog, "a", 1, add("f"))
    catalog.look(tx, [named("a")])
    assert tx.base.version == 1


def test_a_table_that_nobody_can_look_at_is_told_and_tried_again(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    foreign(catalog, "a", 1, add("f"))
    tx = catalog.begin()
    store.fail("list", path=f"{location(catalog, 'a')}/_delta_log")
    with pytest.raises(UnavailableError):
        catalog.table(tx, named("a"))
    assert version(catalog, tx, "b") == 0
    assert version(catalog, tx, "a") == 1


def test_a_table_that_was_dropped_meanwhile_is_the_snapshots(catalog: TransactionalCatalog) -> None:
    tx = catalog.begin()
    foreign(catalog, "a", 1, add("f"))
    catalog.run(lambda other: other.changing().drop_table(named("a")))
    assert version(catalog, tx, "a") == 0


def test_a_table_set_aside_stays_so_for_the_transaction(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    """When it is mended it may be at another version than the snapshot says."""
    store.fail("put_if_absent", path=f"{location(catalog, 'a')}/_delta_log/{1:020d}.json", times=9)
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    catalog.commit(tx)
    late = catalog.begin()
    store.heal()
    foreign(catalog, "b", 1, add("f"))
    assert version(catalog, late, "b") == 1
    with pytest.raises((UnavailableError, CorruptTimelineError), match="begin again"):
        catalog.table(late, named("a"))


def test_what_is_about_to_be_published_is_not_taken_for_lost(
    store: FaultyStorage, caplog: pytest.LogCaptureFixture
) -> None:
    """A statement that began before meets a table whose new version another thread has ratified just now."""
    catalog = open_catalog(store)
    create(catalog, "a", files=["p"])
    pin = catalog.database().version
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    reader = ThreadPoolExecutor(1)
    reading: list[Future[object]] = []

    def come() -> None:
        asked = len(store.calls)
        reading.append(reader.submit(of_statement, catalog.lake, [named("a")], pin, []))
        until(lambda: reading[0].done() or len(store.calls) > asked)

    store.interrupt("put_if_absent", come, path=commit_path(location(catalog, "a"), 1))
    with caplog.at_level(logging.WARNING), reader:
        catalog.commit(tx)
        reading[0].result(PATIENCE_S)
    assert not caplog.messages
