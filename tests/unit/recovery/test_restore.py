"""RESTORE DATABASE, revert and diff, without Spark: what names mean again, and which logs Delta is to restore."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import ConflictError, DuplicateError, InvalidError, UndefinedError
from lockstep.recovery.changes import restore_to, revert
from lockstep.recovery.diff import diff
from lockstep.recovery.restore import Selection, TableRestore
from lockstep.timeline.database import Database
from lockstep.timeline.entry import ViewDefinition
from lockstep.transactions.transaction import Transaction
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, append, create, named, open_catalog, stage

ALL = Selection(everything=True)
ONE, TWO = ViewDefinition(text="SELECT 1", schema="{}"), ViewDefinition(text="SELECT 2", schema="{}")


def names_of(database: Database) -> tuple[object, ...]:
    """Return what a database version's names mean, but for the table versions, which Delta restores."""
    return (
        {name: (table.id, table.location) for name, table in database.tables.items()},
        {name: view.definition for name, view in database.views.items()},
        dict(database.namespaces),
    )


def run(catalog: TransactionalCatalog, *changes: Callable[[Transaction], object]) -> int:
    tx = catalog.begin()
    for change in changes:
        change(tx)
    return catalog.commit(tx).version


def namespace(name: str, **properties: str) -> Callable[[Transaction], object]:
    return lambda tx: tx.changing().create_namespace(tuple(name.split(".")), properties)


def view(name: str, definition: ViewDefinition = ONE) -> Callable[[Transaction], object]:
    return lambda tx: tx.changing().create_view(named(name), definition, replace=True)


def drop(name: str) -> Callable[[Transaction], object]:
    return lambda tx: tx.changing().drop_table(named(name))


def rename(name: str, new: str) -> Callable[[Transaction], object]:
    return lambda tx: tx.changing().rename_table(named(name), named(new))


HISTORIES: dict[str, list[Callable[[Transaction], object]]] = {
    "a table dropped": [drop("a")],
    "a table renamed": [rename("a", "c")],
    "a table renamed and its name given to another": [rename("a", "c"), rename("b", "a")],
    "two tables swapped": [rename("a", "x"), rename("b", "a"), rename("x", "b")],
    "a table dropped and its name given to another": [drop("a"), rename("b", "a")],
    "a view in the place of a table": [drop("a"), view("a")],
    "a view dropped": [lambda tx: tx.changing().drop_view(named("v"))],
    "a view replaced": [view("v", TWO)],
    "a table in the place of a view": [lambda tx: tx.changing().drop_view(named("v")), rename("b", "v")],
    "a namespace made": [namespace("new"), view("new.v")],
    "a namespace dropped with all in it": [lambda tx: tx.changing().drop_namespace(("s",), cascade=True)],
    "a namespace altered": [lambda tx: tx.changing().alter_namespace(("s",), {"owner": "eve"})],
    "a namespace moved": [
        namespace("s2"),
        rename("s.t", "s2.t"),
        lambda tx: tx.changing().drop_namespace(("s",), cascade=True),
    ],
    "everything dropped": [
        lambda tx: tx.changing().drop_namespace(("s",), cascade=True),
        drop("a"),
        drop("b"),
        lambda tx: tx.changing().drop_view(named("v")),
    ],
}


@pytest.fixture
def catalog(store: FaultyStorage) -> TransactionalCatalog:
    """A lake with the tables a, b and s.t, the view v, and the namespaces s and s.deep."""
    opened = open_catalog(store)
    create(opened, "a", "b", files=["p"])
    run(opened, namespace("s", owner="ada"), namespace("s.deep"), view("v"), view("s.deep.w"))
    create(opened, "s.t", files=["q"])
    return opened


@pytest.mark.parametrize("together", [True, False], ids=["one transaction", "one each"])
@pytest.mark.parametrize("changes", HISTORIES.values(), ids=HISTORIES)
def test_names_mean_what_they_meant(
    catalog: TransactionalCatalog, changes: list[Callable[[Transaction], object]], together: bool
) -> None:
    then = catalog.database()
    if together:
        run(catalog, *changes)
    else:
        for change in changes:
            run(catalog, change)
    assert names_of(catalog.database()) != names_of(then)
    tx = catalog.begin()
    assert restore_to(catalog.lake, tx, then, ALL) == []
    catalog.commit(tx)
    assert names_of(catalog.database()) == names_of(then)
    assert {name: t.version for name, t in catalog.database().tables.items()} == {
        name: t.version for name, t in then.tables.items()
    }


def test_nothing_to_do_is_nothing_done(catalog: TransactionalCatalog) -> None:
    tx = catalog.begin()
    assert restore_to(catalog.lake, tx, catalog.database(), ALL) == []
    assert catalog.commit(tx).entry is None


def test_logs_that_went_on_are_delta_s_to_restore(catalog: TransactionalCatalog) -> None:
    then = catalog.database()
    append(catalog, "a", "x")
    append(catalog, "s.t", "y")
    run(catalog, drop("a"))
    run(catalog, rename("s.t", "moved"))
    tx = catalog.begin()
    restores = restore_to(catalog.lake, tx, then, ALL)
    assert restores == [TableRestore(named("a"), 0), TableRestore(named("s.t"), 0)]
    assert tx.table(named("a")).version == 1  # as it was last: Delta goes on from there
    assert tx.table(named("s.t")).version == 1


def test_what_the_transaction_wrote_itself_goes_too(catalog: TransactionalCatalog) -> None:
    then = catalog.database()
    tx = catalog.begin()
    stage(catalog, tx, "b", add("mine"))
    assert restore_to(catalog.lake, tx, then, ALL) == [TableRestore(named("b"), 0)]


def test_a_table_that_was_not_there_goes(catalog: TransactionalCatalog) -> None:
    then = catalog.database()
    create(catalog, "later")
    tx = catalog.begin()
    restore_to(catalog.lake, tx, then, ALL)
    catalog.commit(tx)
    assert named("later") not in catalog.database().tables
    assert named("later") in catalog.timeline.at(then.version + 1).tables


def test_a_part_is_restored_and_the_rest_stays(catalog: TransactionalCatalog) -> None:
    then = catalog.database()
    run(catalog, drop("a"))
    run(catalog, drop("b"))
    run(catalog, rename("s.t", "s.u"))
    for selection, expected in (
        (Selection(names=frozenset({named("a")})), {"default.a", "s.u"}),
        (Selection(namespaces=frozenset({("s",)})), {"s.t"}),
        (Selection(names=frozenset({named("s.u"), named("b")})), {"default.b", "s.t"}),
    ):
        tx = catalog.begin()
        restore_to(catalog.lake, tx, then, selection)
        assert {str(name) for name in tx.tables} == expected
        catalog.rollback(tx)


def test_what_nobody_has_is_refused(catalog: TransactionalCatalog) -> None:
    then = catalog.database()
    tx = catalog.begin()
    with pytest.raises(UndefinedError, match=r"no table or view default\.nope"):
        restore_to(catalog.lake, tx, then, Selection(names=frozenset({named("nope")})))
    with pytest.raises(UndefinedError, match="no namespace nope"):
        restore_to(catalog.lake, tx, then, Selection(namespaces=frozenset({("nope",)})))


def test_a_name_that_another_has_refuses_the_whole(catalog: TransactionalCatalog) -> None:
    then = catalog.database()
    run(catalog, drop("a"))
    run(catalog, rename("b", "other"), namespace("s3"), rename("s.t", "a"))
    tx = catalog.begin()
    before = dict(tx.tables)
    with pytest.raises(DuplicateError, match=r"default\.a exists"):
        restore_to(catalog.lake, tx, then, Selection(ids=frozenset({then.tables[named("a")].id})))
    assert dict(tx.tables) == before
    assert catalog.commit(tx).entry is None


def test_another_that_used_what_was_restored_conflicts(store: FaultyStorage) -> None:
    one = open_catalog(store)
    create(one, "a", files=["p"])
    then = one.database()
    run(one, rename("a", "b"))
    other = open_catalog(store)
    tx = one.begin()
    restore_to(one.lake, tx, then, ALL)
    append(other, "b", "x")
    with pytest.raises(ConflictError, match="which this transaction renamed"):
        one.commit(tx)


def test_a_view_that_needs_no_restoring_was_looked_at_too(store: FaultyStorage) -> None:
    one = open_catalog(store)
    create(one, "a", files=["p"])
    run(one, view("v"))
    then = one.database()
    run(one, rename("a", "b"))
    other = open_catalog(store)
    tx, second = one.begin(), other.begin()
    restore_to(one.lake, tx, then, ALL)
    second.read(other.table(second, named("b")))  # by the name that is taken back
    second.changing().create_view(named("v"), TWO, replace=True)
    other.commit(second)
    with pytest.raises(ConflictError, match=r"replaced view default\.v, which this transaction read"):
        one.commit(tx)


# --- revert -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", HISTORIES.values(), ids=HISTORIES)
def test_a_revert_takes_back_one_transaction(
    catalog: TransactionalCatalog, changes: list[Callable[[Transaction], object]]
) -> None:
    then = catalog.database()
    version = run(catalog, *changes)
    create(catalog, "unrelated")
    tx = catalog.begin()
    assert revert(catalog.lake, tx, version) == []
    catalog.commit(tx)
    tables, views, namespaces = names_of(catalog.database())
    assert isinstance(tables, dict)
    del tables[named("unrelated")]
    assert (tables, views, namespaces) == names_of(then)


def test_a_write_is_reverted_by_its_log(catalog: TransactionalCatalog) -> None:
    version = append(catalog, "a", "x")
    append(catalog, "b", "y")
    tx = catalog.begin()
    assert revert(catalog.lake, tx, version) == [TableRestore(named("a"), 0)]


def test_what_others_built_upon_stays(catalog: TransactionalCatalog) -> None:
    version = append(catalog, "a", "x")
    later = append(catalog, "a", "y")
    tx = catalog.begin()
    with pytest.raises(InvalidError, match=rf"version {later} .* changed table default\.a after it"):
        revert(catalog.lake, tx, version)


@pytest.mark.parametrize("version", [0, 99, -1])
def test_nothing_to_revert(catalog: TransactionalCatalog, version: int) -> None:
    with pytest.raises(InvalidError):
        revert(catalog.lake, catalog.begin(), version)


# --- diff -------------------------------------------------------------------------------------------------------------


def changes(catalog: TransactionalCatalog, older: int, newer: int) -> list[tuple[str, str, str]]:
    return [(change.kind, change.name, change.change) for change in diff(catalog.timeline, older, newer)]


def test_a_diff_says_what_became_of_what(catalog: TransactionalCatalog) -> None:
    older = catalog.database().version
    append(catalog, "a", "x")
    append(catalog, "a", "y")
    run(catalog, rename("b", "c"), view("v", TWO), namespace("n"))
    create(catalog, "fleeting")
    newer = run(catalog, drop("fleeting"), drop("s.t"))
    assert changes(catalog, older, newer) == [
        ("namespace", "n", "created"),
        ("table", "default.a", "written"),
        ("table", "default.c", "renamed"),
        ("table", "s.t", "dropped"),
        ("view", "default.v", "altered"),
    ]
    [_, written, renamed, dropped, _] = diff(catalog.timeline, older, newer)
    assert (written.from_version, written.to_version, written.transactions) == (0, 2, 2)
    assert (written.counts.files_added, written.counts.rows_added) == (2, 2)
    assert renamed.old_name == "default.b"
    assert (dropped.from_version, dropped.to_version) == (0, None)


def test_a_version_differs_not_from_itself(catalog: TransactionalCatalog) -> None:
    head = catalog.database().version
    assert changes(catalog, head, head) == []
    with pytest.raises(InvalidError, match="name the older one first"):
        changes(catalog, head, head - 1)
    with pytest.raises(InvalidError, match="does not exist"):
        changes(catalog, head, head + 1)
