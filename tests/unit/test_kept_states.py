"""What tells of a tag's tables is kept in the lake's own folder before there is the tag."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.log import LOG, commit_path
from lockstep.delta.snapshot import read_snapshot
from lockstep.errors import CorruptTimelineError, ForeignCommitError, LockstepError, MissingFilesError, UnavailableError
from lockstep.lake.kept_states import FOLDER, is_whole, kept_state, kept_states, state_path, told_at
from lockstep.lake.verify import verify
from lockstep.storage import open_storage
from lockstep.timeline.entry import TagDdl
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, append, create, foreign, location, named, open_catalog, remove, stage, stage_new


def make_tag(catalog: TransactionalCatalog, name: str, version: int | None = None) -> int:
    return catalog.run(lambda tx: tx.changing().create_tag(TagDdl(action="create", name=name, version=version))).version


def lose_log(catalog: TransactionalCatalog, place: str) -> None:
    """Take a table's log away up to its newest version, of which a checkpoint is said to be: nobody reads it."""
    store = catalog.lake.storage
    for name in store.list(f"{place}/{LOG}"):
        store.delete(f"{place}/{LOG}/{name}")


def files_then(catalog: TransactionalCatalog, version: int, name: str) -> set[str]:
    """Return the files that a table had in a database version, by whatever tells of it."""
    table = catalog.timeline.at(version).tables[named(name)]
    snapshot = read_snapshot(catalog.lake.storage, told_at(catalog.lake.storage, table), table.version)
    return {add["path"] for add in snapshot.files.values()}


def test_a_tag_needs_its_tables_logs_no_more(catalog: TransactionalCatalog) -> None:
    append(catalog, "a", "x")
    tagged = make_tag(catalog, "good")
    append(catalog, "a", "y")
    for name in ("a", "b"):
        lose_log(catalog, location(catalog, name))
    assert files_then(catalog, tagged, "a") == {"p", "x"}
    assert files_then(catalog, tagged, "b") == {"p"}


def test_a_log_that_tells_is_the_one_that_is_read(catalog: TransactionalCatalog) -> None:
    tagged = make_tag(catalog, "good")
    table = catalog.timeline.at(tagged).tables[named("a")]
    assert told_at(catalog.lake.storage, table) == table.location
    lose_log(catalog, table.location)
    assert told_at(catalog.lake.storage, table).startswith(f"{FOLDER}/{table.id}/{0:020d}-")


def test_a_log_that_was_written_over_is_not_what_a_tag_keeps(catalog: TransactionalCatalog) -> None:
    """It is not read where the right one is kept, and it is not kept."""
    tagged = make_tag(catalog, "good")
    table = catalog.timeline.at(tagged).tables[named("a")]
    append(catalog, "a", "x")
    newest = catalog.database().tables[named("a")]
    store = catalog.lake.storage
    for version in (table.version, newest.version):
        store.put(commit_path(table.location, version), b'{"commitInfo":{}}\n')
    assert told_at(store, table).startswith(FOLDER)
    with pytest.raises(ForeignCommitError):
        make_tag(open_catalog(store), "bad")
    assert kept_state(store, newest.id, newest.version) is None


def test_what_is_kept_is_believed_if_all_of_it_is_there(catalog: TransactionalCatalog) -> None:
    tagged = make_tag(catalog, "good")
    table, store = catalog.timeline.at(tagged).tables[named("a")], catalog.lake.storage
    assert is_whole(store, table.id, table.version)
    state = kept_state(store, table.id, table.version)
    assert state is not None
    store.put(f"{state.folder}/{LOG}/{state.files[0].name}", b"cut")
    assert not is_whole(store, table.id, table.version)
    assert not is_whole(store, table.id, table.version + 1)


def test_what_is_kept_is_the_bytes_of_the_log(catalog: TransactionalCatalog) -> None:
    append(catalog, "a", "x")
    make_tag(catalog, "good")
    table = catalog.timeline.head.tables[named("a")]
    state = kept_state(catalog.lake.storage, table.id, 1)
    assert state is not None
    for version in (0, 1):
        kept = catalog.lake.storage.get(commit_path(state.folder, version))
        assert kept == catalog.lake.storage.get(commit_path(table.location, version))


def test_tags_of_one_table_version_share_what_is_kept(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    make_tag(catalog, "one")
    before = {found.path for found in store.walk(FOLDER)}
    make_tag(catalog, "two")
    assert {found.path for found in store.walk(FOLDER)} == before
    append(catalog, "a", "x")
    make_tag(catalog, "three")
    more = {found.path for found in store.walk(FOLDER)} - before
    id_ = catalog.timeline.head.tables[named("a")].id
    assert more
    assert all(path.startswith(f"{FOLDER}/{id_}/{1:020d}") for path in more)


def test_an_older_version_is_kept_as_it_was(catalog: TransactionalCatalog) -> None:
    older = catalog.timeline.head.version
    append(catalog, "a", "x")
    make_tag(catalog, "old", older)
    lose_log(catalog, location(catalog, "a"))
    assert files_then(catalog, older, "a") == {"p"}


def test_what_another_commits_meanwhile_is_kept_too(catalog: TransactionalCatalog, other: TransactionalCatalog) -> None:
    """The tag names the version that its entry makes: another commit that comes before it is in that."""
    tx = catalog.begin()
    tx.changing().create_tag(TagDdl(action="create", name="good"))
    store = catalog.lake.storage
    assert isinstance(store, FaultyStorage)
    store.interrupt("put_if_absent", lambda: append(other, "a", "x"), path=f"{2:020d}.json")
    tagged = catalog.commit(tx).version
    assert (tagged, catalog.timeline.at(tagged).tables[named("a")].version) == (3, 1)
    lose_log(catalog, location(catalog, "a"))
    assert files_then(catalog, tagged, "a") == {"p", "x"}


def test_a_tag_keeps_what_its_own_transaction_writes(catalog: TransactionalCatalog) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"), remove("p"))
    stage_new(catalog, tx, "c", add("z"))
    tx.changing().drop_table(named("b"))
    tx.changing().create_tag(TagDdl(action="create", name="good"))
    tagged = catalog.commit(tx).version
    for name in ("a", "c"):
        lose_log(catalog, location(catalog, name))
    assert files_then(catalog, tagged, "a") == {"x"}
    assert files_then(catalog, tagged, "c") == {"z"}
    assert len(kept_states(catalog.lake.storage).states) == 2, "the table that it dropped is not in the version"


def test_a_version_that_its_log_does_not_tell_of_gets_no_tag(catalog: TransactionalCatalog) -> None:
    older = catalog.timeline.head.version
    append(catalog, "a", "x")
    catalog.lake.storage.delete(commit_path(location(catalog, "a"), 0))
    with pytest.raises(MissingFilesError, match=r"table default\.a cannot be kept .*delta\.logRetentionDuration"):
        make_tag(catalog, "old", older)
    assert catalog.database().tag("old") is None


def test_a_table_that_is_set_aside_keeps_a_tag_from_being_made(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    store.fail("put_if_absent", path=f"{LOG}/{1:020d}.json", times=9)
    tx = catalog.begin()
    stage(catalog, tx, "a", remove("p"), add("x"))
    catalog.commit(tx)
    store.heal()
    foreign(catalog, "a", 1, remove("p"), add("other"))
    with pytest.raises(ForeignCommitError, match=r"settle it, or DROP TABLE"):
        make_tag(open_catalog(store), "good")
    assert kept_states(store).states == {}


def test_a_table_that_cannot_be_published_now_is_not_to_be_dropped_for_a_tag(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    """A disk is full: once there is room it is published."""
    store.fail("put_if_absent", path=f"{LOG}/{1:020d}.json", times=9)
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    catalog.commit(tx)
    with pytest.raises(UnavailableError, match="it has to be published first") as refused:
        make_tag(catalog, "good")
    assert "DROP TABLE" not in refused.value.message
    store.heal()
    make_tag(open_catalog(store), "good")


def test_a_killed_create_tag_leaves_a_whole_tag_or_none(tmp_path: Path) -> None:
    """Killed at each of its calls of the store, until the tag is there."""
    number, tag = 0, None
    while tag is None:
        number += 1
        store = FaultyStorage(open_storage(str(tmp_path / str(number)), create=True))
        create(open_catalog(store), "a", "b", files=["p"])
        append(open_catalog(store), "a", "x")
        dying = open_catalog(store)
        store.die_at(number)
        with suppress(LockstepError):
            make_tag(dying, "good")
        store.heal()
        there = open_catalog(store)
        if (tag := there.database().tag("good")) is not None:
            assert len(kept_states(store).states) == 2, f"killed at call {number}"
        tagged = make_tag(there, "good") if tag is None else tag.version
        for name in ("a", "b"):
            lose_log(there, location(there, name))
        assert (files_then(there, tagged, "a"), files_then(there, tagged, "b")) == ({"p", "x"}, {"p"})
    assert number > 15


def test_verify_takes_a_kept_version_for_readable(catalog: TransactionalCatalog) -> None:
    make_tag(catalog, "good")
    place = location(catalog, "a")
    catalog.run(lambda tx: tx.changing().drop_table(named("a")))
    lose_log(catalog, place)
    assert verify(catalog.lake.storage, catalog.timeline).differences == ()
    table = catalog.timeline.at(2).tables[named("a")]
    catalog.lake.storage.delete(f"{FOLDER}/{table.id}/{0:020d}.json")
    [found] = verify(catalog.lake.storage, catalog.timeline).differences
    assert (found.problem, found.needed_by, found.prevented_by) == (
        "unreadable",
        "tag good",
        "delta.logRetentionDuration",
    )


@pytest.mark.parametrize("content", [b"{torn", b'{"format":9}', b"{}"])
def test_what_says_that_a_state_is_kept_is_read_strictly(catalog: TransactionalCatalog, content: bytes) -> None:
    tagged = make_tag(catalog, "good")
    table = catalog.timeline.at(tagged).tables[named("a")]
    store, path = catalog.lake.storage, state_path(table.id, table.version)
    said = store.get(path) or b""
    for damaged in (content, said.replace(b"_lockstep/kept/", b"_lockstep/../")):
        store.put(path, damaged)
        assert told_at(store, table) == table.location, "while the log tells, nobody needs it"
        with pytest.raises(CorruptTimelineError, match=path):
            kept_state(store, table.id, table.version)
    lose_log(catalog, table.location)
    with pytest.raises(CorruptTimelineError):
        told_at(store, table)
