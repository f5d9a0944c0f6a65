"""A table's log beside the timeline: what is gone from it, by Delta's clean-up or by accident, and how it goes on."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog, new_id
from lockstep.delta.actions import render
from lockstep.delta.log import checksum_path, log_files
from lockstep.errors import CommitUnknownError, ConflictError, CorruptTimelineError
from lockstep.lake.foreign import LISTED_VERSIONS, LOOK_EVERY
from lockstep.lake.lake import Lake
from lockstep.lake.policy import PROPERTY
from lockstep.lake.verify import verify
from lockstep.storage import open_storage
from lockstep.timeline.clock import utc_now
from lockstep.timeline.files import entry_path
from lockstep.timeline.hint import HINT
from lockstep.timeline.log import Timeline
from tests.support.faulty import FaultyStorage
from tests.support.lakes import (
    add,
    append,
    create,
    files,
    foreign,
    large,
    location,
    log_file,
    metadata,
    named,
    open_catalog,
    remove,
    stage,
)


def checkpoint(catalog: TransactionalCatalog, version: int, more: str = "") -> None:
    """Put a checkpoint of table a: to Lockstep a name."""
    where = f"{location(catalog, 'a')}/_delta_log/{version:020d}.checkpoint{more}.parquet"
    catalog.lake.storage.put(where, b"PAR1")


def clean_up(catalog: TransactionalCatalog, before: int) -> None:
    """Remove commits and checksums as Delta's clean-up does."""
    for version in range(before):
        catalog.lake.storage.delete(log_file(catalog, "a", version))
        catalog.lake.storage.delete(checksum_path(location(catalog, "a"), version))


def problems(catalog: TransactionalCatalog) -> list[tuple[str, int]]:
    report = verify(catalog.lake.storage, catalog.timeline)
    return [(found.problem, found.table_version) for found in report.differences]


# --- what is gone -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gone", [{1}, {0}, {3}, {1, 2}, {0, 1, 2, 3}], ids=str)
def test_a_commit_that_is_gone_is_published_again_at_the_next_use(
    catalog: TransactionalCatalog, store: FaultyStorage, gone: set[int]
) -> None:
    for name in ("x", "y", "z"):
        append(catalog, "a", name)
    before = {version: store.get(log_file(catalog, "a", version)) for version in range(4)}
    for version in gone:
        store.delete(log_file(catalog, "a", version))
    if gone == set(before):
        checksums = [checksum_path(location(catalog, "a"), version) for version in before]
        assert all(store.exists(path) for path in checksums)
        open_catalog(store.inner).database([named("a")])
        assert log_files(store, location(catalog, "a")).is_empty, "a log that is gone as a whole is not made anew"
        return
    assert problems(catalog)
    open_catalog(store.inner).database([named("b")])
    assert problems(catalog), "only the table that is used is looked at"
    open_catalog(store.inner).database([named("a")])
    assert {version: store.get(log_file(catalog, "a", version)) for version in before} == before
    assert problems(catalog) == []


def test_begin_publishes_again_too(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    append(catalog, "a", "x")
    store.delete(log_file(catalog, "a", 1))
    open_catalog(store.inner).begin()
    assert files(catalog, "a", 1) == {"p", "x"}


def test_a_process_that_looked_a_minute_ago_looks_again(store: FaultyStorage) -> None:
    now = [utc_now()]
    catalog = open_catalog(store, clock=lambda: now[0])
    create(catalog, "a", files=["p"])
    append(catalog, "a", "x")
    append(catalog, "a", "y")
    catalog.database([named("a")])
    store.delete(log_file(catalog, "a", 1))
    now[0] += LOOK_EVERY / 2
    calls = store.count("list")
    catalog.database([named("a")])
    assert store.count("list") == calls, "a look costs a list of the log, and is not taken at every use"
    now[0] += LOOK_EVERY
    assert files(catalog, "a") == {"p", "x", "y"}
    now[0] -= timedelta(days=1)
    store.delete(log_file(catalog, "a", 1))
    assert files(catalog, "a") == {"p", "x", "y"}, "a clock that was put back keeps nobody from looking"


def test_a_look_lists_the_newest_versions_alone(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    for n in range(LISTED_VERSIONS + 5):
        foreign(catalog, "a", n + 1, add(f"f{n}"))
    checkpoint(catalog, LISTED_VERSIONS)
    catalog.database([named("a")])
    store.delete(log_file(catalog, "a", 1))
    other = FaultyStorage(store.inner)
    found = open_catalog(other).database([named("a")]).tables[named("a")]
    assert found.version == LISTED_VERSIONS + 5
    assert other.count("list", f"{location(catalog, 'a')}/_delta_log") == 1


def test_a_moved_commit_that_is_gone_is_published_where_it_was(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    store.interrupt("put_if_absent", lambda: foreign(catalog, "a", 1, add("f")), path=log_file(catalog, "a", 1))
    catalog.commit(tx)
    append(catalog, "a", "y")
    before = store.get(log_file(catalog, "a", 2))
    store.delete(log_file(catalog, "a", 2))
    open_catalog(store.inner).database([named("a")])
    assert store.get(log_file(catalog, "a", 2)) == before


def test_what_nobody_has_any_more_is_named(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    foreign(catalog, "a", 1, add("f"))
    append(catalog, "a", "x")
    store.delete(log_file(catalog, "a", 1))
    again = open_catalog(store.inner)
    with pytest.raises(CorruptTimelineError, match=r"0001\.json is gone, which a plain Delta writer wrote"):
        again.database([named("a")])
    tx = again.begin()
    with pytest.raises(CorruptTimelineError, match=r"0001\.json is gone, which a plain Delta writer wrote"):
        again.table(tx, named("a"))
    assert again.table(tx, named("b")).version == 0, "it keeps nobody from the others"
    append(again, "b", "y")
    checkpoint(catalog, 2)
    assert again.database([named("a")]).tables[named("a")].version == 2, "from a checkpoint it can be read"


def test_a_large_commit_that_is_gone_is_named(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", large("x"))
    catalog.commit(tx)
    store.delete(log_file(catalog, "a", 1))
    with pytest.raises(CorruptTimelineError, match="neither its staged file"):
        open_catalog(store.inner).database([named("a")])


def test_nothing_is_committed_into_a_table_whose_folder_is_gone(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    """Delta makes the folder anew for what it writes; the commit would be alone in a log that nobody can read."""
    tx, dropping, elsewhere = (catalog.begin() for _ in range(3))
    where = location(catalog, "a")
    store.delete_folder(where)
    stage(catalog, tx, "a", add("x"))
    with pytest.raises(CorruptTimelineError, match=r"0000\.json is gone, which is committed.*DROP TABLE"):
        catalog.commit(tx)
    store.put(f"{where}/y", b"rows")
    with pytest.raises(CorruptTimelineError, match=r"0000\.json is gone, which is committed"):
        catalog.write(where, 1, render([{"commitInfo": {"operation": "WRITE"}}, add("y")]).decode())
    assert log_files(store, where).is_empty
    assert [*catalog.timeline.refresh()] == []
    assert catalog.timeline.head.version == 1
    catalog.rollback(tx)
    stage(catalog, elsewhere, "b", add("z"))
    catalog.commit(elsewhere)
    dropping.changing().drop_table(named("a"))
    catalog.commit(dropping)
    assert named("a") not in catalog.database().tables


def test_what_later_commits_removed_need_not_be_there_for_a_commit_to_be_published_again(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    """VACUUM takes such files: all that is live is there, and so is the commit, in the timeline."""
    append(catalog, "a", "x")
    for version, (old, new) in enumerate([("x", "y"), ("y", "z")], 2):
        tx = catalog.begin()
        stage(catalog, tx, "a", remove(old), add(new))
        catalog.commit(tx)
        store.delete(f"{location(catalog, 'a')}/{old}")
        assert catalog.database([named("a")]).tables[named("a")].version == version
    for gone in ({1}, {2}, {1, 2}):
        for version in gone:
            store.delete(log_file(catalog, "a", version))
        assert files(open_catalog(store.inner), "a") == {"p", "z"}


def test_a_file_that_a_later_commit_needs_must_be_there(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    """Another deletion vector takes the place of a file's action, and a file that was removed may be added again."""
    append(catalog, "a", "x")
    for actions in ([remove("x"), add("x", tags={"vector": "1"})], [remove("x")], [add("x")]):
        tx = catalog.begin()
        stage(catalog, tx, "a", *actions)
        catalog.commit(tx)
    where = location(catalog, "a")
    for last in (2, 4):
        store.delete(log_file(catalog, "a", 1))
        store.delete(f"{where}/x")
        database = catalog.timeline.at(last + 1)
        with pytest.raises(CorruptTimelineError, match="/x is gone"):
            Lake(store, catalog.timeline, clock=utc_now, new_id=new_id).take_in([database.tables[named("a")]])


def test_nothing_is_taken_in_behind_a_moved_commit_that_is_not_published_yet(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    """Ours would count as published then, and nobody could move it again: its rows would be in no log."""
    for version in (1, 2):  # the place where it was ratified, and that to which it is moved
        store.fail("put_if_absent", path=log_file(catalog, "a", version), times=100)
    append(catalog, "a", "ours")
    foreign(catalog, "a", 1, add("theirs"))
    mover = open_catalog(store)
    mover.database()
    assert [*mover.timeline.moves.values()] == [2]
    for version in (2, 3):
        foreign(catalog, "a", version, add(f"theirs {version}"))
    newest = mover.timeline.head
    other = Lake(store.inner, Timeline.open(store.inner), clock=utc_now, new_id=new_id)
    for lake in (mover.lake, other):  # one that has failed to publish it, and one that has not tried
        lake._foreign.take_in(newest.tables[named("a")])
        assert lake.timeline.head.version == newest.version, "it is published first, by whoever uses the table"
    store.heal()
    assert files(open_catalog(store.inner), "a") == {"p", "theirs", "theirs 2", "theirs 3", "ours"}
    assert problems(open_catalog(store.inner)) == []


def test_nothing_is_taken_in_behind_a_commit_that_is_not_published_of_a_table_that_was_renamed_since(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    """Whose rename is done with says nothing of the commit before it."""
    store.fail("put_if_absent", path=log_file(catalog, "a", 1), times=100)
    append(catalog, "a", "ours")
    renamer = open_catalog(store)
    renamer.database([])
    renamer.run(lambda tx: tx.change_names(lambda names: names.rename_table(named("a"), named("z"))))
    for version in (1, 2):
        foreign(renamer, "z", version, add(f"theirs {version}"))
    newest = renamer.timeline.head
    other = Lake(store.inner, Timeline.open(store.inner), clock=utc_now, new_id=new_id)
    for lake in (renamer.lake, other):
        lake._foreign.take_in(newest.tables[named("z")])
        assert lake.timeline.head.version == newest.version
    store.heal()
    assert files(open_catalog(store.inner), "z") == {"p", "theirs 1", "theirs 2", "ours"}
    assert problems(open_catalog(store.inner)) == []


# --- what Delta's clean-up took ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("hint", [True, False])
def test_what_deltas_clean_up_took_stays_gone(catalog: TransactionalCatalog, store: FaultyStorage, hint: bool) -> None:
    for name in ("x", "y", "z"):
        append(catalog, "a", name)
    foreign(catalog, "a", 4, add("f"))
    append(catalog, "a", "w")
    checkpoint(catalog, 4)
    clean_up(catalog, 4)
    if not hint:
        store.delete(HINT)
    again = open_catalog(store.inner)
    assert again.database([named("a")]).tables[named("a")].version == 5
    assert log_files(store, location(catalog, "a")).commits == {4, 5}
    assert again.timeline.published_through == again.timeline.head.version
    assert problems(again) == []
    assert verify(store, again.timeline).expired == 4
    store.delete(log_file(again, "a", 5))
    assert problems(again) == [("unpublished", 5)]
    open_catalog(store.inner).database([named("a")])
    assert log_files(store, location(catalog, "a")).commits == {4, 5}


@pytest.mark.parametrize(
    ("names", "whole"),
    [
        (["7.checkpoint.parquet"], {7}),
        (["7.checkpoint.0000000001.0000000002.parquet"], set()),
        (["7.checkpoint.0000000001.0000000002.parquet", "7.checkpoint.0000000002.0000000002.parquet"], {7}),
        (["7.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"], {7}),
        (["7.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet"], {7}),
        (["7.checkpoint.parquet.tmp", "7.checkpoint", "_last_checkpoint", "7.8.compacted.json", "7.crc"], set()),
    ],
)
def test_a_checkpoint_counts_when_it_is_whole(store: FaultyStorage, names: list[str], whole: set[int]) -> None:
    for name in names:
        padded = name if name.startswith("_") else f"{int(name[0]):020d}{name[1:]}"
        store.put(f"t/_delta_log/{padded}", b"")
    assert log_files(store, "t").checkpoints == whole


def test_a_lost_hint_makes_no_dropped_tables_log_anew(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    """Dropped tables' files stay until somebody removes them, and then they are gone."""
    append(catalog, "a", "x")
    where = location(catalog, "a")
    catalog.run(lambda tx: tx.changing().drop_table(named("a")))
    store.delete_folder(where)
    store.delete(HINT)
    assert open_catalog(store.inner).database().version == 3
    assert not Path(store.url.removeprefix("file://"), where).exists()


def test_a_commit_that_landed_from_a_clock_that_is_ahead_is_not_brought_back(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    """Its time says that it was made a moment ago, for hours; so it is not its time that tells what is cleaned up."""
    ahead = open_catalog(store.inner, clock=lambda: utc_now() + timedelta(hours=5))
    append(ahead, "a", "x")
    tx = catalog.begin()
    stage(catalog, tx, "a", add("y"))
    store.go_down(entry_path(3), landed=True)
    with pytest.raises(CommitUnknownError):
        catalog.commit(tx)
    store.heal()
    other = open_catalog(store.inner)
    assert files(other, "a") == {"p", "x", "y"}
    foreign(other, "a", 3, add("f"))
    checkpoint(other, 3)
    clean_up(other, 3)
    assert catalog.commit(tx).version == 3
    assert log_files(store, location(other, "a")).commits == {3}


# --- a log that was cleaned past what the timeline knows --------------------------------------------------------------


def left_to_others(catalog: TransactionalCatalog, last: int = 15, kept: int = 10) -> None:
    """Let plain writers commit up to a version, checkpoint at `kept`, and clean up what is before it."""
    for version in range(1, last + 1):
        foreign(catalog, "a", version, add(f"f{version}"))
    checkpoint(catalog, kept)
    clean_up(catalog, kept)


@pytest.mark.parametrize("begin", [False, True])
def test_a_log_that_was_cleaned_past_what_is_known_is_taken_in_from_its_checkpoint(
    catalog: TransactionalCatalog, store: FaultyStorage, begin: bool
) -> None:
    left_to_others(catalog)
    again = open_catalog(store.inner)
    table = again.table(again.begin(), named("a")) if begin else again.database([named("a")]).tables[named("a")]
    assert table.version == 15
    [entry] = again.timeline.entries(1)
    assert (entry.kind, entry.writes[0].from_version, entry.writes[0].to_version) == ("external", 0, 15)
    assert problems(again) == []
    append(again, "a", "x")
    foreign(again, "a", 17, add("g"))
    assert again.database([named("a")]).tables[named("a")].version == 17
    assert open_catalog(store.inner).as_of(1).tables[named("a")].version == 0


def test_what_came_in_between_conflicts_with_whoever_used_the_table(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    reader, writer, both, elsewhere = (catalog.begin() for _ in range(4))
    stage(catalog, writer, "a", add("x"))
    both.read(both.table(named("a")), "(id = 1)")
    stage(catalog, both, "a", add("y"))
    stage(catalog, elsewhere, "b", add("z"))
    reader.read(reader.table(named("a")))
    left_to_others(catalog)
    for loser in (writer, both):
        with pytest.raises(ConflictError, match=r"changed the schema or properties of table default\.a"):
            catalog.commit(loser)
    catalog.commit(elsewhere)
    catalog.commit(reader)
    tx = catalog.begin()
    stage(catalog, tx, "b", add("w"))
    catalog.commit(tx)


def test_a_checkpoint_that_follows_on_what_is_known_leaves_nothing_out(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    append(catalog, "a", "x")
    checkpoint(catalog, 1)
    clean_up(catalog, 1)
    again = open_catalog(store.inner)
    assert again.database([named("a")]).version == 2, "no external entry"


def test_a_ratified_commit_behind_such_a_log_is_not_brought_back(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    """The hint is lost, too: what a checkpoint covers was published by somebody."""
    append(catalog, "a", "x")
    for version in range(2, 16):
        foreign(catalog, "a", version, add(f"f{version}"))
    checkpoint(catalog, 10)
    clean_up(catalog, 10)
    store.delete(HINT)
    again = open_catalog(store.inner)
    assert again.database([named("a")]).tables[named("a")].version == 15
    assert min(log_files(store, location(again, "a")).commits) == 10


def test_the_footprint_of_a_cleaned_up_external_commit_is_anybodys_guess(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    """Noticed while it was there, cleaned up before a transaction that began earlier commits."""
    a, b = catalog.begin(), catalog.begin()
    stage(catalog, a, "a", add("x"))
    stage(catalog, b, "b", add("y"))
    foreign(catalog, "a", 1, remove("p"))
    open_catalog(store.inner).database([named("a")])
    checkpoint(catalog, 1)
    foreign(catalog, "a", 2, add("f"))
    clean_up(catalog, 2)
    catalog.commit(b)
    with pytest.raises(ConflictError):
        catalog.commit(a)


# --- what it costs to take in -----------------------------------------------------------------------------------------


def looks(store: FaultyStorage, count: int, *, policy: str = "absorb", losses: int = 0) -> list[str]:
    """Return what it asks of a table's log to take in so many commits, and to lose the timeline to others so often.

    In no order: some of it is asked side by side.
    """
    catalog, other = open_catalog(store), open_catalog(store.inner)
    tx = catalog.begin()
    stage(catalog, tx, "a", metadata(**{PROPERTY: policy}))
    catalog.commit(tx)
    for n in range(1, count + 1):
        foreign(catalog, "a", 1 + n, add(f"t{n}"))
    for _ in range(losses):
        store.interrupt("put_if_absent", lambda: append(other, "b", new_id()), path=".json")
    before = catalog.timeline.head.version
    store.calls.clear()
    assert catalog.database([named("a")]).tables[named("a")].version == 1 + count
    assert catalog.timeline.head.version == before + losses + 1
    return sorted(operation for operation, path in store.calls if path.startswith(location(catalog, "a")))


@pytest.fixture
def stores(tmp_path: Path) -> list[FaultyStorage]:
    """Two lakes of the same tables."""
    stores = [FaultyStorage(open_storage(str(tmp_path / name), create=True)) for name in ("one", "two")]
    for store in stores:
        create(open_catalog(store), "a", "b", files=["p"])
    return stores


def test_many_commits_are_found_by_as_few_requests_as_some(stores: list[FaultyStorage]) -> None:
    few, many = looks(stores[0], 10), looks(stores[1], 100)
    assert few == many
    assert len(few) < 12, few


@pytest.mark.parametrize("policy", ["absorb", "warn"])
def test_an_attempt_that_is_lost_to_others_costs_no_look_at_the_log(stores: list[FaultyStorage], policy: str) -> None:
    """While it looks again at what it knows, others would win the next one, too."""
    assert looks(stores[0], 5, policy=policy) == looks(stores[1], 5, policy=policy, losses=3)


def test_a_commit_of_ours_that_wins_the_timeline_is_not_taken_for_a_plain_writers(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    """What is known of a log is known of the table as it was then, and of no other."""
    foreign(catalog, "a", 1, add("theirs"))
    store.interrupt("put_if_absent", lambda: append(other, "a", "ours"), path=entry_path(2))
    assert files(catalog, "a") == {"p", "theirs", "ours"}
    assert [entry.kind for entry in catalog.timeline.entries(1)] == ["external", "transaction"]


@pytest.mark.parametrize(
    "line", ['{"add":{}}', '{"txn":{"version":1}}', '{"remove":{"path":5}}', '{"domainMetadata":{}}']
)
def test_a_commit_of_which_nobody_can_tell_what_it_is_about_is_not_taken_in(
    catalog: TransactionalCatalog, store: FaultyStorage, line: str
) -> None:
    """Of such an entry no later commit could say whether it conflicts with it; other tables go on."""
    tx = catalog.begin()
    stage(catalog, tx, "a", add("mine"))
    path = log_file(catalog, "a", 1)
    store.inner.put(path, f"{line}\n".encode())
    with pytest.raises(CorruptTimelineError, match=f"{path}: line 1 of the Delta commit is an action"):
        catalog.commit(tx)
    assert tx.state == "INFLIGHT"
    append(catalog, "b", "q")
    store.inner.delete(path)
    catalog.commit(tx)
    assert files(catalog, "a") == {"p", "mine"}
