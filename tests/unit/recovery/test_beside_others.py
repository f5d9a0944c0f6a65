"""Restore, undrop and revert beside plain Delta writers, other transactions, and what their own transaction did."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.log import commit_path
from lockstep.errors import ConflictError, DuplicateError, ForeignCommitError, InvalidError, UndefinedError
from lockstep.recovery.changes import restore_to, revert, undrop
from lockstep.recovery.dropped import dropped_tables
from lockstep.recovery.restore import Selection, TableRestore
from lockstep.timeline.entry import TagDdl, ViewDefinition
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, append, create, files, foreign, log_file, named, open_catalog, remove, stage

ALL = Selection(everything=True)
ONE = ViewDefinition(text="SELECT 1", schema="{}")


def run(catalog: TransactionalCatalog, change: Any) -> int:
    return catalog.run(lambda tx: change(tx.changing())).version


def drop(catalog: TransactionalCatalog, name: str = "a") -> int:
    return run(catalog, lambda names: names.drop_table(named(name)))


# --- names that something else has now --------------------------------------------------------------------------------


def test_revert_of_a_view_leaves_a_table_that_has_its_name_by_now(catalog: TransactionalCatalog) -> None:
    run(catalog, lambda names: names.create_view(named("v"), ONE, replace=False))
    version = run(catalog, lambda names: names.drop_view(named("v")))
    append(catalog, "a", "x")
    run(catalog, lambda names: names.rename_table(named("a"), named("v")))
    tx = catalog.begin()
    with pytest.raises(DuplicateError, match=r"table default\.v exists"):
        revert(catalog.lake, tx, version)
    assert files(catalog, "v") == {"p", "x"}


def test_revert_of_a_new_view_drops_no_table_of_its_name(catalog: TransactionalCatalog) -> None:
    version = run(catalog, lambda names: names.create_view(named("v"), ONE, replace=False))
    tx = catalog.begin()
    assert revert(catalog.lake, tx, version) == []
    assert (named("v") in tx.names.views, named("a") in tx.names.tables) == (False, True)


# --- plain Delta writers ----------------------------------------------------------------------------------------------


def test_revert_is_refused_where_a_plain_writer_came_after(catalog: TransactionalCatalog) -> None:
    version = append(catalog, "a", "x")
    foreign(catalog, "a", 2, add("f"))
    with pytest.raises(InvalidError, match=r"changed table default\.a after it"):
        revert(catalog.lake, catalog.begin(), version)


def test_restore_takes_back_what_a_plain_writer_did_that_nobody_has_seen(catalog: TransactionalCatalog) -> None:
    then = catalog.database()
    foreign(catalog, "a", 1, add("f"))
    tx = catalog.begin()
    assert restore_to(catalog.lake, tx, then, ALL) == [TableRestore(named("a"), 0)]
    stage(catalog, tx, "a", remove("f"), operation="RESTORE")
    catalog.commit(tx)
    assert files(catalog, "a") == {"p"}


def test_a_snapshot_that_restore_has_looked_at_moves_no_more(catalog: TransactionalCatalog) -> None:
    then = catalog.database()
    tx = catalog.begin()
    assert restore_to(catalog.lake, tx, then, ALL) == []
    foreign(catalog, "a", 1, add("f"))
    catalog.look(tx, [named("a")])
    assert tx.names.tables[named("a")].version == 0


def test_a_dropped_table_that_a_plain_writer_went_on_with_comes_back_first_and_is_restored_then(
    catalog: TransactionalCatalog,
) -> None:
    then = catalog.database()
    drop(catalog)
    gone = next(dropped_tables(catalog.timeline))
    location = then.tables[named("a")].location
    catalog.lake.storage.put(
        commit_path(location, 1), b'{"commitInfo":{}}\n{"remove":{"path":"p","dataChange":true}}\n'
    )
    with pytest.raises(InvalidError, match="UNDROP TABLE it in a transaction of its own"):
        restore_to(catalog.lake, catalog.begin(), then, ALL)
    tx = catalog.begin()
    undrop(catalog.lake, tx, named("a"), id=gone.id)
    catalog.commit(tx)
    assert catalog.database([named("a")]).tables[named("a")].version == 1
    assert restore_to(catalog.lake, catalog.begin(), then, ALL) == [TableRestore(named("a"), 0)]


def test_what_comes_back_and_is_written_behind_a_plain_writer_is_not_committed(catalog: TransactionalCatalog) -> None:
    foreign(catalog, "a", 1, remove("p"))
    drop(catalog)
    tx = catalog.begin()
    undrop(catalog.lake, tx, named("a"))
    stage(catalog, tx, "a", remove("p"), add("q"), operation="UPDATE")
    head = catalog.timeline.head.version
    with pytest.raises(ConflictError, match=r"plain Delta writer wrote version 1 of table default\.a"):
        catalog.commit(tx)
    assert catalog.database().version == head


def test_a_table_whose_commit_another_has_the_version_of_does_not_come_back(store: FaultyStorage) -> None:
    catalog = open_catalog(store)
    create(catalog, "a", files=["p"])
    store.interrupt("put_if_absent", lambda: foreign(catalog, "a", 1, remove("p")), path=log_file(catalog, "a", 1))
    tx = catalog.begin()
    stage(catalog, tx, "a", remove("p"), add("ours"))
    catalog.commit(tx)
    then = catalog.database()
    assert len(then.set_aside) == 1
    drop(catalog)
    with pytest.raises(ForeignCommitError, match="cannot come back"):
        undrop(catalog.lake, catalog.begin(), named("a"))
    with pytest.raises(ForeignCommitError, match="cannot come back"):
        restore_to(catalog.lake, catalog.begin(), then, ALL)


def test_revert_of_what_was_moved_is_refused(store: FaultyStorage) -> None:
    catalog = open_catalog(store)
    create(catalog, "a", files=["p"])
    store.interrupt("put_if_absent", lambda: foreign(catalog, "a", 1, add("f")), path=log_file(catalog, "a", 1))
    tx = catalog.begin()
    stage(catalog, tx, "a", add("ours"))
    catalog.commit(tx)
    version = catalog.database([named("a")]).version
    with pytest.raises(InvalidError, match="stands behind that"):
        revert(catalog.lake, catalog.begin(), version)


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("later", [(), ("x",)], ids=["nothing later", "an append later"])
def test_revert_of_what_a_plain_writer_came_before_does_not_take_that_back_too(
    store: FaultyStorage, later: tuple[str, ...], *, beside: bool
) -> None:
    """The table's log has his commit between what was there before and ours, which was ratified first."""
    catalog = open_catalog(store)
    create(catalog, "a", files=["p"])
    store.interrupt("put_if_absent", lambda: foreign(catalog, "a", 1, add("f")), path=log_file(catalog, "a", 1))
    tx = catalog.begin()
    stage(catalog, tx, "a", add("ours"))
    version = catalog.commit(tx).version
    for path in later:
        append(catalog, "a", path)
    assert files(catalog, "a") == {"p", "f", "ours", *later}
    with pytest.raises(InvalidError, match=r"a plain Delta writer changed table default\.a, .* lose both"):
        revert(catalog.lake, catalog.begin(), version, beside=beside)


def test_what_comes_behind_a_commit_that_was_moved_is_reverted(store: FaultyStorage) -> None:
    """A plain writer came before both; what the table was between the two it was with what he did."""
    catalog = open_catalog(store)
    create(catalog, "a", files=["p"])
    store.interrupt("put_if_absent", lambda: foreign(catalog, "a", 1, add("f")), path=log_file(catalog, "a", 1))
    tx = catalog.begin()
    stage(catalog, tx, "a", add("ours"))
    catalog.commit(tx)
    version = append(catalog, "a", "x")
    assert revert(catalog.lake, catalog.begin(), version) == [TableRestore(named("a"), 2)]


# --- what the transaction itself did ----------------------------------------------------------------------------------


def test_what_the_transaction_dropped_itself_is_no_dropped_table(catalog: TransactionalCatalog) -> None:
    then = catalog.database()
    drop(catalog)
    create(catalog, "a", files=["new"])
    tx = catalog.begin()
    tx.changing().drop_table(named("a"))
    with pytest.raises(InvalidError, match="by this transaction itself"):
        undrop(catalog.lake, tx, named("a"))
    newer = catalog.database()
    with pytest.raises(InvalidError, match="by this transaction itself"):
        restore_to(catalog.lake, tx, newer, ALL)
    undrop(catalog.lake, tx, named("a"), id=then.tables[named("a")].id)
    catalog.commit(tx)
    assert files(catalog, "a") == {"p"}


def test_revert_keeps_its_hands_off_what_the_transaction_changed(catalog: TransactionalCatalog) -> None:
    version = append(catalog, "a", "x")
    tx = catalog.begin()
    stage(catalog, tx, "a", add("mine"))
    with pytest.raises(InvalidError, match=r"this transaction itself changed default\.a"):
        revert(catalog.lake, tx, version)
    tx = catalog.begin()
    tx.changing().rename_table(named("a"), named("c"))
    with pytest.raises(InvalidError, match=r"this transaction itself changed default\.c"):
        revert(catalog.lake, tx, version)
    view = run(catalog, lambda names: names.create_view(named("v"), ONE, replace=False))
    tx = catalog.begin()
    tx.changing().drop_view(named("v"))
    with pytest.raises(InvalidError, match=r"this transaction itself changed default\.v"):
        revert(catalog.lake, tx, view)


def test_a_transaction_takes_a_tag_for_what_it_says_itself_and_else_its_snapshot(store: FaultyStorage) -> None:
    catalog, other = open_catalog(store), open_catalog(store)
    create(catalog, "a", files=["p"])
    first = catalog.database().version
    run(catalog, lambda names: names.create_tag(TagDdl(action="create", name="t", version=first)))
    second = append(catalog, "a", "x")
    tx = catalog.begin()

    def meant() -> int:
        return catalog.as_of("t", at_most=tx.base.version, names=tx.names).version

    def moved(names: Any) -> None:
        names.drop_tag("t")
        names.create_tag(TagDdl(action="create", name="t", version=0))

    run(other, moved)
    assert (meant(), catalog.as_of("t").version) == (first, 0)
    tx.changing().drop_tag("t")
    with pytest.raises(UndefinedError):
        meant()
    tx.changing().create_tag(TagDdl(action="create", name="t", version=second))
    assert meant() == second
    tx.changing().create_tag(TagDdl(action="create", name="own"))
    with pytest.raises(InvalidError, match="going to commit"):
        catalog.as_of("own", names=tx.names)


def test_reading_an_old_version_makes_no_new_one(catalog: TransactionalCatalog) -> None:
    then = catalog.database().version
    append(catalog, "a", "x")
    tx = catalog.begin(read_only=True, record_reads=True, as_of=then)
    tx.touch(catalog.table(tx, named("a")))
    assert catalog.commit(tx).entry is None
