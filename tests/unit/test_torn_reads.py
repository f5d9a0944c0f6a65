"""A statement on its own that reads tables as they were at two times, by DataFrames of different ages or a cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import networkx as nx
import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import ConflictError
from lockstep.timeline.entry import Isolation, ViewDefinition
from lockstep.transactions.transaction import Transaction
from tests.support.lakes import add, append, create, foreign, named, remove, stage
from tests.unit.test_statement import catalog, of_row, scan, write  # noqa: F401

TORN = r"changed table default\.a, which this statement had read before, while it has read default\.b as it was after"


@pytest.fixture(autouse=True)
def sink(catalog: TransactionalCatalog) -> None:  # noqa: F811
    """Make the table c, which the statements write."""
    create(catalog, "c")


def change(catalog: TransactionalCatalog, *names: str, reads: str = "") -> None:  # noqa: F811
    tx = catalog.begin()
    for name in reads:
        tx.read(tx.table(named(name)))
    for name in names:
        stage(catalog, tx, name, add(f"{name}-{tx.id}"))
    catalog.commit(tx)


@pytest.mark.parametrize("cached", [False, True])
def test_half_of_a_transaction(catalog: TransactionalCatalog, cached: bool) -> None:  # noqa: F811
    """It moved something from a to b, and the statement would write a sum that never was."""
    change(catalog, "a", "b")
    old = replace(scan(catalog, "a"), cached=cached)
    with pytest.raises(ConflictError, match=TORN) as raised:
        write(catalog, "c", add("x"), scans=(old, scan(catalog, "b", version=1)))
    assert "UNCACHE TABLE" in str(raised.value)
    assert catalog.database([named("c")]).tables[named("c")].version == 0
    assert write(catalog, "c", add("x"), scans=(old, scan(catalog, "b"))).precedes == 4, "all of it before that"
    assert write(catalog, "c", add("y"), scans=(scan(catalog, "a", version=1), scan(catalog, "b", version=1))).reads


def test_at_snapshot_each_dataframe_may_have_its_own_version(catalog: TransactionalCatalog) -> None:  # noqa: F811
    change(catalog, "a", "b")
    scans = (scan(catalog, "a"), scan(catalog, "b", version=1))
    isolation: Isolation = "SNAPSHOT"
    assert write(catalog, "c", add("x"), scans=scans, isolation=isolation).precedes is None


def test_one_table_as_it_was_before_and_after(catalog: TransactionalCatalog) -> None:  # noqa: F811
    append(catalog, "a", "y")
    scans = (replace(scan(catalog, "a"), cached=True), scan(catalog, "a", version=1))
    with pytest.raises(ConflictError, match=r"while it has read default\.a as it was after that"):
        write(catalog, "c", add("x"), scans=scans)


def test_of_two_times_are_the_rows_that_each_scan_was_after(catalog: TransactionalCatalog) -> None:  # noqa: F811
    tx = catalog.begin()
    stage(catalog, tx, "a", of_row(5, "five"))
    catalog.commit(tx)
    old, new = scan(catalog, "a", "(id = 4)"), scan(catalog, "a", "(id = 5)", version=1)
    assert write(catalog, "c", add("x"), scans=(old, new)).reads, "there is no row 4, before or after"
    with pytest.raises(ConflictError, match="as it was after that"):
        write(catalog, "c", add("y"), scans=(replace(old, where="(id > 4)"), new))


@pytest.mark.parametrize("steps", [1, 2])
def test_what_was_made_of_a_change_that_it_did_not_see(catalog: TransactionalCatalog, steps: int) -> None:  # noqa: F811
    """The change of a comes before what was made of it, and the statement after that, and before the change."""
    create(catalog, "between")
    append(catalog, "a", "y")
    if steps == 2:
        change(catalog, "between", reads="a")
        tx = catalog.begin()
        tx.read(tx.table(named("between")))
        stage(catalog, tx, "b", add("z"))
        catalog.commit(tx)
    else:
        change(catalog, "b", reads="a")
    with pytest.raises(ConflictError, match=TORN):
        write(catalog, "c", add("x"), scans=(scan(catalog, "a"), scan(catalog, "b", version=1)))


def test_changes_that_have_nothing_to_do_with_one_another(catalog: TransactionalCatalog) -> None:  # noqa: F811
    """What was made of a before its change comes first, then what was made of that, the statement, and the change."""
    create(catalog, "between")
    begun = catalog.begin()
    begun.read(begun.table(named("a")))
    stage(catalog, begun, "between", add("z"))
    append(catalog, "a", "y")
    catalog.commit(begun)
    change(catalog, "b", reads="b")
    tx = catalog.begin()
    tx.read(tx.table(named("between")))
    stage(catalog, tx, "b", add("of that"))
    catalog.commit(tx)
    append(catalog, "b", "of its own")
    entry = write(catalog, "c", add("x"), scans=(scan(catalog, "a"), scan(catalog, "b", version=3)))
    assert entry.precedes == 5


def test_what_a_plain_writer_made_of_a_change(catalog: TransactionalCatalog) -> None:  # noqa: F811
    """It has read all of its own table, if it does not say that it appended alone."""
    change(catalog, "a", "b")
    foreign(catalog, "b", 2, remove("gone"), add("made of that"))
    catalog.database([named("b")])
    with pytest.raises(ConflictError, match=TORN):
        write(catalog, "c", add("x"), scans=(scan(catalog, "a"), scan(catalog, "b", version=2)))


def test_a_view_as_it_was_before_and_a_table_after(catalog: TransactionalCatalog) -> None:  # noqa: F811
    def define(text: str) -> int:
        tx = catalog.begin()
        tx.changing().create_view(named("v"), ViewDefinition(text=text, schema="{}"), replace=True)
        stage(catalog, tx, "b", add(f"b-{tx.id}"))
        return catalog.commit(tx).version

    defined = define("SELECT 1")
    define("SELECT 2")
    new = scan(catalog, "b", version=2)
    with pytest.raises(ConflictError, match=r"replaced view default\.v, which this statement had read before, while"):
        write(catalog, "c", add("x"), scans=(new,), views={named("v"): defined})
    assert write(catalog, "c", add("x"), scans=(new,), views={named("v"): defined + 1}).precedes is None
    assert write(catalog, "c", add("y"), scans=(replace(new, version=1),), views={named("v"): defined}).precedes


def test_what_comes_after_a_change_that_it_did_not_see_for_it_changed_what_that_had_read(
    catalog: TransactionalCatalog,  # noqa: F811
) -> None:
    """The change of a was made of the old b, and so comes before the new one, which the statement has seen."""
    change(catalog, "a", reads="b")
    append(catalog, "b", "y")
    with pytest.raises(ConflictError, match=TORN):
        write(catalog, "c", add("x"), scans=(scan(catalog, "a"), scan(catalog, "b", version=1)))


class History:
    """Transactions that were carried out at random, and which of them comes before which in every serial order."""

    def __init__(self, catalog: TransactionalCatalog, random: Random) -> None:  # noqa: F811
        self.order = nx.DiGraph()
        self.reads: dict[int, tuple[int, set[str]]] = {}
        self.writers: dict[str, list[int]] = {name: [] for name in "abc"}
        begun: list[tuple[Transaction, set[str], set[str]]] = []
        for _ in range(random.randint(2, 6)):
            tx, reads, writes = catalog.begin(), {*random.sample("abc", random.randint(0, 2))}, random.sample("abc", 2)
            for name in reads:
                tx.read(tx.table(named(name)))
            for name in writes[random.randint(0, 1) :]:
                stage(catalog, tx, name, add(f"{name}-{tx.id}"))
            begun.append((tx, reads, {*writes} & {str(table.name.table) for table in tx.written_tables()}))
            while begun and random.random() < 0.7:
                self._commit(catalog, *begun.pop(random.randrange(len(begun))))
        for version, (base, reads) in self.reads.items():
            for writer in {writer for name in reads for writer in self.writers[name]} - {version}:
                self.order.add_edge(*((writer, version) if writer <= base else (version, writer)))

    def _commit(
        self,
        catalog: TransactionalCatalog,  # noqa: F811
        tx: Transaction,
        reads: set[str],
        writes: set[str],
    ) -> None:
        try:
            version = catalog.commit(tx).version
        except ConflictError:
            return
        self.reads[version] = tx.base.version, reads
        for name in writes:
            self.writers[name].append(version)

    def has_room(self, scans: Sequence[tuple[str, int]]) -> bool:
        """Tell whether some order has a place for a statement that read these tables at these versions."""
        order = self.order.copy()
        for name, seen in scans:
            order.add_edges_from((writer, "statement") for writer in self.writers[name][:seen])
            order.add_edges_from(("statement", writer) for writer in self.writers[name][seen:])
        return nx.is_directed_acyclic_graph(order)


@pytest.mark.parametrize("seed", range(40))
def test_no_statement_commits_for_which_no_order_has_a_place(catalog: TransactionalCatalog, seed: int) -> None:  # noqa: F811
    random = Random(seed)
    create(catalog, "sink")
    history = History(catalog, random)
    scans = [(name, random.randint(0, len(history.writers[name]))) for name in random.choices("abc", k=3)]
    room = history.has_room(scans)
    try:
        write(catalog, "sink", add("x"), scans=tuple(scan(catalog, name, version=seen) for name, seen in scans))
    except ConflictError:
        return
    assert room, scans
