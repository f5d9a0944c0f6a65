"""What becomes of others when a plain Delta writer takes the version of a commit that was ratified for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lockstep.commit.scans import Scan
from lockstep.delta.actions import bodies, render
from lockstep.delta.log import checksum_path, commit_path, read_published
from lockstep.errors import ConflictError, ForeignCommitError
from lockstep.storage import open_storage
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, create, files, foreign, lay, location, named, open_catalog, remove, stage


@pytest.fixture
def store(tmp_path: Path) -> FaultyStorage:
    return FaultyStorage(open_storage(str(tmp_path / "lake"), create=True))


def rows(path: str, row_id: int, count: int) -> dict[str, Any]:
    """A file of a row-tracked table, staged or published as version 1."""
    return add(path, baseRowId=row_id, defaultRowCommitVersion=1, stats=json.dumps({"numRecords": count}))


def mark(row_id: int) -> dict[str, Any]:
    configuration = json.dumps({"rowIdHighWaterMark": row_id})
    return {"domainMetadata": {"domain": "delta.rowTracking", "configuration": configuration, "removed": False}}


@pytest.mark.parametrize("looked", [False, True], ids=["first looked at when moved", "looked at before that, too"])
def test_no_row_id_is_given_out_twice_behind_a_commit_that_was_moved(store: FaultyStorage, looked: bool) -> None:
    """A winner is judged as it is published, and not as it was ratified."""
    catalog = open_catalog(store, isolation="SNAPSHOT")
    create(catalog, "a")
    other = open_catalog(store.inner, isolation="SNAPSHOT")
    late = other.begin()
    stage(other, late, "a", rows("t", 0, 2), mark(1))
    tx = catalog.begin()
    stage(catalog, tx, "a", rows("x", 0, 3), mark(2))

    def overtake() -> None:
        if looked:
            other.timeline.refresh()
            other.lake.past.of(other.timeline.entries(1)[0])
        foreign(catalog, "a", 1, rows("f", 0, 5), mark(4))

    store.interrupt("put_if_absent", overtake, path=commit_path(location(catalog, "a"), 1))
    catalog.commit(tx)
    other.commit(late)
    commits = [read_published(store, location(catalog, "a"), version) for version in (1, 2, 3)]
    found = [(file["path"], file["baseRowId"]) for commit in commits for file in bodies(commit, "add")]
    assert found == [("f", 0), ("x", 5), ("t", 8)]
    domains = [json.loads(bodies(commit, "domainMetadata")[0]["configuration"]) for commit in commits]
    assert [domain["rowIdHighWaterMark"] for domain in domains] == [4, 7, 9]


def test_a_table_that_is_set_aside_is_left_to_who_decides(store: FaultyStorage) -> None:
    """A query whose view reads it must not take in what the plain writer did next: it may have to go."""
    catalog = open_catalog(store)
    create(catalog, "a", "t", files=["p"])
    tx = catalog.begin()
    stage(catalog, tx, "t", remove("p"), add("ours"))
    where = location(catalog, "t")
    store.interrupt(
        "put_if_absent", lambda: foreign(catalog, "t", 1, remove("p"), add("theirs")), path=commit_path(where, 1)
    )
    catalog.commit(tx)
    foreign(catalog, "t", 2, add("more"))
    pin = catalog.database([named("a")]).version
    seen = catalog.read([named("t")], pin=pin, seen=[named("a")])
    with pytest.raises(ForeignCommitError):
        seen.refuse_aside(seen.tables[named("t")])
    assert [entry.kind for entry in catalog.timeline.entries(1)] == ["transaction"]
    for version in (1, 2):  # the timeline is right, somebody says
        store.inner.delete(commit_path(where, version))
        store.inner.delete(checksum_path(where, version))
    again = open_catalog(store.inner)
    again.database([named("t")])
    assert files(again, "t") == {"ours"}


def test_a_statement_that_read_half_of_a_transaction_is_refused(store: FaultyStorage) -> None:
    """The several commits of one transaction to one table are published one after the other."""
    catalog = open_catalog(store)
    create(catalog, "t", "u")
    tx = catalog.begin()
    for number in (1, 2):  # change files keep them apart
        change = {"cdc": {"path": f"_change_data/c{number}", "partitionValues": {}, "size": 1, "dataChange": False}}
        stage(catalog, tx, "t", add(f"x{number}"), change)
    catalog.commit(tx)
    table = catalog.database([named("t")]).tables[named("t")]
    assert table.version == 2
    lay(store.inner, location(catalog, "u"), [add("copy")])
    info = {"commitInfo": {"operation": "WRITE", "isBlindAppend": False, "readVersion": 0}}
    content = render([info, add("copy")]).decode()
    with pytest.raises(ConflictError, match="several commits, of which this statement has read the first alone"):
        catalog.write(location(catalog, "u"), 1, content, scans=[Scan(table.id, 1, None)])
    catalog.write(location(catalog, "u"), 1, content, scans=[Scan(table.id, 2, None)])
