"""UNDROP TABLE: a dropped table comes back as it was last."""

from __future__ import annotations

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import render
from lockstep.delta.log import commit_path
from lockstep.errors import ConflictError, DuplicateError, InvalidError, UndefinedError
from lockstep.recovery.changes import undrop
from lockstep.recovery.dropped import dropped_tables
from lockstep.timeline.entry import TAG_FORMAT
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, append, create, files, named, open_catalog, stage


def drop(catalog: TransactionalCatalog, name: str = "a") -> int:
    return catalog.run(lambda tx: tx.changing().drop_table(named(name))).version


def bring_back(catalog: TransactionalCatalog, name: str = "a", id: str | None = None) -> int:
    tx = catalog.begin()
    undrop(catalog.lake, tx, named(name), id=id)
    return catalog.commit(tx).version


def test_it_is_as_it_was(catalog: TransactionalCatalog) -> None:
    append(catalog, "a", "q")
    before = catalog.database().tables[named("a")]
    drop(catalog)
    version = bring_back(catalog)
    after = catalog.database().tables[named("a")]
    assert (after.id, after.location, after.version, after.since) == (
        before.id,
        before.location,
        before.version,
        version,
    )
    assert files(catalog, "a") == {"p", "q"}
    [entry] = catalog.timeline.entries(version - 1, version)
    assert (entry.format, entry.writes) == (TAG_FORMAT, [])
    append(catalog, "a", "r")
    assert files(catalog, "a") == {"p", "q", "r"}


def test_it_may_be_written_in_the_same_transaction(catalog: TransactionalCatalog) -> None:
    drop(catalog)
    tx = catalog.begin()
    undrop(catalog.lake, tx, named("a"))
    stage(catalog, tx, "a", add("q"))
    catalog.commit(tx)
    assert files(catalog, "a") == {"p", "q"}
    assert catalog.database().tables[named("a")].version == 1


def test_a_rollback_leaves_it_dropped(catalog: TransactionalCatalog) -> None:
    drop(catalog)
    tx = catalog.begin()
    undrop(catalog.lake, tx, named("a"))
    stage(catalog, tx, "a", add("q"))
    catalog.rollback(tx)
    assert named("a") not in catalog.database().tables
    bring_back(catalog)
    assert files(catalog, "a") == {"p"}


def test_of_several_of_a_name_the_last_one_or_the_one_with_the_id(catalog: TransactionalCatalog) -> None:
    first = catalog.database().tables[named("a")].id
    drop(catalog)
    create(catalog, "a", files=["second"])
    drop(catalog)
    assert [table.name for table in dropped_tables(catalog.timeline)] == [named("a")] * 2
    bring_back(catalog)
    assert files(catalog, "a") == {"second"}
    with pytest.raises(DuplicateError, match=r"table default\.a exists"):
        bring_back(catalog, id=first)
    bring_back(catalog, "old_a", id=first)
    assert files(catalog, "old_a") == {"p"}
    assert not list(dropped_tables(catalog.timeline))


def test_a_renamed_table_comes_back_under_its_last_name(catalog: TransactionalCatalog) -> None:
    catalog.run(lambda tx: tx.changing().rename_table(named("a"), named("c")))
    drop(catalog, "c")
    with pytest.raises(UndefinedError, match=r"no dropped table default\.a"):
        bring_back(catalog, "a")
    bring_back(catalog, "c")
    assert files(catalog, "c") == {"p"}


def test_what_is_there_or_never_was_cannot_come_back(catalog: TransactionalCatalog) -> None:
    there = catalog.database().tables[named("a")].id
    with pytest.raises(UndefinedError, match="SHOW TABLES DROPPED"):
        bring_back(catalog, "a")
    with pytest.raises(UndefinedError, match=there):
        bring_back(catalog, "c", id=there)
    tx = catalog.begin()
    tx.changing().drop_table(named("a"))
    with pytest.raises(InvalidError, match="by this transaction itself"):
        undrop(catalog.lake, tx, named("a"))  # it is not dropped yet


def test_its_own_drop_of_what_came_back_is_final_until_the_end(catalog: TransactionalCatalog) -> None:
    drop(catalog)
    tx = catalog.begin()
    undrop(catalog.lake, tx, named("a"))
    tx.changing().drop_table(named("a"))
    with pytest.raises(InvalidError, match="dropped by this transaction itself"):
        undrop(catalog.lake, tx, named("a"))
    assert catalog.commit(tx).entry is None


def test_two_that_bring_back_one_table_conflict(store: FaultyStorage) -> None:
    one = open_catalog(store)
    create(one, "a")
    drop(one)
    other = open_catalog(store)
    tx = one.begin()
    undrop(one.lake, tx, named("a"))
    [gone] = dropped_tables(other.timeline)
    bring_back(other, "b", id=gone.id)
    with pytest.raises(ConflictError, match="created table"):
        one.commit(tx)


def test_who_comes_second_is_told_of_the_first_and_not_of_a_plain_writer(store: FaultyStorage) -> None:
    """The first one wrote it, too, and published that: to the second the table was in nobody's database version."""
    first = open_catalog(store)
    create(first, "a")
    drop(first)
    second = open_catalog(store)
    begun = []
    for catalog, new in ((first, "p"), (second, "q")):
        tx = catalog.begin()
        undrop(catalog.lake, tx, named("a"))
        tx.changing().rename_table(named("a"), named(new))
        stage(catalog, tx, new, add(new))
        begun.append(tx)
    winner = first.commit(begun[0])
    with pytest.raises(ConflictError, match=rf"database version {winner.version}\) created table default.p"):
        second.commit(begun[1])


def test_the_namespace_must_be_there(catalog: TransactionalCatalog) -> None:
    catalog.run(lambda tx: tx.changing().create_namespace(("s",), {}))
    create(catalog, "s.t")
    catalog.run(lambda tx: tx.changing().drop_namespace(("s",), cascade=True))
    with pytest.raises(UndefinedError) as error:
        bring_back(catalog, "s.t")
    assert error.value.sqlstate == "3F000"


def test_what_plain_writers_did_meanwhile_is_found(catalog: TransactionalCatalog) -> None:
    """Who knows the folder may write the table while no database version has it."""
    table = catalog.database().tables[named("a")]
    drop(catalog)
    actions = [{"commitInfo": {"operation": "WRITE", "engineInfo": "plain"}}, add("stray")]
    catalog.lake.storage.put(commit_path(table.location, 1), render(actions))
    bring_back(catalog)
    assert catalog.database([named("a")]).tables[named("a")].version == 1
    assert files(catalog, "a") == {"p", "stray"}
