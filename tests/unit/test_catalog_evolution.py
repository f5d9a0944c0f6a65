"""A change of metadata or protocol beside rows, in transactions and by plain writers: both land, with their effect."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.conflict.writes import Changes
from lockstep.delta.actions import Action
from lockstep.delta.log import checksum_path, read_checksum, state_at
from lockstep.errors import ConflictError
from lockstep.storage import Storage, open_storage
from lockstep.timeline.entry import Isolation
from lockstep.transactions.transaction import Transaction
from tests.support.lakes import (
    CONSTRAINT,
    add,
    create,
    foreign,
    metadata,
    named,
    open_catalog,
    remove,
    replay,
    stage,
)

FEATURE: Action = {"protocol": {
    "minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly", "invariants", "checkConstraints"],
}}  # fmt: skip
ROW_TRACKING: Action = {"protocol": {
    "minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly", "invariants", "rowTracking"],
}}  # fmt: skip
IDENTITY = {"delta.identity.start": 1, "delta.identity.step": 1}


def identity(mark: int) -> Action:
    """Metadata with an identity column, of which ids up to the mark are given out."""
    body = metadata("n")["metaData"]
    schema = json.loads(body["schemaString"])
    schema["fields"][1]["metadata"] = {**IDENTITY, "delta.identity.highWaterMark": mark}
    return {"metaData": {**body, "schemaString": json.dumps(schema)}}


@pytest.fixture
def store(tmp_path: Path) -> Storage:
    return open_storage(str(tmp_path / "lake"), create=True)


@pytest.fixture
def catalog(store: Storage) -> TransactionalCatalog:
    """A lake with the table a, of one file p."""
    catalog = open_catalog(store)
    create(catalog, "a", files=["p"])
    return catalog


@pytest.fixture
def other(catalog: TransactionalCatalog, store: Storage) -> TransactionalCatalog:
    return open_catalog(store)


def location(catalog: TransactionalCatalog) -> str:
    return catalog.database().tables[named("a")].location


def columns(body: Any) -> list[str]:
    return [field["name"] for field in json.loads(body["schemaString"])["fields"]]


ROWS = {"an append": [add("x")], "an update": [remove("p"), add("x")]}
CHANGES = {"a property": metadata(k="v"), "a column": metadata("c"), "a feature": FEATURE}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("rows_first", [True, False], ids=["rows first", "rows second"])
@pytest.mark.parametrize("checksums", [True, False], ids=["with checksums", "without"])
def test_both_land_and_both_are_there(  # noqa: PLR0917 (pytest calls it by name)
    catalog: TransactionalCatalog,
    other: TransactionalCatalog,
    store: Storage,
    rows: list[Action],
    change: Action,
    rows_first: bool,
    checksums: bool,
) -> None:
    if not checksums:
        store.delete(checksum_path(location(catalog), 0))
    first, second = (rows, [change]) if rows_first else ([change], rows)
    late, early = catalog.begin(), other.begin()
    stage(catalog, late, "a", *second)
    stage(other, early, "a", *first)
    other.commit(early)
    assert catalog.commit(late).version == 3
    assert replay(store, location(catalog), 2) == ({"p", "x"} if len(rows) == 1 else {"x"})
    state = state_at(store, location(catalog), 2)
    assert state is not None
    said = change.get("metaData")
    assert state.metadata == (said or metadata()["metaData"])
    assert state.protocol == change.get("protocol", {"minReaderVersion": 1, "minWriterVersion": 2})
    assert (read_checksum(store, location(catalog), 2) is not None) is checksums


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(CONSTRAINT, id="a constraint"),
        pytest.param(ROW_TRACKING, id="row tracking"),
        pytest.param(metadata(**{"delta.appendOnly": "true"}), id="append-only"),
    ],
)
@pytest.mark.parametrize("rows_first", [True, False], ids=["rows first", "rows second"])
def test_what_matters_to_rows_does_not_land_beside_them(
    catalog: TransactionalCatalog, other: TransactionalCatalog, change: Action, rows_first: bool
) -> None:
    late, early = catalog.begin(isolation="SNAPSHOT"), other.begin(isolation="SNAPSHOT")
    stage(catalog, late, "a", *([change] if rows_first else [add("x")]))
    stage(other, early, "a", *([add("x")] if rows_first else [change]))
    other.commit(early)
    with pytest.raises(ConflictError, match=r"(of|wrote) table default\.a"):
        catalog.commit(late)


def test_ids_are_given_out_once(catalog: TransactionalCatalog, other: TransactionalCatalog, store: Storage) -> None:
    """Rows without ids land beside marks, in either order; two appends that gave out ids collide."""
    catalog.run(lambda tx: stage(catalog, tx, "a", identity(1)))
    for mark, ids_first in ((2, True), (3, False)):
        late, early = catalog.begin(), other.begin()
        both = [add(f"i{mark}"), identity(mark)], [add(f"x{mark}")]
        stage(other, early, "a", *both[0 if ids_first else 1])
        stage(catalog, late, "a", *both[1 if ids_first else 0])
        other.commit(early)
        catalog.commit(late)
    last = catalog.database().tables[named("a")].version
    assert replay(store, location(catalog), last) == {"p", "i2", "x2", "i3", "x3"}
    state = state_at(store, location(catalog), last)
    assert state is not None
    assert state.metadata == identity(3)["metaData"]

    late, early = catalog.begin(), other.begin()
    stage(other, early, "a", add("i4"), identity(4))
    stage(catalog, late, "a", add("j4"), identity(4))
    other.commit(early)
    with pytest.raises(ConflictError, match="changed the schema or properties of table"):
        catalog.commit(late)


def test_a_plain_writers_change_is_judged_by_what_it_is(catalog: TransactionalCatalog, store: Storage) -> None:
    """Two foreign commits are one entry: what each of them changed counts."""
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    foreign(catalog, "a", 1, metadata(k="v"), isBlindAppend=True)
    foreign(catalog, "a", 2, metadata("c", k="v"), isBlindAppend=True)
    assert catalog.commit(tx).version == 3
    state = state_at(store, location(catalog), 3)
    assert state is not None
    assert columns(state.metadata) == ["id", "c"]

    tx = catalog.begin()
    stage(catalog, tx, "a", add("y"))
    foreign(catalog, "a", 4, CONSTRAINT, isBlindAppend=True)
    foreign(catalog, "a", 5, metadata("c", k="v"), isBlindAppend=True)
    with pytest.raises(ConflictError, match="changed the schema or properties"):
        catalog.commit(tx)


Act = Callable[[TransactionalCatalog, Transaction], None]


def reads_and_adds_a_column(catalog: TransactionalCatalog, tx: Transaction) -> None:
    tx.read(tx.table(named("a")))
    stage(catalog, tx, "a", metadata("c"))


def adds_a_row(catalog: TransactionalCatalog, tx: Transaction) -> None:
    stage(catalog, tx, "a", add("x"))


@pytest.mark.parametrize(
    ("isolation", "mine", "theirs"),
    [
        pytest.param("SERIALIZABLE", reads_and_adds_a_column, adds_a_row, id="the row first"),
        pytest.param("SERIALIZABLE", adds_a_row, reads_and_adds_a_column, id="the column first"),
    ],
)
def test_columns_count_as_read_by_who_writes(
    catalog: TransactionalCatalog, other: TransactionalCatalog, isolation: Isolation, mine: Act, theirs: Act
) -> None:
    """The one did not see the row, the other not the column: neither can come first."""
    late, early = catalog.begin(isolation=isolation), other.begin(isolation=isolation)
    mine(catalog, late)
    theirs(other, early)
    other.commit(early)
    with pytest.raises(ConflictError, match="no order of these transactions gives the same"):
        catalog.commit(late)


def test_where_the_table_before_is_not_known_any_change_matters(
    catalog: TransactionalCatalog, other: TransactionalCatalog, store: Storage
) -> None:
    late, early = catalog.begin(), other.begin()
    stage(catalog, late, "a", add("x"))
    stage(other, early, "a", metadata(k="v"))
    other.commit(early)
    for path in (checksum_path(location(catalog), 0), f"{location(catalog)}/_delta_log/{0:020d}.json"):
        store.delete(path)
    with pytest.raises(ConflictError, match="changed the schema or properties"):
        catalog.commit(late)


def test_what_a_transaction_sees_of_its_own_writes_is_known(catalog: TransactionalCatalog) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", metadata("c"))
    entry = catalog.commit(tx).entry
    assert entry is not None
    found: Changes = catalog.lake.past.of(entry)
    assert [touched.metadata for touched in found.writes.values()] == [frozenset({"properties", "columns"})]
