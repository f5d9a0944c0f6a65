"""Views at COMMIT: what is stored and read back, which two conflict, and at SERIALIZABLE what was used."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import ConflictError, DuplicateError
from lockstep.storage import open_storage
from lockstep.timeline.entry import Isolation, View
from lockstep.timeline.log import Timeline
from lockstep.transactions.transaction import Transaction
from tests.support.lakes import add, append, create, named, open_catalog, stage, stage_new
from tests.support.views import FULL, do


@pytest.fixture
def catalog(tmp_path: Path) -> TransactionalCatalog:
    """A lake with the tables a and b, and the view v."""
    catalog = open_catalog(open_storage(str(tmp_path), create=True))
    create(catalog, "a", "b")
    catalog.run(lambda tx: tx.changing().create_view(named("v"), FULL, replace=False), "CREATE VIEW v")
    return catalog


@pytest.fixture
def other(catalog: TransactionalCatalog) -> TransactionalCatalog:
    """The same lake, as another process has it."""
    return open_catalog(catalog.lake.storage)


def test_a_view_is_read_back_from_the_stored_timeline(
    catalog: TransactionalCatalog, other: TransactionalCatalog
) -> None:
    assert dict(other.database().views) == {named("v"): View(name=named("v"), definition=FULL, since=2)}
    catalog.run(lambda tx: do(tx, "v>w w=2 +x=1"))
    found = Timeline.open(catalog.lake.storage)
    assert {str(n): (v.definition.text, v.since) for n, v in found.head.views.items()} == {
        "default.w": ("2", 3),
        "default.x": ("1", 3),
    }
    assert found.at(2).views[named("v")].definition == FULL, "older versions have it as it was"
    assert dict(found.at(1).views) == {}
    [entry] = found.entries(2, 3)
    assert [(ddl.action, str(ddl.name)) for ddl in entry.views] == [
        ("drop", "default.v"),
        ("create", "default.w"),
        ("create", "default.x"),
    ]


def test_a_transaction_sees_its_snapshots_views(catalog: TransactionalCatalog, other: TransactionalCatalog) -> None:
    tx = catalog.begin()
    other.run(lambda tx: do(tx, "v=2 +x=1"))
    assert dict(tx.views) == {named("v"): View(name=named("v"), definition=FULL, since=2)}
    assert set(catalog.begin().views) == {named("v"), named("x")}


def test_views_and_tables_commit_together_or_not_at_all(
    catalog: TransactionalCatalog, other: TransactionalCatalog
) -> None:
    tx = catalog.begin()
    stage_new(catalog, tx, "c", add("x"))
    do(tx, "+over_c=1")
    assert named("over_c") not in other.database().views
    catalog.rollback(tx)
    assert set(other.database().views) == {named("v")}
    tx = catalog.begin()
    stage_new(catalog, tx, "c", add("x"))
    do(tx, "+over_c=1")
    done = catalog.commit(tx)
    database = other.database()
    assert database.views[named("over_c")].since == done.version
    assert named("c") in database.tables


def test_what_changes_nothing_makes_no_entry(catalog: TransactionalCatalog) -> None:
    assert catalog.run(lambda tx: tx.changing().create_view(named("v"), FULL, replace=True)).entry is None


RACES: list[tuple[str, str, str]] = [
    ("+x=1", "+x=2", "gave a view the name default.x"),
    ("+x=1", "+x=1", "gave a view the name default.x"),
    ("v=2", "v=3", "replaced view default.v"),
    ("v=2", "-v", "dropped view default.v"),
    ("-v", "v=2", "replaced view default.v"),
    ("-v", "-v", "dropped view default.v"),
    ("v>x", "v=2", "replaced view default.v"),
    ("+x!", "+x=1", "gave a view the name default.x"),
    ("+x=1", "+x!", "gave a table the name default.x"),
]


@pytest.mark.parametrize(("ours", "theirs", "says_"), RACES, ids=[f"{o} behind {t}" for o, t, _ in RACES])
@pytest.mark.parametrize("isolation", ["SNAPSHOT", "SERIALIZABLE"])
def test_of_two_the_first_to_commit_wins(
    catalog: TransactionalCatalog, ours: str, theirs: str, says_: str, isolation: Isolation
) -> None:
    other = open_catalog(catalog.lake.storage)
    tx = catalog.begin(isolation=isolation)
    change(catalog, tx, ours)
    winner = other.begin(isolation=isolation)
    change(other, winner, theirs)
    other.commit(winner)
    before = other.database()
    with pytest.raises(ConflictError, match=says_):
        catalog.commit(tx)
    assert catalog.database() == before


def change(catalog: TransactionalCatalog, tx: Transaction, word: str) -> None:
    if word.endswith("!"):
        stage_new(catalog, tx, word[1:-1])
    else:
        do(tx, word)


def test_a_view_beside_another_goes_behind_it(catalog: TransactionalCatalog, other: TransactionalCatalog) -> None:
    tx = catalog.begin()
    do(tx, "+x=1")
    other.run(lambda tx: do(tx, "+y=1 v=2"))
    append(other, "a", "p")
    assert catalog.commit(tx).version == 5
    assert set(other.database().views) == {named("v"), named("x"), named("y")}


@pytest.mark.parametrize(
    ("isolation", "reads", "refused"),
    [
        pytest.param("SERIALIZABLE", True, True, id="serializable"),
        pytest.param("SERIALIZABLE", False, False, id="the view is not used"),
        pytest.param("SNAPSHOT", True, False, id="snapshot"),
    ],
)
@pytest.mark.parametrize("replaces", ["ours", "theirs"])
def test_write_skew_over_a_view(
    catalog: TransactionalCatalog, isolation: Isolation, reads: bool, refused: bool, replaces: str
) -> None:
    """One uses v and writes b, the other reads b and replaces v: neither saw the other, so no order explains both."""
    other = open_catalog(catalog.lake.storage)
    mine, theirs = catalog.begin(isolation=isolation), other.begin(isolation=isolation)
    at, tx = (other, theirs) if replaces == "ours" else (catalog, mine)
    if reads:
        tx.read_view(named("v"))
    stage(at, tx, "b", add("p"))
    replacing = mine if replaces == "ours" else theirs
    replacing.read(replacing.table(named("b")))
    do(replacing, "v=2")
    other.commit(theirs)
    if refused:
        with pytest.raises(ConflictError, match="no order of these transactions gives the same"):
            catalog.commit(mine)
    else:
        catalog.commit(mine)


def test_who_used_a_view_is_in_the_entry(catalog: TransactionalCatalog, other: TransactionalCatalog) -> None:
    tx = catalog.begin()
    tx.read_view(named("v"))
    stage(catalog, tx, "b", add("p"))
    done = catalog.commit(tx)
    other.database()
    [stored] = other.timeline.entries(done.version - 1)
    assert stored.view_reads == [named("v")]
    assert other.lake.past.of(stored).view_reads == frozenset({named("v")})


def test_a_recorded_reader_of_a_view_alone_makes_an_entry(catalog: TransactionalCatalog) -> None:
    for record, version in ((False, 2), (True, 3)):
        tx = catalog.begin(record_reads=record)
        tx.read_view(named("v"))
        assert catalog.commit(tx).version == version


def test_a_table_on_its_own_does_not_take_a_views_name(
    catalog: TransactionalCatalog, other: TransactionalCatalog
) -> None:
    creation = catalog.reserve(named("x"))
    other.run(lambda tx: do(tx, "+x=1"))
    with pytest.raises(DuplicateError, match=r"view default\.x exists"):
        catalog.write(creation.location, 0, "", creation=creation)
    with pytest.raises(DuplicateError, match=r"view default\.v exists"):
        catalog.reserve(named("v"))
