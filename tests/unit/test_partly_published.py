"""A transaction of several table versions, some of which are in the log when a plain Delta writer takes the next."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import Action, bodies
from lockstep.delta.log import checksum_path, read_checksum, read_published
from lockstep.delta.replay import Replay
from lockstep.errors import ForeignCommitError
from lockstep.lake.verify import verify
from lockstep.timeline.entry import INLINE_BYTES
from lockstep.timeline.hint import HINT
from tests.support.faulty import FaultyStorage
from tests.support.lakes import (
    add,
    append,
    create,
    files,
    foreign,
    location,
    log_file,
    named,
    open_catalog,
    remove,
    stage,
)

FILES = [f"p{n}" for n in range(60)]
"""More than a checksum lists."""


@pytest.fixture
def catalog(store: FaultyStorage) -> TransactionalCatalog:
    """A lake with the table a, at table version 0, and with row ids up to 59."""
    catalog = open_catalog(store, isolation="SNAPSHOT")
    create(catalog, "a")
    tx = catalog.begin()
    stage(catalog, tx, "a", *(new(path, n, 1) for n, path in enumerate(FILES)), mark(59))
    catalog.commit(tx)
    return catalog


def new(path: str, row_id: int, version: int, **more: Any) -> Action:
    return add(path, baseRowId=row_id, defaultRowCommitVersion=version, **more)


def mark(row_id: int) -> Action:
    configuration = json.dumps({"rowIdHighWaterMark": row_id})
    return {"domainMetadata": {"domain": "delta.rowTracking", "configuration": configuration, "removed": False}}


def change(name: str) -> Action:
    """A change file: with it, each statement stays a table version of its own."""
    return {"cdc": {"path": f"_change_data/{name}", "partitionValues": {}, "size": 1, "dataChange": False}}


def three(catalog: TransactionalCatalog, *, large: bool = False) -> None:
    """Commit a transaction of the table versions 2, 3 and 4."""
    tx = catalog.begin()
    more = {"tags": {"why": "x" * INLINE_BYTES}} if large else {}
    for n in range(3):
        stage(catalog, tx, "a", new(f"n{n}", 60 + n, 2 + n, **more), mark(60 + n), change(f"n{n}"))
    catalog.commit(tx)


def plain(catalog: TransactionalCatalog, version: int, row_id: int, *more: Action) -> None:
    """Commit as a plain Delta writer does, with its checksum."""
    foreign(catalog, "a", version, new(f"f{version}", row_id, version), mark(row_id), *more)
    replay = Replay()
    for each in range(version + 1):
        replay.take(read_published(catalog.lake.storage, location(catalog, "a"), each))
    store, where = catalog.lake.storage, location(catalog, "a")
    known = json.loads(store.get(checksum_path(where, 1)) or b"")
    del known["domainMetadata"]
    known |= {"numFiles": 60 + version - 1, "tableSizeBytes": 60 + version - 1}
    assert replay.wrong(known) == [], "the test's own checksum is right"
    store.put(checksum_path(where, version), json.dumps(known).encode())


def added(catalog: TransactionalCatalog) -> list[list[tuple[str, int, int]]]:
    """Return the new files of each version after the first, with their row ids, and the version of these rows."""
    database = catalog.database([named("a")])
    versions = range(2, database.tables[named("a")].version + 1)
    logs = [read_published(catalog.lake.storage, location(catalog, "a"), version) for version in versions]
    return [[(f["path"], f["baseRowId"], f["defaultRowCommitVersion"]) for f in bodies(log, "add")] for log in logs]


@pytest.mark.parametrize("large", [False, True])
def test_what_is_in_the_log_stays_and_the_rest_comes_behind(
    catalog: TransactionalCatalog, store: FaultyStorage, large: bool
) -> None:
    """Row ids belong to rows for ever, and a reader of changes has seen the first commit already."""
    store.interrupt("put_if_absent", lambda: plain(catalog, 3, 61), path=log_file(catalog, "a", 3))
    three(catalog, large=large)
    wanted = [[("n0", 60, 2)], [("f3", 61, 3)], [("n1", 62, 4)], [("n2", 63, 5)]]
    for each in (catalog, open_catalog(store.inner)):
        assert added(each) == wanted
        assert files(each, "a") == {*FILES, "n0", "n1", "n2", "f3"}
    [moved] = [move for entry in catalog.timeline.entries(0) for move in entry.moved]
    assert (moved.to_version, moved.kept) == (5, 1)
    assert catalog.as_of(3).tables[named("a")].version == 5
    assert verify(store, catalog.timeline).differences == ()


def test_their_checksums_count_each_commit_once(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    """Delta carries a wrong one on into each later version, and makes no checkpoint any more."""
    store.interrupt("put_if_absent", lambda: plain(catalog, 3, 61), path=log_file(catalog, "a", 3))
    three(catalog)
    said = [read_checksum(store, location(catalog, "a"), version) for version in (1, 3, 4, 5)]
    assert [None if each is None else each["numFiles"] for each in said] == [60, 62, 63, 64]
    assert verify(store, catalog.timeline).differences == ()


def test_it_may_happen_again_between_the_rest(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    store.interrupt("put_if_absent", lambda: plain(catalog, 3, 61), path=log_file(catalog, "a", 3))
    store.interrupt("put_if_absent", lambda: plain(catalog, 5, 63), path=log_file(catalog, "a", 5))
    three(catalog)
    wanted = [[("n0", 60, 2)], [("f3", 61, 3)], [("n1", 62, 4)], [("f5", 63, 5)], [("n2", 64, 6)]]
    assert added(catalog) == wanted
    assert [move.kept for entry in catalog.timeline.entries(0) for move in entry.moved] == [1, 2]
    assert catalog.timeline.versions(catalog.timeline.entries(2)[0].writes[0], 3) == (2, 4, 6)
    append(catalog, "a", "z")
    assert verify(store, catalog.timeline).differences == ()
    store.delete(HINT)
    assert files(open_catalog(store.inner), "a") == {*FILES, "n0", "n1", "n2", "f3", "f5", "z"}


def test_two_foreign_versions_in_a_row_are_one_gap(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    store.interrupt("put_if_absent", lambda: plain(catalog, 3, 61), path=log_file(catalog, "a", 3))
    store.interrupt("put_if_absent", lambda: plain(catalog, 4, 62), path=log_file(catalog, "a", 4))
    three(catalog)
    assert added(catalog) == [[("n0", 60, 2)], [("f3", 61, 3)], [("f4", 62, 4)], [("n1", 63, 5)], [("n2", 64, 6)]]
    for entry in catalog.timeline.entries(3):
        [found] = catalog.lake.past.of(entry).writes.values()
        assert {"f3"} <= found.added_paths <= {"f3", "f4"}, "ours is not what the plain writer did"


def test_who_recovers_agrees_whoever_published_the_first(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    """The first process dies between two commits; the plain writer follows, and two others find both."""
    other = open_catalog(store.inner)
    store.fail("put_if_absent", path=log_file(catalog, "a", 3))
    three(catalog)
    plain(catalog, 3, 61)
    store.interrupt("put_if_absent", lambda: other.database([named("a")]), path=f"{4:020d}.json")
    wanted = [[("n0", 60, 2)], [("f3", 61, 3)], [("n1", 62, 4)], [("n2", 63, 5)]]
    assert added(catalog) == added(other) == wanted
    assert [entry.kind for entry in catalog.timeline.entries(3)] == ["external"]


def test_a_lost_commit_of_the_rest_is_published_again_where_it_was(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    store.interrupt("put_if_absent", lambda: plain(catalog, 3, 61), path=log_file(catalog, "a", 3))
    three(catalog)
    before = {version: store.get(log_file(catalog, "a", version)) for version in (2, 4, 5)}
    for version in before:
        store.delete(log_file(catalog, "a", version))
    open_catalog(store.inner).database([named("a")])
    assert {version: store.get(log_file(catalog, "a", version)) for version in before} == before


def test_a_change_of_what_was_published_is_found(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    store.interrupt("put_if_absent", lambda: plain(catalog, 3, 61), path=log_file(catalog, "a", 3))
    three(catalog)
    for version in (2, 4, 5):
        was = store.get(log_file(catalog, "a", version)) or b""
        store.put(log_file(catalog, "a", version), was + b'{"txn":{"appId":"x","version":1}}\n')
        found = verify(store, catalog.timeline).differences
        assert [(each.problem, each.table_version, each.database_version) for each in found] == [
            ("different", version, 3)
        ]
        store.put(log_file(catalog, "a", version), was)


def test_a_plain_writer_that_removes_what_it_saw_of_ours_sets_the_table_aside(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    store.interrupt("put_if_absent", lambda: foreign(catalog, "a", 3, remove("n0")), path=log_file(catalog, "a", 3))
    three(catalog)
    with pytest.raises(ForeignCommitError, match="file"):
        catalog.database([named("a")])
    assert not store.exists(log_file(catalog, "a", 4))
