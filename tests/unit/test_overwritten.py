"""A plain Delta writer that writes over a published commit, as Delta's log store for S3 can from two drivers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import Action, render
from lockstep.errors import ForeignCommitError
from lockstep.lake.verify import verify
from lockstep.storage import Storage, open_storage
from lockstep.timeline.hint import HINT
from tests.support.faulty import FaultyStorage
from tests.support.lakes import (
    CONSTRAINT,
    add,
    append,
    create,
    files,
    large,
    location,
    log_file,
    named,
    open_catalog,
    remove,
    stage,
)
from tests.support.s3 import KEYS, moto, serving

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The endpoint of a moto S3 server of one thread, with a bucket `lake`."""
    with serving(moto()) as endpoint:
        yield endpoint


@pytest.fixture(params=["local", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> FaultyStorage:
    """A store of each kind, which fails when it is told to."""
    if request.param == "local":
        return FaultyStorage(open_storage(str(tmp_path)))
    url = f"s3://lake/{tmp_path.name}{tmp_path.parent.name}"
    return FaultyStorage(open_storage(url, options={**KEYS, "endpoint": request.getfixturevalue("s3")}))


@pytest.fixture
def catalog(storage: FaultyStorage) -> TransactionalCatalog:
    """A lake with tables a and b, of which a has been written twice."""
    catalog = open_catalog(storage)
    create(catalog, "a", "b", files=["old"])
    append(catalog, "a", "ours")
    return catalog


def write_over(storage: Storage, catalog: TransactionalCatalog, version: int, *actions: Action) -> bytes:
    """Do what a plain writer does that looked before the version was taken: write it all the same."""
    info: Action = {"commitInfo": {"operation": "WRITE", "engineInfo": "plain", "isBlindAppend": True}}
    data = render([info, *actions])
    storage.put(log_file(catalog, "a", version), data)
    return data


def different(storage: Storage, catalog: TransactionalCatalog) -> list[tuple[str, int]]:
    return [(each.problem, each.table_version) for each in verify(storage, catalog.timeline).differences]


WRITES: dict[str, tuple[Action, ...]] = {
    "a plain append": (add("theirs"),),
    "the same file": (remove("old"), add("compacted")),
    "a constraint": (CONSTRAINT,),
}


@pytest.mark.parametrize("case", WRITES)
def test_the_table_is_refused_and_both_commits_are_kept(
    storage: FaultyStorage, catalog: TransactionalCatalog, case: str
) -> None:
    """The log has theirs, the timeline ours; other tables go on, and a person who moves theirs away has ours back."""
    theirs = write_over(storage, catalog, 1, *WRITES[case])
    catalog.lake.upkeep.settle()
    before = {each.path for each in storage.walk(location(catalog, "a"))}
    assert log_file(catalog, "a", 1) in before
    assert different(storage, catalog) == [("different", 1)]
    for reader in (catalog, open_catalog(storage)):
        for _ in range(2):
            with pytest.raises(ForeignCommitError, match=r"wrote over version 1.*neither is lost.*lockstep settle"):
                files(reader, "a")
        assert files(reader, "b") == {"old"}
    catalog.lake.upkeep.settle()
    assert {each.path for each in storage.walk(location(catalog, "a"))} == before
    assert storage.get(log_file(catalog, "a", 1)) == theirs
    storage.delete(log_file(catalog, "a", 1))
    for reader in (catalog, open_catalog(storage)):
        assert files(reader, "a") == {"old", "ours"}
    assert different(storage, catalog) == []


def test_what_followed_the_foreign_commit_is_not_taken_in(
    storage: FaultyStorage, catalog: TransactionalCatalog
) -> None:
    """In a transaction, in a statement and in a process that comes new: ours would be lost for good behind it."""
    catalog.database([named("a")])
    version = catalog.timeline.head.version
    write_over(storage, catalog, 1, add("theirs"))
    write_over(storage, catalog, 2, add("later"))
    for reader in (catalog, open_catalog(storage)):
        tx = reader.begin()
        with pytest.raises(ForeignCommitError, match="wrote over version 1"):
            reader.look(tx, [named("a")])
        reader.rollback(tx)
        with pytest.raises(ForeignCommitError, match="wrote over version 1"):
            files(reader, "a")
    assert catalog.timeline.head.version == version
    theirs = storage.get(log_file(catalog, "a", 2))
    storage.delete(log_file(catalog, "a", 1))
    storage.delete(log_file(catalog, "a", 2))
    assert files(open_catalog(storage), "a") == {"old", "ours"}
    storage.put(log_file(catalog, "a", 2), theirs or b"")
    assert files(open_catalog(storage), "a") == {"old", "ours", "later"}


def test_the_log_names_the_table_once(
    storage: FaultyStorage, catalog: TransactionalCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    write_over(storage, catalog, 1, add("theirs"))
    with pytest.raises(ForeignCommitError, match="wrote over version 1"):
        open_catalog(storage).database([named("a")])
    told = [record.getMessage() for record in caplog.records if "wrote over version 1" in record.getMessage()]
    assert told
    assert all(message.startswith("table default.a: a plain Delta writer wrote over") for message in told)


def test_it_is_found_before_a_commit_that_would_follow(storage: FaultyStorage, catalog: TransactionalCatalog) -> None:
    """A transaction that began before it writes nothing."""
    tx = catalog.begin()
    stage(catalog, tx, "a", add("mine"))
    write_over(storage, catalog, 1, add("theirs"))
    with pytest.raises(ForeignCommitError, match="wrote over version 1"):
        catalog.commit(tx)
    assert not storage.exists(log_file(catalog, "a", 2))
    storage.delete(log_file(catalog, "a", 1))
    assert files(open_catalog(storage), "a") == {"old", "ours"}


@pytest.mark.parametrize("fresh", [True, False], ids=["another process", "the same process"])
def test_a_large_commit_that_was_written_over_is_missed(
    storage: FaultyStorage, catalog: TransactionalCatalog, fresh: bool
) -> None:
    """What was staged is deleted once it is published, so nobody has it; its name tells what it was."""
    tx = catalog.begin()
    stage(catalog, tx, "a", large("more"))
    catalog.commit(tx)
    catalog.lake.upkeep.settle()
    ours = storage.get(log_file(catalog, "a", 2)) or b""
    assert files(catalog, "a") == {"old", "ours", "more"}
    write_over(storage, catalog, 2, add("theirs"))
    write_over(storage, catalog, 3, add("later"))
    with pytest.raises(ForeignCommitError, match="too large for its entry and is nowhere else"):
        files(open_catalog(storage) if fresh else catalog, "a")
    storage.put(log_file(catalog, "a", 2), ours)
    assert files(open_catalog(storage), "a") == {"old", "ours", "more", "later"}


def test_what_is_no_commit_is_refused_like_any_other(storage: FaultyStorage, catalog: TransactionalCatalog) -> None:
    storage.put(log_file(catalog, "a", 1), b"{")
    with pytest.raises(ForeignCommitError, match="wrote over version 1"):
        files(open_catalog(storage), "a")


def test_a_process_that_does_not_know_what_was_published_moves_nothing_that_a_later_version_follows(
    storage: FaultyStorage, catalog: TransactionalCatalog
) -> None:
    """Nobody ratifies the next version of a table before the last one is published."""
    append(catalog, "a", "more")
    catalog.lake.upkeep.settle()
    storage.delete(HINT)
    write_over(storage, catalog, 1, add("theirs"))
    write_over(storage, catalog, 2, add("theirs2"))
    with pytest.raises(ForeignCommitError, match="wrote over version 1"):
        files(open_catalog(storage), "a")
    assert not storage.exists(log_file(catalog, "a", 3))
    assert catalog.timeline.moves == {}


def test_a_process_that_did_not_see_it_published_learns_from_the_hint_that_it_was(
    storage: FaultyStorage, catalog: TransactionalCatalog
) -> None:
    """One that has had the lake open since before has looked at no entry of it yet, and would take ours for late."""
    other = open_catalog(storage)
    append(catalog, "a", "more")
    catalog.lake.upkeep.settle()
    write_over(storage, catalog, 2, add("theirs"))
    with pytest.raises(ForeignCommitError, match="wrote over version 2"):
        files(other, "a")
    assert not storage.exists(log_file(catalog, "a", 3))
    assert other.timeline.moves == {}


def test_the_newest_commit_looks_unpublished_to_who_cannot_know_better(
    storage: FaultyStorage, catalog: TransactionalCatalog
) -> None:
    """As docs/limits.md says: without the hint, and with no later version, ours is moved behind theirs."""
    catalog.lake.upkeep.settle()
    storage.delete(HINT)
    write_over(storage, catalog, 1, add("theirs"))
    assert files(open_catalog(storage), "a") == {"old", "ours", "theirs"}


SET_BACK: dict[str, int] = {"by one of two": 2, "by all that the lake wrote": 1}


@pytest.mark.parametrize("hint", [True, False], ids=["all is known to be published", "nobody knows"])
@pytest.mark.parametrize("case", SET_BACK)
def test_nothing_is_published_behind_what_a_plain_writer_did_to_a_log_that_was_set_back(
    storage: FaultyStorage, catalog: TransactionalCatalog, case: str, hint: bool
) -> None:
    """Ours would change a table that it does not fit, and what was ratified before it would be lost."""
    append(catalog, "a", "more")
    append(catalog, "a", "most")
    catalog.lake.upkeep.settle()
    if not hint:
        storage.delete(HINT)
    ours = {version: storage.get(log_file(catalog, "a", version)) or b"" for version in (1, 2, 3)}
    for version in range(SET_BACK[case], 4):
        storage.delete(log_file(catalog, "a", version))
    theirs = write_over(storage, catalog, SET_BACK[case], add("theirs"))
    with pytest.raises(ForeignCommitError, match=f"wrote over version {SET_BACK[case]}"):
        files(open_catalog(storage), "a")
    assert not storage.exists(log_file(catalog, "a", 3))
    assert storage.get(log_file(catalog, "a", SET_BACK[case])) == theirs
    assert files(open_catalog(storage), "b") == {"old"}, "other tables go on"
    for version, data in ours.items():
        storage.put(log_file(catalog, "a", version), data)
    assert files(open_catalog(storage), "a") == {"old", "ours", "more", "most"}


def test_nothing_is_moved_behind_commits_that_stand_on_another_ones_than_ours(
    storage: FaultyStorage, catalog: TransactionalCatalog
) -> None:
    """The newest looks as if it had never been published, but what it was ratified behind was written over."""
    catalog.lake.upkeep.settle()
    hint = storage.get(HINT) or b""
    append(catalog, "a", "more")
    catalog.lake.upkeep.settle()
    storage.put(HINT, hint)
    for version, name in enumerate(("theirs", "theirs2", "theirs3"), 1):
        write_over(storage, catalog, version, add(name))
    with pytest.raises(ForeignCommitError, match="wrote over version 1"):
        files(open_catalog(storage), "a")
    assert not storage.exists(log_file(catalog, "a", 4))


def test_nothing_is_published_behind_another_ones_commit_in_the_place_of_a_plain_writers(
    storage: FaultyStorage, catalog: TransactionalCatalog
) -> None:
    """Of what it took in the timeline has a digest."""
    write_over(storage, catalog, 2, add("plain"))
    assert files(catalog, "a") == {"old", "ours", "plain"}
    append(catalog, "a", "more")
    catalog.lake.upkeep.settle()
    storage.delete(log_file(catalog, "a", 3))
    write_over(storage, catalog, 2, add("another"))
    with pytest.raises(ForeignCommitError, match="is not the commit that database version 3 knows as version 2"):
        files(open_catalog(storage), "a")
    assert not storage.exists(log_file(catalog, "a", 3))
