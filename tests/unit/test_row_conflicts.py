"""COMMIT by row: two transactions take rows out of one data file, and what an independent reader then finds."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyroaring import BitMap64

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import Action, bodies
from lockstep.delta.combine.deletion_vectors import MAX_VECTOR_BYTES, Descriptor, decode, file_name, serialize
from lockstep.delta.log import read_published
from lockstep.errors import ConflictError, CorruptTimelineError, ForeignCommitError, UnavailableError
from lockstep.timeline.files import entry_path
from lockstep.transactions.state import State
from lockstep.transactions.transaction import Transaction
from tests.support.faulty import FaultyStorage
from tests.support.lakes import (
    CONSTRAINT,
    add,
    append,
    foreign,
    location,
    metadata,
    named,
    open_catalog,
    remove,
    stage,
    stage_new,
)
from tests.support.vectors import inline, stored

ALL = set(range(10))
PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["deletionVectors"],
}


@pytest.fixture
def catalog(store: FaultyStorage) -> TransactionalCatalog:
    """A lake with the table t, at table version 0, of one Parquet file p: ten rows, whose ids are their positions."""
    catalog = open_catalog(store)
    tx = catalog.begin()
    enabled = metadata(**{"delta.enableDeletionVectors": "true"})
    location = stage_new(catalog, tx, "t", {"protocol": PROTOCOL}, enabled, data_file("p", P, 10))
    store.put(f"{location}/p", P)
    catalog.commit(tx)
    return catalog


def parquet(*rows: int) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array(rows, pa.int64())}), out)
    return out.getvalue()


P, NEW = parquet(*range(10)), parquet(100)


def data_file(path: str, content: bytes, rows: int, **more: Any) -> Action:
    return add(path, **{"size": len(content), "stats": json.dumps({"numRecords": rows}), **more})


def p_with(descriptor: Descriptor | None, before: Descriptor | None = None, **more: Any) -> list[Action]:
    """What Delta writes to give the file p another deletion vector."""
    old = {"deletionVector": before} if before else {}
    return [data_file("p", P, 10, deletionVector=descriptor, **more), remove("p", **{**old, "size": len(P), **more})]


def vector(*rows: int) -> Descriptor | None:
    return inline(serialize(BitMap64(rows)), len(rows)) if rows else None


def takes(after: Iterable[int], before: Iterable[int] = (), **more: Any) -> list[Action]:
    """What Delta writes to take rows out of the file p, from which those `before` are out already."""
    return p_with(vector(*before, *after), vector(*before), **more)


def begins(catalog: TransactionalCatalog, *actions: Action, operation: str = "DELETE") -> Transaction:
    """Begin a transaction that staged one statement's commit of t."""
    tx = catalog.begin(isolation="SNAPSHOT")
    stage(catalog, tx, "t", *actions, operation=operation)
    return tx


def published(catalog: TransactionalCatalog) -> list[Action]:
    """The newest commit of t."""
    return read_published(catalog.lake.storage, location(catalog, "t"), catalog.database().tables[named("t")].version)


def ids(catalog: TransactionalCatalog) -> set[int]:
    """What a reader with nothing of ours makes of the table: delta-rs, in DataFusion."""
    table = DeltaTable(catalog.lake.storage.url.removeprefix("file://") + "/" + location(catalog, "t"))
    return set(pa.table(QueryBuilder().register("t", table).execute("SELECT id FROM t").read_all())["id"].to_pylist())


def vector_files(catalog: TransactionalCatalog) -> list[str]:
    return [name for name in catalog.lake.storage.list(location(catalog, "t")) if name.startswith("deletion_vector_")]


def gone(catalog: TransactionalCatalog, descriptor: Descriptor) -> set[int]:
    """Return the rows that a vector of t takes out."""
    storage = catalog.lake.storage
    return set(decode(descriptor, storage.get, location=location(catalog, "t"), root=storage.url))


# --- both commit ------------------------------------------------------------------------------------------------------


def test_different_rows_of_one_file_both_go(catalog: TransactionalCatalog, other: TransactionalCatalog) -> None:
    first, second = begins(catalog, *takes([1, 2])), begins(other, *takes([5]))
    catalog.commit(first)
    done = other.commit(second)
    assert ids(catalog) == ALL - {1, 2, 5}
    [removed], [added] = bodies(published(other), "remove"), bodies(published(other), "add")
    assert removed["deletionVector"] == vector(1, 2)
    assert added["deletionVector"]["storageType"] == "u"
    assert gone(other, added["deletionVector"]) == {1, 2, 5}
    assert json.loads(added["stats"]) == {"numRecords": 10, "tightBounds": False}
    assert done.entry is not None
    [write] = done.entry.writes
    assert (write.counts.rows_removed, write.counts.files_added, write.counts.files_removed) == (1, 0, 0)


def test_an_update_keeps_its_new_rows(
    catalog: TransactionalCatalog, other: TransactionalCatalog, store: FaultyStorage
) -> None:
    tx = begins(catalog, *takes([0]), data_file("new", NEW, 1), operation="UPDATE")
    store.put(f"{location(catalog, 't')}/new", NEW)
    other.commit(begins(other, *takes([9])))
    catalog.commit(tx)
    assert ids(other) == (ALL - {0, 9}) | {100}


def test_any_number_of_winners_of_one_file(catalog: TransactionalCatalog, other: TransactionalCatalog) -> None:
    catalog.commit(begins(catalog, *takes([0])))
    tx = begins(catalog, *takes([1], [0]))
    other.commit(begins(other, *takes([2], [0])))
    append(other, "t", "q")
    foreign(other, "t", 4, *takes([3], [0, 2]))
    catalog.commit(tx)
    [added] = bodies(published(catalog), "add")
    assert gone(catalog, added["deletionVector"]) == {0, 1, 2, 3}


def test_a_race_lost_at_the_last_moment_is_merged_anew(
    catalog: TransactionalCatalog, other: TransactionalCatalog, store: FaultyStorage
) -> None:
    """Each attempt starts from what was staged, never from what the last one made of it."""
    tx = begins(catalog, *takes([0]))
    other.commit(begins(other, *takes([1])))
    late = begins(other, *takes([2], [1]))
    store.interrupt("put_if_absent", lambda: other.commit(late), path=entry_path(3))
    assert catalog.commit(tx).version == 4
    assert ids(catalog) == ALL - {0, 1, 2}
    assert bodies(published(catalog), "remove")[0]["deletionVector"] == vector(1, 2)


def test_statements_with_change_files_stay_versions_of_their_own(
    catalog: TransactionalCatalog, other: TransactionalCatalog
) -> None:
    """With the change data feed on, UPDATE says itself which rows it changed; what it says stays true."""
    change: Action = {"cdc": {"path": "_change_data/c", "size": 1}}
    tx = begins(catalog, *takes([0]), change, operation="UPDATE")
    stage(catalog, tx, "t", *takes([1], [0]), operation="DELETE")
    other.commit(begins(other, *takes([5])))
    catalog.commit(tx)
    last = catalog.database().tables[named("t")].version
    first, second = (read_published(catalog.lake.storage, location(catalog, "t"), v) for v in (last - 1, last))
    steps = [
        file["deletionVector"] for commit in (first, second) for k in ("remove", "add") for file in bodies(commit, k)
    ]
    assert [gone(catalog, step) for step in steps] == [{5}, {0, 5}, {0, 5}, {0, 1, 5}]
    assert steps[1] == steps[2], "what one version has the next one takes away"
    assert bodies(first, "cdc") == [change["cdc"]]
    assert ids(catalog) == ALL - {0, 1, 5}


# --- what conflicts ---------------------------------------------------------------------------------------------------

HUGE = {**(vector(5) or {}), "sizeInBytes": MAX_VECTOR_BYTES + 1}
ELSEWHERE = {"storageType": "p", "pathOrInlineDv": "s3://b/dv.bin", "offset": 1, "sizeInBytes": 36, "cardinality": 1}


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        pytest.param(takes([1]), "deleted or updated 1 of the same rows of file p of table default.t", id="same row"),
        pytest.param(takes([2, 1]), "deleted or updated 1 of the same rows", id="one row of two"),
        pytest.param([remove("p")], "changed file p", id="file removed"),
        pytest.param([remove("p"), add("c", dataChange=False)], "changed file p", id="file rewritten"),
        pytest.param([add("p", dataChange=False)], "changed file p", id="statistics written"),
        pytest.param(takes([5], dataChange=False), "changed file p", id="no data change"),
        pytest.param(p_with(HUGE), "changed file p", id="vector too large to read"),
        pytest.param(p_with(ELSEWHERE), "changed file p", id="vector elsewhere"),
        pytest.param(
            [*takes([5]), CONSTRAINT], "changed the schema or properties", id="different rows, and the schema"
        ),
    ],
)
def test_what_collides_leaves_nothing(
    catalog: TransactionalCatalog, other: TransactionalCatalog, theirs: list[Action], message: str
) -> None:
    tx = begins(catalog, *takes([1]))
    winner = begins(other, *theirs)
    other.commit(winner)
    with pytest.raises(ConflictError, match=message) as caught:
        catalog.commit(tx)
    assert f"transaction {winner.id} (database version 2)" in caught.value.message
    assert tx.state is State.ROLLED_BACK
    assert catalog.database().version == 2


def test_rows_put_back_collide(catalog: TransactionalCatalog, other: TransactionalCatalog) -> None:
    catalog.commit(begins(catalog, *takes([0, 1])))
    tx = begins(catalog, *takes([2], [0, 1]))
    other.commit(begins(other, *p_with(vector(0), vector(0, 1)), operation="RESTORE"))
    with pytest.raises(ConflictError, match="put back rows of file p"):
        catalog.commit(tx)


def test_who_deletes_beside_rows_that_are_put_back_is_not_said_to_have_put_them_back(
    catalog: TransactionalCatalog, other: TransactionalCatalog
) -> None:
    catalog.commit(begins(catalog, *takes([0, 1])))
    tx = begins(catalog, *p_with(vector(0), vector(0, 1)), operation="RESTORE")
    other.commit(begins(other, *takes([2], [0, 1])))
    said = "deleted or updated rows of file p of table default.t, of which this transaction puts rows back"
    with pytest.raises(ConflictError, match=said):
        catalog.commit(tx)


@pytest.mark.parametrize(
    ("ours", "theirs", "commits"),
    [
        pytest.param("id = 0", "id = 9", True, id="each after its own row"),
        pytest.param("id < 5", "id = 9", True, id="a row that ours did not look for"),
        pytest.param(None, "id = 9", False, id="ours may have marked what theirs looked for"),
        pytest.param(None, None, False, id="each read every row"),
    ],
)
def test_at_serializable_what_was_read_counts_too(
    catalog: TransactionalCatalog, other: TransactionalCatalog, ours: str | None, theirs: str | None, commits: bool
) -> None:
    """An UPDATE has read the rows that it looked for; those that it marked are not all that counts."""

    def deletes(which: TransactionalCatalog, row: int, looked_for: str | None) -> Transaction:
        tx = which.begin(isolation="SERIALIZABLE")
        tx.read(tx.table(named("t")), looked_for)
        stage(which, tx, "t", *takes([row]), operation="DELETE")
        return tx

    tx, winner = deletes(catalog, 0, ours), deletes(other, 9, theirs)
    other.commit(winner)
    if commits:
        catalog.commit(tx)
        assert ids(other) == ALL - {0, 9}
        return
    with pytest.raises(ConflictError, match=r"changed table default\.t, which this transaction read"):
        catalog.commit(tx)


def test_a_vector_that_is_gone_ends_in_an_error_and_no_commit(
    catalog: TransactionalCatalog, other: TransactionalCatalog, store: FaultyStorage
) -> None:
    descriptor, content = stored(serialize(BitMap64([5])), 1, id := uuid4())
    path = f"{location(catalog, 't')}/{file_name(id)}"
    store.put(path, content)
    tx = begins(catalog, *takes([0]))
    other.commit(begins(other, *p_with(descriptor)))
    store.delete(path)
    with pytest.raises(CorruptTimelineError, match=r"deletion_vector_.*\.bin is gone"):
        catalog.commit(tx)
    assert tx.is_open
    assert catalog.database().version == 2


def test_a_foreign_vector_after_ratifying_sets_the_table_aside(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    """What is ratified is not rewritten: then one file is judged as a whole, as it always was."""
    tx = begins(catalog, *takes([0]))
    store.interrupt("put_if_absent", lambda: foreign(catalog, "t", 1, *takes([9])), path=f"{1:020d}.json")
    catalog.commit(tx)
    with pytest.raises(ForeignCommitError, match=r"the two conflict \(row\)"):
        catalog.database([named("t")])


# --- what is written --------------------------------------------------------------------------------------------------


def test_vectors_that_delta_stored_are_read_and_merged_ones_stored(
    catalog: TransactionalCatalog, other: TransactionalCatalog, store: FaultyStorage
) -> None:
    def takes_stored(row: int) -> list[Action]:
        id = uuid4()
        descriptor, content = stored(serialize(BitMap64([row])), 1, id)
        store.put(f"{location(catalog, 't')}/{file_name(id)}", content)
        return p_with(descriptor)

    tx = begins(catalog, *takes_stored(0))
    other.commit(begins(other, *takes_stored(9)))
    catalog.commit(tx)
    assert ids(other) == ALL - {0, 9}
    assert len(vector_files(catalog)) == 3
    assert bodies(published(catalog), "add")[0]["deletionVector"]["storageType"] == "u"


def test_only_the_attempt_that_lands_keeps_its_files(
    catalog: TransactionalCatalog, other: TransactionalCatalog, store: FaultyStorage
) -> None:
    tx = begins(catalog, *takes([0]))
    other.commit(begins(other, *takes([1])))
    seen: list[str] = []

    def overtake() -> None:
        seen.extend(vector_files(other))
        other.commit(begins(other, *takes([2], [1])))

    store.interrupt("put_if_absent", overtake, path=entry_path(3))
    catalog.commit(tx)
    [kept] = vector_files(catalog)
    assert [kept] != seen
    assert len(seen) == 1
    assert ids(other) == ALL - {0, 1, 2}


def test_a_vector_that_the_store_claims_to_have_is_written(
    catalog: TransactionalCatalog, other: TransactionalCatalog, store: FaultyStorage
) -> None:
    tx = begins(catalog, *takes([0]))
    other.commit(begins(other, *takes([1])))
    store.claim_taken(".bin")
    catalog.commit(tx)
    assert store.count("put_if_absent", ".bin") == 2
    assert len(vector_files(catalog)) == 1
    assert ids(other) == ALL - {0, 1}


def test_a_conflict_and_a_rollback_leave_no_file(
    catalog: TransactionalCatalog, other: TransactionalCatalog, store: FaultyStorage
) -> None:
    tx = begins(catalog, *takes([0]))
    other.commit(begins(other, *takes([1])))
    store.fail("put_if_absent", path=entry_path(3), definite=True)
    with pytest.raises(UnavailableError):
        catalog.commit(tx)
    assert len(vector_files(catalog)) == 1, "the attempt wrote it, and COMMIT may come again"
    other.commit(begins(other, *takes([0], [1])))
    with pytest.raises(ConflictError, match="the same rows of file p"):
        catalog.commit(tx)
    assert vector_files(catalog) == []
