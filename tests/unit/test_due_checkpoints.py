"""Which checkpoints are due after a transaction: by the table's own interval, at the versions that it really got."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lockstep.commit.outcomes import DueCheckpoint
from lockstep.delta.actions import Action
from lockstep.delta.checkpoint_interval import due_checkpoint
from lockstep.delta.log import checksum_path, commit_path
from lockstep.storage import open_storage
from tests.support.faulty import FaultyStorage
from tests.support.lakes import (
    PROTOCOL,
    add,
    append,
    create,
    foreign,
    location,
    metadata,
    named,
    open_catalog,
    stage,
    stage_new,
)


@pytest.mark.parametrize(
    ("versions", "interval", "due"),
    [
        ([0], "1", None),
        ([1], "1", 1),
        ([1, 2, 3], "1", 3),
        ([8, 9, 10, 11], None, 10),
        ([9], None, None),
        ([19, 21], None, None),  # 20 is a plain writer's
        ([9, 10, 11], "4", None),
        ([9, 10, 11, 12, 13], "4", 12),
        ([4, 5, 6, 7], "3", 6),
        ([10], "1000000", None),
        ([10], "+10", None),
        ([10], "0", None),
        ([10], "ten", None),
        ([10], 10, None),
    ],
)
def test_the_last_multiple_among_its_versions_is_due(versions: list[int], interval: Any, due: int | None) -> None:
    configuration = {} if interval is None else {"delta.checkpointInterval": interval}
    assert due_checkpoint(versions, {"configuration": configuration}) == due


def test_a_table_that_says_nothing_has_deltas_default() -> None:
    assert due_checkpoint([10], {}) == due_checkpoint([10], {"configuration": None}) == 10


@pytest.fixture
def store(tmp_path: Path) -> FaultyStorage:
    return FaultyStorage(open_storage(str(tmp_path / "lake"), create=True))


def every(interval: int) -> Action:
    return metadata(**{"delta.checkpointInterval": str(interval)})


def with_interval(catalog: Any, interval: int, *names: str) -> None:
    tx = catalog.begin()
    for name in names:
        stage_new(catalog, tx, name, start=(PROTOCOL, every(interval)))
    assert catalog.commit(tx).checkpoints == ()


def test_each_table_that_is_written_has_its_own(store: FaultyStorage) -> None:
    catalog = open_catalog(store)
    with_interval(catalog, 2, "a", "untouched")
    with_interval(catalog, 1, "b")
    due = []
    for path in "wxyz":
        tx = catalog.begin()
        for table in "ab":
            stage(catalog, tx, table, add(path))
        due.append([(each.location, each.version) for each in catalog.commit(tx).checkpoints])
    a, b = location(catalog, "a"), location(catalog, "b")
    assert due == [[(b, 1)], [(a, 2), (b, 2)], [(b, 3)], [(a, 4), (b, 4)]]


def test_what_the_transaction_or_an_earlier_one_set_counts(store: FaultyStorage) -> None:
    catalog, other = open_catalog(store), open_catalog(store)
    create(catalog, "a")
    tx, late = catalog.begin(), other.begin(isolation="SNAPSHOT")
    stage(other, late, "a", add("y"))
    stage(catalog, tx, "a", add("x"), every(1))
    assert catalog.commit(tx).checkpoints == (DueCheckpoint(location(catalog, "a"), 1),)
    assert other.commit(late).checkpoints == (DueCheckpoint(location(catalog, "a"), 2),)


def test_behind_winners_that_changed_no_properties_nothing_is_read_again(store: FaultyStorage) -> None:
    """The checksum of the version that it landed on may not be written yet, either."""
    catalog, other = open_catalog(store), open_catalog(store)
    with_interval(catalog, 2, "a")
    tx = other.begin()
    stage(other, tx, "a", add("y"))
    append(catalog, "a", "x")
    catalog.lake.upkeep.settle()
    before = len(store.calls)
    assert other.commit(tx).checkpoints == (DueCheckpoint(location(catalog, "a"), 2),)
    reads = [path for call, path in store.calls[before:] if call == "get"]
    assert reads.count(checksum_path(location(catalog, "a"), 0)) == 1
    assert reads.count(checksum_path(location(catalog, "a"), 1)) == 1, "for the checksum of its own version"


def test_behind_foreign_commits_the_versions_are_those_that_it_got(store: FaultyStorage) -> None:
    catalog = open_catalog(store)
    with_interval(catalog, 3, "a")
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))

    def overtake() -> None:
        for version in (1, 2):
            foreign(catalog, "a", version, add(f"f{version}"))

    store.interrupt("put_if_absent", overtake, path=commit_path(location(catalog, "a"), 1))
    due = catalog.commit(tx).checkpoints
    assert store.exists(commit_path(location(catalog, "a"), 3)), "it was moved"
    assert due == (DueCheckpoint(location(catalog, "a"), 3),)


@pytest.mark.parametrize("checksum", ["missing", "torn"])
def test_without_a_checksum_the_log_tells(store: FaultyStorage, checksum: str) -> None:
    catalog = open_catalog(store)
    with_interval(catalog, 1, "a")
    path = checksum_path(location(catalog, "a"), 0)
    if checksum == "missing":
        store.delete(path)
    else:
        store.put(path, (store.get(path) or b"")[:50])
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    assert catalog.commit(tx).checkpoints == (DueCheckpoint(location(catalog, "a"), 1),)


def test_a_store_that_fails_is_no_reason_to_fail(store: FaultyStorage) -> None:
    """Of one that cannot be read nothing is known, which is Delta's default; the others have their own."""
    with_interval(open_catalog(store), 1, "a", "b")
    catalog = open_catalog(store)  # one that has not written them yet
    tx = catalog.begin()
    for table in "ab":
        stage(catalog, tx, table, add("x"))
    store.fail("get", path=checksum_path(location(catalog, "a"), 0))
    assert catalog.commit(tx).checkpoints == (DueCheckpoint(location(catalog, "b"), 1),)


def test_what_a_process_wrote_last_it_need_not_read_again(store: FaultyStorage) -> None:
    """But what a plain writer changed since it does."""
    catalog = open_catalog(store)
    with_interval(catalog, 1, "a")
    for version in (1, 2):
        tx = catalog.begin()
        stage(catalog, tx, "a", add(f"x{version}"))
        store.calls.clear()
        assert catalog.commit(tx).checkpoints == (DueCheckpoint(location(catalog, "a"), version),)
        assert store.count("get", checksum_path(location(catalog, "a"), version - 1)) == 1, (
            "the upkeep, to tell the next"
        )
    foreign(catalog, "a", 3, every(100))
    tx = catalog.begin()
    stage(catalog, tx, "a", add("y"))
    assert catalog.commit(tx).checkpoints == ()


def test_what_is_not_published_is_not_due(store: FaultyStorage) -> None:
    catalog = open_catalog(store)
    with_interval(catalog, 1, "a", "b")
    tx = catalog.begin()
    for table in "ab":
        stage(catalog, tx, table, add("x"))
    store.fail("put_if_absent", path=commit_path(location(catalog, "a"), 1), times=9)
    assert catalog.commit(tx).checkpoints == (DueCheckpoint(location(catalog, "b"), 1),)


def test_who_finds_out_that_a_commit_has_landed_is_told(store: FaultyStorage) -> None:
    catalog, other = open_catalog(store), open_catalog(store.inner)
    with_interval(catalog, 1, "a")
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    table = catalog.commit(tx).checkpoints
    assert table == (DueCheckpoint(location(catalog, "a"), 1),)
    found = other.find_out(tx.id, tx.base.version)
    assert found is not None
    assert found.checkpoints == table


def test_a_table_that_is_dropped_has_none(store: FaultyStorage) -> None:
    catalog = open_catalog(store)
    with_interval(catalog, 1, "a", "b")
    tx = catalog.begin()
    for table in "ab":
        stage(catalog, tx, table, add("x"))
    tx.names.drop_table(named("a"))
    assert catalog.commit(tx).checkpoints == (DueCheckpoint(location(catalog, "b"), 1),)
