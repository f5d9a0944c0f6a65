"""What a statement on its own read from other tables: which changes it did not see, and when that is a conflict."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from lockstep.catalog import TransactionalCatalog
from lockstep.commit.scans import NO_VIEWS, Scan
from lockstep.delta.actions import Action, render
from lockstep.delta.pruning.row_sets import EVERY_ROW, NO_ROW
from lockstep.errors import ConflictError, UnsupportedError
from lockstep.storage import open_storage
from lockstep.timeline.entry import Entry, Isolation, Name, ViewDefinition
from tests.support.lakes import add, append, create, foreign, lay, metadata, named, open_catalog, remove, stage


@pytest.fixture
def catalog(tmp_path: Path) -> TransactionalCatalog:
    """A lake with the tables a and b, each at table version 0 of database version 1 (a) or 2 (b)."""
    found = open_catalog(open_storage(str(tmp_path), create=True))
    create(found, "a")
    create(found, "b")
    return found


def scan(catalog: TransactionalCatalog, name: str, where: str | None = None, version: int | None = 0) -> Scan:
    return Scan(catalog.timeline.head.tables[named(name)].id, version, where)


def write(
    catalog: TransactionalCatalog,
    name: str,
    *actions: Action,
    scans: tuple[Scan, ...] = (),
    views: Mapping[Name, int] = NO_VIEWS,
    isolation: Isolation | None = None,
    read: int | None = None,
    operation: str = "WRITE",
) -> Entry:
    """Do what the log store asks for: the next version of a table, by a statement that read these."""
    table = catalog.database([named(name)]).tables[named(name)]
    info: dict[str, Any] = {"operation": operation, "readVersion": table.version if read is None else read}
    content = render([{"commitInfo": info}, *actions]).decode()
    lay(catalog.lake.storage, table.location, actions)
    done = catalog.write(table.location, table.version + 1, content, scans=scans, views=views, isolation=isolation)
    entry = getattr(done, "entry", None)
    assert isinstance(entry, Entry)
    return entry


def transaction(catalog: TransactionalCatalog, reads: str, writes: str) -> int:
    tx = catalog.begin()
    tx.read(tx.table(named(reads)))
    stage(catalog, tx, writes, add(f"of-{tx.id}"))
    return catalog.commit(tx).version


def test_what_it_read_is_in_its_entry(catalog: TransactionalCatalog) -> None:
    scans = (scan(catalog, "b", "(id = 1)"), scan(catalog, "b", "(id = 2)"), scan(catalog, "a"))
    entry = write(catalog, "a", add("x"), scans=scans)
    reads = [(str(read.name), read.version, read.predicates) for read in entry.reads]
    assert reads == [("default.a", 0, None), ("default.b", 0, ["(id = 1)", "(id = 2)"])]
    assert (entry.transaction.isolation, entry.precedes) == ("SERIALIZABLE", None)


def test_a_change_that_it_did_not_see_is_noted(catalog: TransactionalCatalog) -> None:
    """It came first, so to say; no harm is done, for nobody between read what it writes."""
    append(catalog, "b", "y")
    entry = write(catalog, "a", add("x"), scans=(scan(catalog, "b"),))
    assert (entry.precedes, entry.transaction.base_version) == (3, 2)


def test_write_skew_between_a_statement_and_a_transaction(catalog: TransactionalCatalog) -> None:
    transaction(catalog, reads="a", writes="b")
    with pytest.raises(ConflictError, match=r"changed table default\.b, which this transaction read, and read what"):
        write(catalog, "a", add("x"), scans=(scan(catalog, "b"),))
    assert catalog.database([named("a")]).tables[named("a")].version == 0
    assert write(catalog, "a", add("x"), scans=(scan(catalog, "b", version=1),)).version == 4, "read again, it commits"


def redefine_and_read(catalog: TransactionalCatalog, reads: str) -> int:
    """Commit a transaction that reads a table and replaces the view v."""
    tx = catalog.begin()
    tx.read(tx.table(named(reads)))
    tx.changing().create_view(named("v"), ViewDefinition(text=f"SELECT * FROM {reads}", schema="{}"), replace=True)
    return catalog.commit(tx).version


def test_write_skew_through_the_definition_of_a_view(catalog: TransactionalCatalog) -> None:
    """The statement used what the view said before, and wrote what its new author had read."""
    defined = redefine_and_read(catalog, reads="b")
    redefine_and_read(catalog, reads="a")
    with pytest.raises(ConflictError, match=r"replaced view default\.v, which this transaction read, and read what"):
        write(catalog, "a", add("x"), views={named("v"): defined})
    assert catalog.database([named("a")]).tables[named("a")].version == 0
    entry = write(catalog, "b", add("x"), views={named("v"): defined})
    assert (entry.precedes, entry.view_reads) == (defined + 1, [named("v")]), "before the other, that did not read b"
    assert write(catalog, "a", add("x"), views={named("v"): defined + 1}).precedes is None


def test_a_transaction_is_judged_against_the_views_that_a_statement_used(catalog: TransactionalCatalog) -> None:
    defined = redefine_and_read(catalog, reads="b")
    tx = catalog.begin()
    tx.read(tx.table(named("a")))
    tx.changing().create_view(named("v"), ViewDefinition(text="SELECT 2", schema="{}"), replace=True)
    write(catalog, "a", add("x"), views={named("v"): defined})
    with pytest.raises(ConflictError):
        catalog.commit(tx)


def test_write_skew_between_two_statements(catalog: TransactionalCatalog) -> None:
    of_a, of_b = scan(catalog, "a"), scan(catalog, "b")
    write(catalog, "b", add("y"), scans=(of_a,))
    with pytest.raises(ConflictError):
        write(catalog, "a", add("x"), scans=(of_b,))


def test_a_transaction_is_judged_against_what_a_statement_read(catalog: TransactionalCatalog) -> None:
    tx = catalog.begin()
    tx.read(tx.table(named("b")))
    stage(catalog, tx, "a", add("x"))
    write(catalog, "b", add("y"), scans=(scan(catalog, "a"),))
    with pytest.raises(ConflictError):
        catalog.commit(tx)


def test_at_snapshot_write_skew_is_possible(catalog: TransactionalCatalog) -> None:
    transaction(catalog, reads="a", writes="b")
    assert write(catalog, "a", add("x"), scans=(scan(catalog, "b"),), isolation="SNAPSHOT").precedes is None


@pytest.mark.parametrize("isolation", ["SNAPSHOT", "SERIALIZABLE"])
@pytest.mark.parametrize("reads_its_own", [False, True])
def test_its_own_table_is_not_read_newer_than_the_others(
    catalog: TransactionalCatalog, isolation: Isolation, reads_its_own: bool
) -> None:
    """One transaction changed both; the statement saw b before that, and a, where Delta reads the newest, after it."""
    tx = catalog.begin()
    for name in "ab":
        stage(catalog, tx, name, add(f"both-{name}"))
    catalog.commit(tx)
    scans = (scan(catalog, "b"), *([scan(catalog, "a", version=1)] if reads_its_own else []))
    if not reads_its_own:
        assert write(catalog, "a", add("x"), scans=scans, isolation=isolation).version == 4
        return
    with pytest.raises(ConflictError, match="which this statement had read before, while its own table is read after"):
        write(catalog, "a", remove("both-a"), scans=scans, isolation=isolation)
    assert write(catalog, "a", remove("both-a"), scans=scans[1:], isolation=isolation).version == 4


@pytest.mark.parametrize(
    ("actions", "known"),
    [
        pytest.param([add("x")], True, id="rows that came"),
        pytest.param([remove("p"), add("x")], False, id="rows that went, of nobody knows what condition"),
    ],
)
@pytest.mark.parametrize("operation", ["WRITE", "DELETE"])
def test_who_wrote_has_read_the_columns_and_who_removed_maybe_any_row(
    catalog: TransactionalCatalog, actions: list[Action], known: bool, operation: str
) -> None:
    entry = write(catalog, "a", *actions, operation=operation)
    [id_] = [each.id for each in entry.writes]
    assert catalog.lake.past.of(entry).reads == {id_: NO_ROW if known else EVERY_ROW}


def of_row(id_: int, path: str) -> Action:
    """A file with one row."""
    values = {"id": id_}
    return add(
        path, stats=json.dumps({"numRecords": 1, "minValues": values, "maxValues": values, "nullCount": {"id": 0}})
    )


LOOKS = [("DELETE", True), ("UPDATE", True), ("MERGE", True), ("WRITE", False), ("REPLACE TABLE AS SELECT", False)]
"""Whether a statement removes only rows that it looked for, by its operation: not so INSERT OVERWRITE."""


@pytest.mark.parametrize(("operation", "looks"), LOOKS)
def test_write_skew_with_a_statement_that_overwrites_rows_it_did_not_look_for(
    catalog: TransactionalCatalog, operation: str, looks: bool
) -> None:
    """The statement reads the row 4 of a, and all of b, and keeps the row 4 alone; ours has read the row 5."""
    tx = catalog.begin()
    stage(catalog, tx, "a", of_row(4, "four"), of_row(5, "five"))
    catalog.commit(tx)
    ours = catalog.begin()
    ours.read(ours.table(named("a")), "(id = 5)")
    stage(catalog, ours, "b", add("y"))
    scans = (scan(catalog, "a", "(id = 4)", version=1), scan(catalog, "b"))
    gone = [remove("four"), *([] if looks else [remove("five")])]
    entry = write(catalog, "a", *gone, of_row(4, "new"), scans=scans, operation=operation)
    assert [read.predicates for read in entry.reads] == [["(id = 4)"] if looks else None, None]
    if looks:
        assert catalog.commit(ours).entry is not None
        return
    with pytest.raises(ConflictError, match="no order of these transactions"):
        catalog.commit(ours)


def test_an_overwrite_of_an_older_lockstep_has_read_any_row_whatever_its_entry_says(
    catalog: TransactionalCatalog,
) -> None:
    entry = write(catalog, "a", remove("p"), of_row(4, "x"), scans=(scan(catalog, "a"),))
    [read] = entry.reads
    older = structs.replace(entry, reads=[structs.replace(read, predicates=["(id = 4)"])])
    assert catalog.lake.past.of(older).reads == {read.id: EVERY_ROW}


def test_an_overwrite_that_read_nothing_has_replaced_what_it_found(catalog: TransactionalCatalog) -> None:
    """Who read the old rows comes before it, and who adds rows, which are not gone, after it: nobody can do both."""
    ours = catalog.begin()
    ours.read(ours.table(named("a")), "(id = 5)")
    stage(catalog, ours, "a", of_row(5, "y"))
    assert [read.version for read in write(catalog, "a", remove("p"), add("x")).reads] == [0]
    with pytest.raises(ConflictError, match="no order of these transactions"):
        catalog.commit(ours)


@pytest.mark.parametrize(("operation", "looks"), LOOKS)
@pytest.mark.parametrize("more", [False, True], ids=["alone", "beside another statement"])
def test_an_overwrite_in_a_transaction_has_read_any_row(
    catalog: TransactionalCatalog, operation: str, looks: bool, more: bool
) -> None:
    tx = catalog.begin()
    tx.read(tx.table(named("a")), "(id = 4)")
    stage(catalog, tx, "a", remove("p"), operation=operation)
    if more:
        stage(catalog, tx, "a", add("x"))
    entry = catalog.commit(tx).entry
    assert entry is not None
    assert [read.predicates for read in entry.reads] == [["(id = 4)"] if looks else None]
    [read] = entry.reads
    assert catalog.lake.past.of(entry).reads == {read.id: frozenset({"(id = 4)"}) if looks else EVERY_ROW}


CHANGES: list[tuple[str, Callable[[TransactionalCatalog], object], int | None]] = [
    ("nothing", lambda _: None, None),
    ("another table", lambda catalog: append(catalog, "a", "z"), None),
    ("an append", lambda catalog: append(catalog, "b", "y"), 3),
    ("a plain writer's append", lambda catalog: plain(catalog, add("y")), 3),
    ("rearranged files", lambda catalog: plain(catalog, add("y", dataChange=False)), None),
    ("a column", lambda catalog: plain(catalog, metadata("c")), 3),
    ("a property", lambda catalog: plain(catalog, metadata(k="v")), None),
    ("dropped", lambda catalog: catalog.run(lambda tx: tx.changing().drop_table(named("b"))), 3),
    ("renamed", lambda catalog: catalog.run(lambda tx: tx.changing().rename_table(named("b"), named("c"))), None),
]


def plain(catalog: TransactionalCatalog, *actions: Action) -> None:
    foreign(catalog, "b", 1, *actions, isBlindAppend=True)
    catalog.database([named("b")])


@pytest.mark.parametrize(("change", "precedes"), [c[1:] for c in CHANGES], ids=[c[0] for c in CHANGES])
def test_what_counts_as_a_change(
    catalog: TransactionalCatalog, change: Callable[[TransactionalCatalog], object], precedes: int | None
) -> None:
    """A renamed table is the same table: its rows, which the statement read by id, did not change."""
    of_b = scan(catalog, "b")
    change(catalog)
    assert write(catalog, "a", add("x"), scans=(of_b,)).precedes == precedes


@pytest.mark.parametrize("version", [1, None])
def test_what_was_seen_or_is_of_no_known_version_is_no_missed_change(
    catalog: TransactionalCatalog, version: int | None
) -> None:
    append(catalog, "b", "y")
    assert write(catalog, "a", add("x"), scans=(scan(catalog, "b", version=version),)).precedes is None


def test_conditions_count(catalog: TransactionalCatalog) -> None:
    stats = '{"numRecords":1,"minValues":{"id":6},"maxValues":{"id":9},"nullCount":{"id":0}}'
    tx = catalog.begin()
    tx.read(tx.table(named("a")))
    stage(catalog, tx, "b", add("y", stats=stats))
    catalog.commit(tx)
    assert write(catalog, "a", add("x"), scans=(scan(catalog, "b", "(id = 5)"),)).precedes is None
    with pytest.raises(ConflictError):
        write(catalog, "a", add("z"), scans=(scan(catalog, "b", "(id = 7)"),))


def test_what_it_read_of_its_own_table_in_a_cache_is_judged(catalog: TransactionalCatalog) -> None:
    """Delta looks at what is read from files: it has not seen that the cache is older than the table."""
    cached = replace(scan(catalog, "a"), cached=True)
    transaction(catalog, reads="a", writes="a")
    with pytest.raises(ConflictError, match="no order of these transactions"):
        write(catalog, "a", add("x"), scans=(cached,))
    assert write(catalog, "a", add("x"), scans=(scan(catalog, "a"),)).version == 4


def test_a_cache_does_not_bound_what_it_removes(catalog: TransactionalCatalog) -> None:
    """MERGE INTO a USING b and the cached row 4 of a: it removes the row 5, which the winner has read."""
    first = catalog.begin()
    stage(catalog, first, "a", of_row(4, "four"), of_row(5, "five"))
    catalog.commit(first)
    winner = catalog.begin()
    winner.read(winner.table(named("a")), "(id = 5)")
    stage(catalog, winner, "b", add("y"))
    catalog.commit(winner)
    cached = replace(scan(catalog, "a", "(id = 4)", version=1), cached=True)
    scans = (cached, scan(catalog, "a", "(id = 5)", version=1), scan(catalog, "b"))
    with pytest.raises(ConflictError, match="no order of these transactions"):
        write(catalog, "a", remove("five"), scans=scans, operation="MERGE")


def test_a_cache_of_unknown_age_is_refused(catalog: TransactionalCatalog) -> None:
    cached = replace(scan(catalog, "b", version=None), cached=True)
    with pytest.raises(UnsupportedError, match=r"table default\.b from a cache"):
        write(catalog, "a", add("x"), scans=(cached,))
    assert write(catalog, "a", add("x"), scans=(cached,), isolation="SNAPSHOT").reads
