"""Settling a table: what is looked at before anything is deleted, and what does not fail once it is settled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lockstep.delta.actions import Action
from lockstep.delta.log import checksum_path, commit_path, log_files, read_checksum
from lockstep.errors import ForeignCommitError, InvalidError, ReadOnlyError, UnsupportedError
from lockstep.lake.policy import PROPERTY
from lockstep.recovery.divergence import divergence
from lockstep.recovery.settle import Side, settle
from lockstep.storage.outside import open_reaching
from lockstep.timeline.files import entry_path
from tests.support.diverged import HELD, SIDES, diverged, put_foreign, settled
from tests.support.faulty import FaultyStorage
from tests.support.lakes import (
    PROTOCOL,
    add,
    append,
    create,
    files,
    location,
    metadata,
    named,
    open_catalog,
    remove,
    stage,
)


@pytest.fixture
def store(tmp_path: Path) -> FaultyStorage:
    return FaultyStorage(open_reaching(str(tmp_path / "lake"), create=True))


def checksum_of(*files: str) -> bytes:
    """Return a checksum of a table of these files."""
    return json.dumps(
        {
            "tableSizeBytes": len(files),
            "numFiles": len(files),
            "numMetadata": 1,
            "numProtocol": 1,
            "metadata": metadata()["metaData"],
            "protocol": PROTOCOL["protocol"],
        }
    ).encode()


def test_what_is_committed_after_theirs_was_taken_in_does_not_make_that_fail(store: FaultyStorage) -> None:
    """It is settled up to what was judged; the next use of the table is refused anew."""
    catalog = diverged(store, "refused")
    found = divergence(catalog.lake, named("t"))
    head = catalog.timeline.head.version
    store.interrupt(
        "put_if_absent",
        lambda: put_foreign(open_catalog(store.inner), found.newest + 1, add("later")),
        path=entry_path(head + 1),
        when="after",
    )
    version = settle(catalog.lake, found, "theirs", lambda do: catalog.run(do).version)
    assert version == head + 1
    assert catalog.timeline.at(version).tables[named("t")].version == found.newest
    with pytest.raises(ForeignCommitError):
        files(catalog, "t")


def test_nothing_is_called_settled_that_is_not(store: FaultyStorage) -> None:
    """What was judged is gone: somebody has put the foreign commits aside by hand."""
    catalog = diverged(store, "refused")
    found = divergence(catalog.lake, named("t"))
    for version in (2, 3):
        store.inner.delete(f"{found.table.location}/_delta_log/{version:020d}.json")
    head = catalog.timeline.head.version
    with pytest.raises(InvalidError, match="settle the table then"):
        settle(catalog.lake, found, "theirs", lambda do: catalog.run(do).version)
    assert open_catalog(store).timeline.head.version == head


@pytest.mark.parametrize("keep", SIDES)
def test_a_store_that_has_no_conditional_writes_loses_no_checksum(store: FaultyStorage, keep: Side) -> None:
    """As that of a table outside of the root may be, which is raced before Lockstep first writes there."""
    catalog = diverged(store, "written over")
    where = location(catalog, "t")
    store.inner.put(checksum_path(where, 1), checksum_of("ours"))

    def refuse() -> None:
        raise UnsupportedError("cannot hold a lake: 3 of 3 writers won")

    store.interrupt("put_if_absent", refuse, path=f"/{3:020d}.json")
    with pytest.raises(UnsupportedError, match="3 of 3 writers"):
        settled(catalog, keep)
    assert store.inner.exists(checksum_path(where, 1))
    settled(catalog, keep)
    assert not store.inner.exists(checksum_path(where, 1))


@pytest.mark.parametrize("keep", SIDES)
def test_a_checksum_of_the_other_side_is_not_believed(store: FaultyStorage, keep: Side) -> None:
    """It says what the table is like, and its writer was a moment late: the log says otherwise."""
    catalog = diverged(store, "written over")
    where = location(catalog, "t")
    wrong = json.loads(checksum_of("x", "y", "z"))
    wrong["metadata"]["configuration"] = {"who": "another"}
    wrong["protocol"] = {"minReaderVersion": 1, "minWriterVersion": 4}
    data = json.dumps(wrong).encode()
    store.inner.put(checksum_path(where, 2), data)
    store.interrupt(
        "put_if_absent",
        lambda: store.inner.put(checksum_path(where, 1), data),
        path=entry_path(catalog.timeline.head.version + 1),
    )
    settled(catalog, keep)
    catalog.lake.upkeep.settle()
    assert log_files(store, where, 0).checksums == frozenset()
    data = store.inner.get(f"{where}/_delta_log/{3:020d}.json") or b""
    assert b"another" not in data
    append(catalog, "t", "more")
    catalog.lake.upkeep.settle()
    found = read_checksum(store, where, 4)
    assert found is None or found["numFiles"] == len(HELD[keep]) + 1


@pytest.mark.parametrize("keep", SIDES)
def test_what_cannot_be_deleted_behind_it_leaves_it_settled(store: FaultyStorage, keep: Side) -> None:
    catalog = diverged(store, "written over")
    where, head = location(catalog, "t"), catalog.timeline.head.version

    def late() -> None:
        store.inner.put(checksum_path(where, 1), checksum_of("x", "y"))
        store.fail("delete", path=".crc", times=9)

    store.interrupt("put_if_absent", late, path=entry_path(head + 1))
    assert settled(catalog, keep) == head + 1
    catalog.lake.upkeep.settle()
    assert files(catalog, "t") == HELD[keep]


def test_who_may_only_read_is_told_so(store: FaultyStorage) -> None:
    catalog = diverged(store, "written over")
    found = divergence(catalog.lake, named("t"))
    catalog.lake.timeline.refusal = "this process may only read the lake"
    for keep in SIDES:
        with pytest.raises(ReadOnlyError, match="may only read") as refused:
            settle(catalog.lake, found, keep, lambda do: catalog.run(do).version)
        assert refused.value.sqlstate == "25006"
    with pytest.raises(ReadOnlyError, match="may only read"):
        divergence(catalog.lake, named("t"))


# --- the policy of the side that is kept ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keep", "ours", "theirs", "is_refused"),
    [("ours", "refuse", "absorb", True), ("ours", "absorb", "refuse", False), ("theirs", "absorb", "refuse", True)],
)
def test_who_takes_the_version_of_the_settlement_meets_the_policy_of_the_kept_side(
    store: FaultyStorage, keep: Side, ours: str, theirs: str, is_refused: bool
) -> None:
    """Before it is published: the log has theirs by then, which says another policy."""
    catalog = open_catalog(store)
    create(catalog, "t", files=["p"])
    tx = catalog.begin()
    stage(catalog, tx, "t", metadata(**{PROPERTY: ours}), remove("p"), add("ours"))
    where = location(catalog, "t")
    for version, actions in ((1, [metadata(**{PROPERTY: theirs}), remove("p")]), (2, [add("late")])):

        def take(version: int = version, actions: list[Action] = actions) -> None:
            put_foreign(open_catalog(store.inner), version, *actions)

        store.interrupt("put_if_absent", take, path=commit_path(where, version))
    catalog.commit(tx)
    settled(catalog, keep)
    try:
        files(catalog, "t")
        said = ""
    except ForeignCommitError as error:
        said = error.message
    assert ("is 'refuse'" in said) == is_refused
