"""What upkeep keeps for it cannot know that nobody needs it: unknown features, clones of open transactions, clocks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.commit import records
from lockstep.commit.commit import commit
from lockstep.commit.files import Gone
from lockstep.commit.outcomes import Committed, Outcome
from lockstep.delta.log import commit_path, staging_folder
from lockstep.errors import InvalidError, MissingFilesError
from lockstep.lake import deletions
from lockstep.lake.guests import guests, note_guests
from lockstep.lake.guests import path_of as guests_path
from lockstep.retention import clocks, survey
from lockstep.retention.ages import Retention
from lockstep.retention.beside import beside
from lockstep.retention.expiring import expire_snapshots
from lockstep.retention.pins import CLOCKS, pins
from lockstep.retention.planning import EVERYTHING, Scope, plan, shared_files
from lockstep.retention.upkeep import maintain, remove_orphan_files, status, vacuum
from lockstep.storage import Found, open_storage
from lockstep.timeline.entry import TagDdl
from lockstep.transactions.state import State
from lockstep.transactions.transaction import Transaction
from tests.support.faulty import FaultyStorage
from tests.support.lakes import (
    add,
    again,
    append,
    create,
    foreign,
    location,
    metadata,
    named,
    open_catalog,
    remove,
    stage,
    stage_new,
)
from tests.support.memory import MemoryStorage
from tests.support.retained import AgedStorage, Ticking

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
AT_ONCE = Retention(age=timedelta(), last=1, grace=timedelta(), orphan_age=7 * DAY)
UNKNOWN = "adaptiveMetadata-preview"


@pytest.fixture
def catalog(aged: AgedStorage, clock: Ticking) -> TransactionalCatalog:
    """A lake with the tables a and b; in a p gave way to q nine days ago, and versions with p have expired."""
    catalog = open_catalog(aged, clock=clock)
    create(catalog, "a", "b", files=["p"])
    change(catalog, "a", remove("p", deletionTimestamp=clock.ms), add("q"))
    clock.now += 9 * DAY
    append(catalog, "b", "later")
    expire(catalog)
    return catalog


def change(catalog: TransactionalCatalog, name: str, *actions: Any) -> int:
    tx = catalog.begin()
    stage(catalog, tx, name, *actions)
    return catalog.commit(tx).version


def expire(catalog: TransactionalCatalog) -> None:
    expire_snapshots(catalog.lake, older_than=catalog.lake.clock(), retain_last=1, grace=timedelta())


def data(catalog: TransactionalCatalog, name: str) -> set[str]:
    return {path for path in catalog.lake.storage.list(location(catalog, name)) if not path.startswith(("_", "."))}


# --- features that nobody here knows ----------------------------------------------------------------------------------


def test_a_table_with_an_unknown_feature_is_kept_whole_and_so_is_all_that_it_may_share(
    catalog: TransactionalCatalog, clock: Ticking
) -> None:
    """A plain Delta writer gave it the feature; which files that needs beside those of `add`, nobody here knows."""
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [UNKNOWN], "writerFeatures": [UNKNOWN]}
    foreign(catalog, "b", 2, {"protocol": protocol})
    catalog.lake.storage.put(f"{location(catalog, 'b')}/manifest", b"files")
    clock.now += 40 * DAY
    for _ in range(2):
        process = again(catalog)
        done = maintain(process.lake, AT_ONCE)
        assert done.swept.deleted_files == 0
        kept = status(process.lake, AT_ONCE).kept_whole
        assert kept == done.swept.kept_whole
        assert {*kept} == {location(catalog, "a"), location(catalog, "b")}
        assert all(f"table feature {UNKNOWN}" in why for why in kept.values())
        assert "which shares files of this one" in kept[location(catalog, "a")]
    assert data(catalog, "a") == {"p", "q"}
    with pytest.raises(MissingFilesError, match=rf"nothing was deleted: .* {UNKNOWN}.* shares files of") as caught:
        shared_files(again(catalog).lake, location(catalog, "a"))
    assert "cannot be read" not in caught.value.message


@pytest.mark.parametrize("feature", ["icebergCompatV1", "icebergCompatV2"])
def test_a_table_for_iceberg_keeps_nothing_but_what_its_log_names(
    catalog: TransactionalCatalog, clock: Ticking, feature: str
) -> None:
    protocol = {"minReaderVersion": 2, "minWriterVersion": 7, "writerFeatures": [feature, "columnMapping"]}
    foreign(catalog, "b", 2, {"protocol": protocol})
    clock.now += 40 * DAY
    done = maintain(again(catalog).lake, AT_ONCE)
    assert (done.swept.kept_whole, data(catalog, "a")) == ({}, {"q"})


# --- clones of open transactions --------------------------------------------------------------------------------------


def cloning(catalog: TransactionalCatalog, table: str = "clone", *, seen: bool = True) -> Transaction:
    """Stage a shallow clone of the version of a that has p, which no database version has any more."""
    tx = catalog.begin()
    shared = add(f"{catalog.lake.storage.url}/{location(catalog, 'a')}/p", modificationTime=0)
    if named(table) in tx.names.tables:
        stage(catalog, tx, table, shared)
    else:
        stage_new(catalog, tx, table, shared)
    if seen:
        records.write(catalog.lake, records.record_of(tx, now=catalog.lake.clock(), process="there"))
    return tx


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("table", ["clone", "b"])
def test_a_clone_that_is_not_committed_keeps_what_it_shares(
    catalog: TransactionalCatalog, clock: Ticking, table: str, seen: bool
) -> None:
    other = again(catalog)
    tx = cloning(other, table, seen=seen)
    assert maintain(again(catalog).lake, AT_ONCE).swept.deleted_files == 0
    assert vacuum(again(catalog).lake, AT_ONCE).deleted_files == 0
    other.commit(tx)
    assert data(catalog, "a") == {"p", "q"}
    assert shared_files(again(catalog).lake, location(catalog, "a")) == {"p"}


@pytest.mark.parametrize("table", ["clone", "b"])
def test_so_it_does_where_one_table_alone_is_looked_at(catalog: TransactionalCatalog, table: str) -> None:
    """By upkeep, or by Delta's VACUUM. Of a table that is being made nobody but the store knows the folder."""
    other = again(catalog)
    tx = cloning(other, table)
    assert vacuum(again(catalog).lake, AT_ONCE, table=named("a")).deleted_files == 0
    assert beside(again(catalog).lake, location(catalog, "a"), timedelta(), []).files == {"p"}
    other.rollback(tx)
    records.remove(other.lake, tx.id)
    assert beside(again(catalog).lake, location(catalog, "a"), timedelta(), []).files == set()
    assert vacuum(again(catalog).lake, AT_ONCE, table=named("a")).deleted_files == 1


def test_what_cannot_be_read_of_what_is_staged_may_be_such_a_clone(
    catalog: TransactionalCatalog, clock: Ticking
) -> None:
    """Until it is old enough to be nobody's, and goes by itself."""
    place = "default/new-0123456789abcdef01234567"
    catalog.lake.storage.put(f"{staging_folder(place, 'x')}/{0:020d}.json", b"{")
    swept = maintain(again(catalog).lake, AT_ONCE).swept
    assert swept.deleted_files == 0
    assert "what a transaction staged" in swept.kept_whole[location(catalog, "a")]
    clock.now += 8 * DAY
    maintain(again(catalog).lake, AT_ONCE)
    assert maintain(again(catalog).lake, AT_ONCE).swept.kept_whole == {}
    assert data(catalog, "a") == {"q"}


# --- transactions that nobody has looked at ---------------------------------------------------------------------------


def test_where_there_are_more_records_than_are_read_nothing_goes_that_may_be_of_the_others(
    catalog: TransactionalCatalog, clock: Ticking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That some of those that were read have ended, and are left out, makes the others none the fewer."""
    monkeypatch.setattr(records, "MAX_RECORDS", 3)
    other = again(catalog)
    opened = sorted((other.begin() for _ in range(4)), key=lambda tx: tx.id)
    other.lake.storage.put(f"{location(catalog, 'a')}/unread", b"rows")
    stage(other, opened[0], "b", add("x"))
    other.commit(opened[0])
    clock.now += 20 * DAY

    def seen() -> TransactionalCatalog:
        for tx in opened:
            records.write(other.lake, records.record_of(tx, now=clock(), process="there"))
        return again(catalog)

    found = pins(seen().lake)
    assert (found.transactions, found.written) == (None, None)
    assert remove_orphan_files(seen().lake, AT_ONCE).deleted_files == 0
    assert beside(seen().lake, location(catalog, "a"), DAY, []).since < clock.now - 999 * DAY
    before = seen().timeline.head.expired
    append(seen(), "b", "y")
    expire(seen())
    assert again(catalog).timeline.head.expired == before


def test_who_is_stopped_for_long_while_he_looks_takes_nobody_for_lost_whom_he_has_seen(
    catalog: TransactionalCatalog, clock: Ticking
) -> None:
    """A host may sleep for days between two requests."""
    other = again(catalog)
    tx = other.begin()
    records.write(other.lake, records.record_of(tx, now=clock(), process="there"))
    faulty = FaultyStorage(catalog.lake.storage)
    watcher = open_catalog(faulty, clock=clock)

    def sleep() -> None:
        clock.now += 2 * DAY

    faulty.interrupt("get", sleep, path=f"{tx.id}.json", when="after")
    began = clock.now
    assert pins(watcher.lake).open_ids == {tx.id}
    assert clock.now > began + DAY


WRITTEN: list[tuple[list[tuple[str, State, int]], int | None]] = [
    # of each record its transaction, state and how many tables it names; how many are known, None where not all are
    ([], 0),
    ([("t", State.INFLIGHT, 2), ("u", State.INFLIGHT, 3)], 3),
    ([("t", State.REQUESTED, 0)], 0),
    ([("t", State.INFLIGHT, 0)], None),
    ([("t", State.INFLIGHT, 2), ("t", State.INFLIGHT, 0)], 2),
    ([("t", State.INFLIGHT, records.MAX_TABLES)], None),
]


@pytest.mark.parametrize(("told", "known"), WRITTEN)
def test_which_tables_open_transactions_have_written_is_known_where_all_say_it(
    catalog: TransactionalCatalog, told: list[tuple[str, State, int]], known: int | None
) -> None:
    """Of one that is busy its own process says none, and what it told others before counts."""
    own = [
        records.OpenRecord(
            format=records.FORMAT,
            transaction=id_,
            state=state,
            base_version=0,
            began_at=catalog.lake.clock(),
            seen_at=catalog.lake.clock(),
            isolation="SNAPSHOT",
            process="here",
            tables=tuple(named(f"t{n}") for n in range(count)),
        )
        for id_, state, count in told
    ]
    found = pins(catalog.lake, own).written
    assert (None if found is None else len(found)) == known


# --- time -------------------------------------------------------------------------------------------------------------


def test_nothing_that_was_removed_less_than_an_hour_ago_goes_whatever_the_tables_property_says(
    catalog: TransactionalCatalog, clock: Ticking
) -> None:
    """A RESTORE that has read it as a file younger than half an hour does not look whether it is going."""
    change(catalog, "a", metadata(**{"delta.deletedFileRetentionDuration": "interval 0 seconds"}), add("new"))
    change(catalog, "a", remove("new", deletionTimestamp=clock.ms))
    append(catalog, "b", "more")
    expire(catalog)
    for minutes in (0, 29, 30):
        clock.now += minutes * MINUTE
        assert f"{location(catalog, 'a')}/new" not in vacuum(again(catalog).lake, AT_ONCE).paths
    clock.now += 2 * MINUTE
    assert f"{location(catalog, 'a')}/new" in vacuum(again(catalog).lake, AT_ONCE).paths


def test_what_comes_while_upkeep_looks_is_young_however_long_that_takes(
    catalog: TransactionalCatalog, aged: AgedStorage, clock: Ticking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing of millions of files, or a process that was stopped: who begins meanwhile is not among who is open."""
    walk = aged.walk

    def slow(folder: str) -> Iterator[Found]:
        aged.put(f"{location(catalog, 'a')}/new", b"rows")
        clock.now += 8 * DAY
        return walk(folder)

    process = again(catalog)
    monkeypatch.setattr(aged, "walk", slow)
    found = plan(process.lake, Scope(EVERYTHING, orphan_age=AT_ONCE.orphan_age), AT_ONCE)
    assert f"{location(catalog, 'a')}/new" not in {each.path for each in found.doomed}


@pytest.mark.parametrize("is_lost", [False, True])
def test_what_was_committed_between_two_pages_of_a_listing_is_looked_for_again(
    catalog: TransactionalCatalog, aged: AgedStorage, monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    """As a promotion's copies, which are as old as what they are of; by that name, for stores may know it by others."""
    change(catalog, "a", add("copied", modificationTime=1))
    place, walk, torn = location(catalog, "a"), aged.walk, list[str]()
    kept = f"{place}/copied"
    assert place not in plan(again(catalog).lake, Scope(EVERYTHING, orphan_age=7 * DAY), AT_ONCE).kept_whole

    def paged(folder: str) -> Iterator[Found]:
        hides = is_lost or not torn
        for each in walk(folder):
            if hides and each.path == kept:
                torn.append(kept)
            else:
                yield each

    monkeypatch.setattr(aged, "walk", paged)
    found = plan(again(catalog).lake, Scope(EVERYTHING, orphan_age=7 * DAY), AT_ONCE)
    assert (place in found.kept_whole) is is_lost
    assert torn


def test_a_version_that_a_tag_kept_alone_expires_once_the_tag_is_dropped_though_its_time_has_expired(
    catalog: TransactionalCatalog, clock: Ticking
) -> None:
    version = catalog.timeline.head.version
    catalog.run(lambda tx: tx.changing().create_tag(TagDdl(action="create", name="eod", version=version)))
    for n in range(3):
        append(catalog, "a", f"n{n}")
    expire(catalog)
    assert again(catalog).timeline.head.expired.kept == (version,)
    catalog.lake.refresh()
    catalog.run(lambda tx: tx.changing().drop_tag("eod"))
    clock.now += HOUR
    process = again(catalog)
    expire_snapshots(process.lake, older_than=clock.now - 30 * DAY, retain_last=100, grace=timedelta())
    expired = again(catalog).timeline.head.expired
    assert expired.kept == ()
    assert expired.first_kept == process.timeline.head.expired.first_kept


@pytest.mark.parametrize("minutes", [40 * 24 * 60, 11, -11])
def test_where_the_clock_is_not_the_stores_nothing_expires_and_nothing_goes(
    catalog: TransactionalCatalog, aged: AgedStorage, clock: Ticking, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    """Else a host whose clock is ahead lets the history expire for ever, with tags, and no file is young to it."""
    monkeypatch.setattr(clocks, "CLOCKS", CLOCKS)
    until = clock.now + 20 * DAY
    tag = TagDdl(action="create", name="keep", version=catalog.timeline.head.version, retain_until=until)
    catalog.run(lambda tx: tx.changing().create_tag(tag))
    append(catalog, "a", "more")
    before = again(catalog).timeline.head.expired
    wrong = Ticking(clock.now + minutes * MINUTE)

    def own_clock() -> datetime:
        clock.now += MINUTE / 60_000  # the store's time goes on, too
        return wrong()

    process = open_catalog(aged, clock=own_clock)
    for run in (maintain, vacuum, remove_orphan_files):
        with pytest.raises(InvalidError, match=r"this host's clock says .* Set the clock right") as error:
            run(process.lake, AT_ONCE)
        assert error.value.sqlstate == "22023"
    with pytest.raises(InvalidError, match="this host's clock"):
        expire_snapshots(process.lake, older_than=wrong(), retain_last=1, grace=timedelta())
    assert again(catalog).timeline.head.expired == before
    assert data(catalog, "a") == {"p", "q", "more"}
    assert aged.list(deletions.FOLDER) == []
    status(process.lake, AT_ONCE)
    maintain(process.lake, AT_ONCE, dry_run=True)


def test_clocks_may_be_some_minutes_apart(
    catalog: TransactionalCatalog, aged: AgedStorage, clock: Ticking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what a run left that was killed while it looked at the clock goes with a later one."""
    monkeypatch.setattr(clocks, "CLOCKS", CLOCKS)
    aged.put(f"{deletions.FOLDER}/clock-x", b"now")
    clock.now += 2 * HOUR
    for minutes in (9, -9):
        maintain(open_catalog(aged, clock=Ticking(clock.now + minutes * MINUTE)).lake, AT_ONCE)
        assert not [name for name in aged.list(deletions.FOLDER) if name.startswith("clock-")]


def test_a_mark_from_before_something_was_needed_again_voids_no_grace(
    catalog: TransactionalCatalog, clock: Ticking
) -> None:
    """A reader that began while a clone had the file reads it to its end, whatever waits beside it."""
    slow = replace(AT_ONCE, grace=DAY)
    catalog.lake.storage.put(f"{location(catalog, 'b')}/x", b"litter")
    clock.now += 9 * DAY
    assert vacuum(again(catalog).lake, slow).waiting_files == 2
    tx = catalog.begin()
    stage_new(catalog, tx, "clone", add(f"{catalog.lake.storage.url}/{location(catalog, 'a')}/p", modificationTime=1))
    catalog.commit(tx)
    assert maintain(again(catalog).lake, slow).swept.waiting_files == 1
    clock.now += 25 * HOUR
    assert [path.rpartition("/")[2] for path in vacuum(again(catalog).lake, slow).paths] == ["x"]
    catalog.run(lambda tx: tx.changing().drop_table(named("clone")))
    append(catalog, "b", "more")
    expire(catalog)
    assert vacuum(again(catalog).lake, slow).deleted_files == 0
    assert "p" in data(catalog, "a")
    clock.now += 25 * HOUR
    assert vacuum(again(catalog).lake, slow).deleted_files == 1
    assert "p" not in data(catalog, "a")


# --- names, and what nobody has read ----------------------------------------------------------------------------------


def test_where_the_log_names_a_file_that_is_not_there_by_that_name_no_data_goes(
    catalog: TransactionalCatalog, clock: Ticking
) -> None:
    """On a mount to which the case of letters makes no difference the folder of p=a may be called p=A."""
    place, storage = location(catalog, "b"), catalog.lake.storage
    change(catalog, "b", add("p=a/f", modificationTime=1), remove("p", deletionTimestamp=clock.ms))
    storage.delete(f"{place}/p=a/f")
    storage.put(f"{place}/p=A/f", b"rows")
    clock.now += 40 * DAY
    append(catalog, "b", "more")
    kept = maintain(again(catalog).lake, AT_ONCE).swept.kept_whole
    assert {*kept} == {place}
    assert f"its log names {place}/p=a/f" in kept[place]
    assert status(again(catalog).lake, AT_ONCE).kept_whole == kept
    assert storage.exists(f"{place}/p=A/f")
    assert storage.exists(f"{place}/p")
    assert data(catalog, "a") == {"q"}


@pytest.mark.parametrize("has_read", [True, False])
def test_a_log_is_not_cut_at_a_checkpoint_that_nobody_has_read(
    catalog: TransactionalCatalog, clock: Ticking, monkeypatch: pytest.MonkeyPatch, has_read: bool
) -> None:
    """Without pyarrow all commits are read; a checkpoint may be damaged, and then they are all that tells."""
    monkeypatch.setattr(survey, "can_read", lambda: has_read)
    place = location(catalog, "b")
    deltalake.DeltaTable(f"{catalog.lake.storage.url}/{place}").create_checkpoint()
    clock.now += 40 * DAY
    maintain(again(catalog).lake, AT_ONCE)
    assert catalog.lake.storage.exists(commit_path(place, 0)) is not has_read


def test_a_record_of_guests_that_is_rolled_back_while_it_is_read_says_nothing(aged: AgedStorage) -> None:
    faulty = FaultyStorage(aged)
    note_guests(aged, "x", ["default/t"])
    note_guests(aged, "y", ["default/u"])
    faulty.interrupt("get", lambda: aged.delete(guests_path("x")), path=guests_path("x"))
    assert guests(faulty) == {"default/u"}


# --- commits beside it ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_long", [True, False])
def test_change_data_of_a_long_transaction_is_not_committed_while_it_goes(
    catalog: TransactionalCatalog, clock: Ticking, is_long: bool
) -> None:
    """To upkeep it may look like litter by now, and the log does not say how old it is."""
    path = f"{location(catalog, 'b')}/_change_data/c"
    other = again(catalog)
    tx = other.begin()
    stage(other, tx, "b", add("y"), {"cdc": {"path": "_change_data/c", "size": 1, "partitionValues": {}}})
    clock.now += DAY if is_long else timedelta()
    deletions.begin(catalog.lake.storage, deletions.Begun(format=1, id="x", began_at=clock.now, files=(path,)))
    outcome = commit(other.lake, tx)
    assert isinstance(outcome, Gone) is is_long, "what a statement writes is young"


@pytest.mark.parametrize("is_long", [True, False])
def test_a_table_that_a_long_transaction_made_is_not_committed_while_its_folder_goes(
    catalog: TransactionalCatalog, clock: Ticking, is_long: bool
) -> None:
    """It may have no file that says how old it is."""
    other = again(catalog)
    tx = other.begin()
    folder = stage_new(other, tx, "new")
    clock.now += DAY if is_long else timedelta()
    deletions.begin(catalog.lake.storage, deletions.Begun(format=1, id="x", began_at=clock.now, folders=(folder,)))
    outcome = commit(other.lake, tx)
    assert isinstance(outcome, Gone) is is_long, "what is made for a statement is young"


@pytest.mark.parametrize(
    ("root", "path"),
    [
        ("hdfs://name/lake", "hdfs://other-name:9000/lake/{}"),
        ("hdfs://name/lake", "hdfs:/lake/{}"),
        ("s3://bucket/lake", "/lake/{}"),
        ("abfss://box@account.dfs.core.windows.net/lake", "wasbs://box@account.blob.core.windows.net/lake/{}"),
    ],
)
def test_a_clone_that_names_a_file_by_another_name_of_its_store_is_not_committed_while_it_goes(
    root: str, path: str
) -> None:
    """Whoever deletes takes that for a name of the file, and so does who is about to need it."""
    catalog = open_catalog(MemoryStorage(root))
    create(catalog, "a", files=["p"])
    place = f"{location(catalog, 'a')}/p"

    def cloned(name: str) -> Outcome:
        tx = catalog.begin()
        stage_new(catalog, tx, name, add(path.format(place), modificationTime=1))
        return commit(catalog.lake, tx)

    assert isinstance(cloned("before"), Committed)
    begun = deletions.Begun(format=1, id="x", began_at=catalog.lake.clock(), files=(place,))
    deletions.begin(catalog.lake.storage, begun)
    assert isinstance(cloned("meanwhile"), Gone)
    deletions.end(catalog.lake.storage, begun.id)
    assert isinstance(cloned("afterwards"), Committed)


# --- names that nobody can write down ---------------------------------------------------------------------------------


def test_what_has_a_name_that_is_no_unicode_stays_and_all_else_is_looked_after(tmp_path: Path) -> None:
    """On a local disk a name is bytes. One such file, or folder, ended each run of upkeep by a UnicodeEncodeError."""
    catalog = open_catalog(open_storage(str(tmp_path)))
    create(catalog, "a", files=["p"])
    table, byte = tmp_path / location(catalog, "a"), os.fsdecode(b"\xff")
    odd = [table / f"{byte}.parquet", table / f"c={byte}" / "old.parquet"]
    odd.append(tmp_path / f"gone-{byte}-507f1f77bcf86cd799439011" / "old.parquet")
    for path in (*odd, table / "old.parquet"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
        os.utime(path, (1e9, 1e9))
    at_once = Retention(age=30 * DAY, last=1, grace=timedelta(0), orphan_age=7 * DAY)
    assert maintain(catalog.lake, at_once).swept.paths == (f"{location(catalog, 'a')}/old.parquet",)
    assert all(path.exists() for path in odd)
    assert status(catalog.lake, at_once).reclaimable_files == 0
