"""What upkeep leaves alone since somebody else has it, or may have it: adopted tables, other lakes, shallow clones."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lockstep.catalog import TransactionalCatalog
from lockstep.commit import records
from lockstep.delta.actions import Action
from lockstep.errors import LockstepError, MissingFilesError
from lockstep.lake import deletions
from lockstep.lake.claims import claim_path
from lockstep.lake.deletions import Wanted
from lockstep.lake.lake import Lake
from lockstep.recovery.changes import undrop
from lockstep.retention.ages import Retention
from lockstep.retention.deleting import carry_out
from lockstep.retention.expiring import expire_snapshots
from lockstep.retention.planning import EVERYTHING, NOT_KNOWN, NOT_OURS, Scope, need_at, plan, shared_files
from lockstep.retention.unpublished import TAKEN
from lockstep.retention.upkeep import Maintained, maintain, vacuum
from lockstep.storage import Storage, open_storage
from lockstep.storage.outside import OutsideStorage
from lockstep.timeline.entry import TagDdl
from tests.support.adopting import adopted, ids, plain_table, released, written_log
from tests.support.faulty import FaultyStorage
from tests.support.killed import Killed
from tests.support.lakes import (
    add,
    again,
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
    stage_new,
)
from tests.support.retained import Ticking

pytestmark = pytest.mark.long

DAY = timedelta(days=1)
RETENTION = Retention(age=30 * DAY, last=1, grace=DAY, orphan_age=7 * DAY)
OF_AN_OBJECT = "507f1f77bcf86cd799439011"
"""What others end names with, too: the id of an object in MongoDB."""


@pytest.fixture
def clock() -> Ticking:
    """A clock that begins now, since the files here are as old as the disk says."""
    return Ticking(datetime.now(UTC))


@pytest.fixture
def store(tmp_path: Path) -> Storage:
    """A store that also reaches what is outside of the lake, and tries again without a pause."""
    return FaultyStorage(OutsideStorage(open_storage(str(tmp_path / "lake"), create=True)))


@pytest.fixture
def catalog(store: Storage, clock: Ticking) -> TransactionalCatalog:
    """A lake with the table a."""
    catalog = open_catalog(store, clock=clock)
    create(catalog, "a", files=["p"])
    return catalog


def nights(catalog: TransactionalCatalog, clock: Ticking, count: int = 4, days: int = 20) -> list[Maintained]:
    """Let time pass, with a commit to a and upkeep each time."""
    done = []
    for n in range(count):
        clock.now += days * DAY
        other = again(catalog)
        append(other, "a", f"n{clock.ms}-{n}")
        other.lake.upkeep.settle()
        done.append(maintain(other.lake, RETENTION))
    return done


# --- tables that were adopted, below names as the lake has them -------------------------------------------------------


@pytest.mark.parametrize("how", ["released", "dropped"])
def test_a_guest_stays_in_whatever_folder_it_lies(
    catalog: TransactionalCatalog, clock: Ticking, tmp_path: Path, how: str
) -> None:
    """That above it has such a name as the lake gives to folders of its own, and has no log."""
    folder = plain_table(tmp_path / "lake" / f"customer-{OF_AN_OBJECT}" / "orders", 1, 2)
    adopted(catalog, "orders", folder)
    if how == "released":
        released(catalog, "orders")
    else:
        catalog.run(lambda tx: tx.changing().drop_table(named("orders")))
    nights(catalog, clock)
    assert ids(folder) == [1, 2]


@pytest.mark.parametrize("is_dropped", [False, True])
def test_a_table_that_was_made_where_a_statement_said_keeps_all_its_files(
    catalog: TransactionalCatalog, clock: Ticking, tmp_path: Path, is_dropped: bool
) -> None:
    folder = tmp_path / "lake" / f"customer-{OF_AN_OBJECT}" / "orders"
    tx = catalog.begin()
    stage_new(catalog, tx, "orders", add("p"), where=folder)
    catalog.commit(tx)
    tx = catalog.begin()
    stage(catalog, tx, "orders", remove("p"), add("q"))
    catalog.commit(tx)
    if is_dropped:
        catalog.run(lambda tx: tx.changing().drop_table(named("orders")))
    done = nights(catalog, clock)
    assert {path.name for path in folder.iterdir()} == {"_delta_log", "p", "q"}
    assert done[-1].swept.kept_whole.get(f"{folder.parent.name}/orders", NOT_OURS) == NOT_OURS


@pytest.mark.parametrize("is_guest", [True, False])
def test_a_partition_is_no_folder_of_the_lakes(
    catalog: TransactionalCatalog, clock: Ticking, tmp_path: Path, is_guest: bool
) -> None:
    folder = tmp_path / "lake" / "orders"
    rows = pa.table({"id": [1, 2], "customer": [f"cus-{OF_AN_OBJECT}", "plain"]})
    write_deltalake(str(folder), rows, partition_by=["customer"])
    if is_guest:
        adopted(catalog, "orders", folder)
        released(catalog, "orders")
    nights(catalog, clock)
    assert ids(folder) == [1, 2]


def test_a_folder_with_anybodys_log_in_it_stays(catalog: TransactionalCatalog, clock: Ticking, tmp_path: Path) -> None:
    above = f"customer-{OF_AN_OBJECT}"
    folder = plain_table(tmp_path / "lake" / above / "orders", 1)
    done = nights(catalog, clock)
    assert ids(folder) == [1]
    assert done[-1].swept.kept_whole[above] == NOT_KNOWN


def test_a_folder_goes_no_more_once_a_table_in_it_is_adopted(
    catalog: TransactionalCatalog, clock: Ticking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the plan and what deletes by it; the folder had no log then."""
    above = tmp_path / "lake" / f"customer-{OF_AN_OBJECT}"
    above.mkdir()
    (above / "rows.csv").write_bytes(b"1")
    clock.now += 20 * DAY
    found = plan(again(catalog).lake, Scope(EVERYTHING), RETENTION)
    assert [each.path for each in found.doomed] == [above.name]
    folder = plain_table(above / "orders", 1)
    adopted(again(catalog), "orders", folder)
    done = carry_out(catalog.lake, found, grace=timedelta())
    assert [each.path for each in done.spared] == [above.name]
    assert ids(folder) == [1]


# --- shallow clones of which nobody can tell just now -----------------------------------------------------------------


def replace_file(catalog: TransactionalCatalog, table: str, old: str, new: str, clock: Ticking) -> None:
    tx = catalog.begin()
    stage(catalog, tx, table, remove(old, deletionTimestamp=clock.ms), add(new))
    catalog.commit(tx)


@pytest.mark.parametrize("place", ["warehouse/clone", "lake/clone"])
@pytest.mark.parametrize("away", ["", "_delta_log"])
def test_files_stay_that_a_clone_may_share_which_is_not_there_just_now(
    catalog: TransactionalCatalog, clock: Ticking, tmp_path: Path, place: str, away: str
) -> None:
    """A disk is not mounted for two nights: that is no sign that the clone needs nothing."""
    source, folder = location(catalog, "a"), tmp_path / place
    adopted(catalog, "clone", written_log(folder, add(f"file:{tmp_path}/lake/{source}/p")))
    replace_file(catalog, "a", "p", "q", clock)
    nights(catalog, clock, count=2)
    gone = folder / away
    gone.rename(tmp_path / "gone")
    done = nights(catalog, clock)
    assert "which shares files of this one" in done[-1].swept.kept_whole[source]
    with pytest.raises(MissingFilesError, match="nothing was deleted"):
        shared_files(again(catalog).lake, source)
    (tmp_path / "gone").rename(gone)
    assert (tmp_path / "lake" / source / "p").exists()
    assert shared_files(again(catalog).lake, source) == {"p"}


def unpublished(catalog: TransactionalCatalog, name: str, version: int, *actions: Action) -> Path:
    """Commit in a process that dies before it publishes; a folder takes the commit's place, so that nobody else can."""
    faulty = FaultyStorage(catalog.lake.storage)
    other = open_catalog(faulty, clock=catalog.lake.clock)
    path = log_file(other, name, version)
    tx = other.begin()
    stage(other, tx, name, *actions)

    def die() -> None:
        raise Killed

    for _ in range(2):
        faulty.interrupt("put_if_absent", die, path=path)
    with suppress(Killed):
        other.commit(tx)
    in_its_place = Path(catalog.lake.storage.url.removeprefix("file://"), path)
    in_its_place.mkdir()
    return in_its_place


def test_a_file_stays_that_a_commit_brings_back_which_is_not_published(
    catalog: TransactionalCatalog, clock: Ticking, tmp_path: Path
) -> None:
    """A RESTORE of a clone is committed, and its log cannot be written for some nights."""
    source = location(catalog, "a")
    shared = f"{catalog.lake.storage.url}/{source}/p"
    tx = catalog.begin()
    stage_new(catalog, tx, "c", add(shared, modificationTime=clock.ms))
    catalog.commit(tx)
    replace_file(catalog, "c", shared, "x", clock)
    replace_file(catalog, "a", "p", "q", clock)
    clock.now += 40 * DAY
    fault = unpublished(catalog, "c", 2, remove("x"), add(shared, modificationTime=clock.ms))
    nights(catalog, clock, days=2)
    with pytest.raises(MissingFilesError, match="nothing was deleted"):
        shared_files(again(catalog).lake, source)
    fault.rmdir()
    assert files(again(catalog), "c") == {shared}
    assert (tmp_path / "lake" / source / "p").exists()


@pytest.mark.parametrize("commit", [add("q"), large("q")], ids=["small", "large"])
def test_a_dropped_table_whose_last_commit_is_not_published_is_kept_whole(
    catalog: TransactionalCatalog, clock: Ticking, tmp_path: Path, commit: Action
) -> None:
    """Its versions can be read, so UNDROP brings it back once its log can be written."""
    create(catalog, "t", files=["p"])
    place = location(catalog, "t")
    fault = unpublished(catalog, "t", 1, commit)
    catalog.lake.refresh()
    catalog.run(lambda tx: tx.changing().drop_table(named("t")))
    done = nights(catalog, clock, days=9)[-1]
    assert done.expired.after.first <= 3
    assert "not published" in done.swept.kept_whole[place]
    fault.rmdir()
    other = again(catalog)
    other.lake.newest()
    tx = other.begin()
    undrop(other.lake, tx, named("t"))
    other.commit(tx)
    assert files(other, "t") == {"p", "q"}
    assert {"p", "q"} <= {*catalog.lake.storage.list(place)}


@pytest.mark.parametrize("away", ["", "_delta_log"])
def test_a_dropped_table_whose_log_somebody_removed_holds_nothing_up(
    catalog: TransactionalCatalog, clock: Ticking, tmp_path: Path, away: str
) -> None:
    """Nobody can read its versions or bring it back: what it needed of other tables' files, nobody asks for."""
    create(catalog, "t", files=["p"])
    gone, source = tmp_path / "lake" / location(catalog, "t") / away, location(catalog, "a")
    catalog.run(lambda tx: tx.changing().create_tag(TagDdl(action="create", name="kept")))
    replace_file(catalog, "a", "p", "q", clock)
    catalog.run(lambda tx: tx.changing().drop_tag("kept"))
    catalog.run(lambda tx: tx.changing().create_tag(TagDdl(action="create", name="kept", version=2)))
    catalog.run(lambda tx: tx.changing().drop_table(named("t")))
    shutil.rmtree(gone)
    replace_file(catalog, "a", "q", "r", clock)
    done = nights(catalog, clock)[-1]
    assert source not in done.swept.kept_whole
    assert not (tmp_path / "lake" / source / "q").exists()
    assert shared_files(again(catalog).lake, source) == frozenset()


@pytest.mark.parametrize("place", ["warehouse/t", "lake/t"])
@pytest.mark.parametrize("away", ["", "_delta_log"])
def test_a_dropped_table_made_elsewhere_whose_folder_its_owner_deleted_holds_up_what_it_shares_and_nothing_else(
    catalog: TransactionalCatalog, clock: Ticking, tmp_path: Path, place: str, away: str
) -> None:
    """The disk may only be away, so what a clone there shares stays; the timeline tells what that is."""
    source, folder = location(catalog, "a"), tmp_path / place
    tx = catalog.begin()
    stage_new(catalog, tx, "t", add(f"{catalog.lake.storage.url}/{source}/p"), where=folder)
    catalog.commit(tx)
    append(catalog, "t", "own")
    replace_file(catalog, "a", "p", "q", clock)
    replace_file(catalog, "a", "q", "r", clock)
    catalog.run(lambda tx: tx.changing().drop_table(named("t")))
    shutil.rmtree(folder / away)
    assert shared_files(again(catalog).lake, source) == {"p"}
    clock.now += 20 * DAY
    done = maintain(again(catalog).lake, RETENTION)
    assert source not in done.swept.kept_whole
    nights(catalog, clock)
    assert shared_files(again(catalog).lake, source) == frozenset(), "its versions have expired"
    assert not (tmp_path / "lake" / source / "p").exists()


@pytest.mark.parametrize("place", ["warehouse/t", "lake/t"])
@pytest.mark.parametrize("away", ["", "_delta_log"])
def test_upkeep_keeps_what_only_a_dropped_table_named_whose_folder_its_owner_deleted(
    catalog: TransactionalCatalog, clock: Ticking, tmp_path: Path, place: str, away: str
) -> None:
    """A clone of an older version: no version of its source that can be read has the file any more."""
    source, folder = location(catalog, "a"), tmp_path / place
    replace_file(catalog, "a", "p", "q", clock)
    clock.now += 25 * DAY
    tx = catalog.begin()
    stage_new(catalog, tx, "t", add(f"{catalog.lake.storage.url}/{source}/p"), add("own"), where=folder)
    catalog.commit(tx)
    catalog.run(lambda tx: tx.changing().drop_table(named("t")))
    shutil.rmtree(folder / away)
    nights(catalog, clock, count=3, days=5)
    assert need_at(again(catalog).lake, source).first == 1
    assert (tmp_path / "lake" / source / "p").exists()
    nights(catalog, clock)
    assert not (tmp_path / "lake" / source / "p").exists(), "its versions have expired"


def as_adopted(catalog: TransactionalCatalog, folder: Path, source: str) -> None:
    adopted(catalog, "t", written_log(folder, add(f"{catalog.lake.storage.url}/{source}/p")))


def as_written_to_by_others(catalog: TransactionalCatalog, folder: Path, _: str) -> None:
    tx = catalog.begin()
    stage_new(catalog, tx, "t", where=folder)
    catalog.commit(tx)
    write_deltalake(str(folder), pa.table({"id": pa.array([1], pa.int64())}), mode="append")
    catalog.lake.newest()


def as_made_with_a_large_commit(catalog: TransactionalCatalog, folder: Path, _: str) -> None:
    tx = catalog.begin()
    stage_new(catalog, tx, "t", large("big"), where=folder)
    catalog.commit(tx)


def as_made_before_what_can_be_read(catalog: TransactionalCatalog, folder: Path, source: str) -> None:
    tx = catalog.begin()
    stage_new(catalog, tx, "t", add(f"{catalog.lake.storage.url}/{source}/p"), where=folder)
    catalog.commit(tx)
    clock = catalog.lake.clock
    assert isinstance(clock, Ticking)
    nights(catalog, clock)


@pytest.mark.parametrize(
    "make", [as_adopted, as_written_to_by_others, as_made_with_a_large_commit, as_made_before_what_can_be_read]
)
def test_where_nobody_can_tell_what_a_dropped_table_shared_nothing_goes_and_the_error_says_what_can_be_done(
    catalog: TransactionalCatalog, tmp_path: Path, make: Callable[[TransactionalCatalog, Path, str], None]
) -> None:
    source, folder = location(catalog, "a"), tmp_path / "warehouse" / "t"
    make(catalog, folder, source)
    other = again(catalog)
    other.lake.newest()
    other.run(lambda tx: tx.changing().drop_table(named("t")))
    shutil.rmtree(folder)
    with pytest.raises(MissingFilesError, match=r"nothing was deleted: .*is dropped, .*have expired") as caught:
        shared_files(again(catalog).lake, source)
    assert "drop it" not in caught.value.message


def test_a_dropped_table_is_kept_whole_for_what_its_log_lacks_and_not_for_what_others_lack(
    catalog: TransactionalCatalog, clock: Ticking
) -> None:
    """Commits of another table wait for their log: that says nothing of one that was dropped meanwhile."""
    create(catalog, "t", "u", files=["p"])
    fault = unpublished(catalog, "u", 1, add("q"))
    catalog.lake.refresh()
    append(catalog, "t", "q")
    place = location(catalog, "t")
    catalog.run(lambda tx: tx.changing().drop_table(named("t")))
    found = plan(again(catalog).lake, Scope(EVERYTHING), RETENTION)
    assert place not in found.kept_whole
    newest = Path(catalog.lake.storage.url.removeprefix("file://"), place, "_delta_log", f"{1:020d}.json")
    newest.write_bytes(newest.read_bytes().replace(b"lockstepTransaction", b"another"))
    found = plan(again(catalog).lake, Scope(EVERYTHING), RETENTION)
    assert found.kept_whole[place] == TAKEN
    fault.rmdir()


def test_delta_is_told_to_keep_what_a_table_needs_that_was_adopted_again_at_an_older_version(
    catalog: TransactionalCatalog, clock: Ticking, tmp_path: Path
) -> None:
    """Its folder was restored from a backup: the oldest readable database version has it at a later version."""
    create(catalog, "t", files=["p"])
    for n in range(3):
        append(catalog, "t", f"f{n}")
    place = location(catalog, "t")
    catalog.lake.upkeep.settle()
    expire_snapshots(catalog.lake, older_than=clock(), retain_last=1, grace=timedelta())
    catalog.run(lambda tx: tx.changing().drop_table(named("t")))
    for path in (tmp_path / "lake" / place / "_delta_log").iterdir():
        if path.name.startswith((f"{2:020d}", f"{3:020d}")):
            path.unlink()
    adopted(catalog, "t", tmp_path / "lake" / place)
    append(catalog, "t", "g")
    catalog.lake.refresh()
    assert need_at(catalog.lake, place).first == 1


def test_what_a_dropped_clone_shares_stays_while_its_own_folder_is_away(
    catalog: TransactionalCatalog, clock: Ticking, tmp_path: Path
) -> None:
    """It may be a mount within the root, and that it is away now says nothing of later."""
    shared = f"{location(catalog, 'a')}/p"
    tx = catalog.begin()
    place = stage_new(catalog, tx, "clone", add(f"{catalog.lake.storage.url}/{shared}", modificationTime=1))
    catalog.commit(tx)
    catalog.run(lambda tx: tx.changing().drop_table(named("clone")))
    tx = catalog.begin()
    stage(catalog, tx, "a", remove("p", deletionTimestamp=clock.ms))
    catalog.commit(tx)
    catalog.lake.upkeep.settle()
    (tmp_path / "lake" / place).rename(tmp_path / "away")
    clock.now += 20 * DAY
    found = plan(again(catalog).lake, Scope(EVERYTHING), replace(RETENTION, age=30 * DAY))
    assert shared not in {each.path for each in found.doomed}
    assert "p" not in shared_files(again(catalog).lake, place)
    assert shared_files(again(catalog).lake, location(catalog, "a")) == {"p"}


def test_a_folder_that_no_version_has_stays_while_a_lake_says_that_it_is_its_own(
    catalog: TransactionalCatalog, clock: Ticking
) -> None:
    """Another lake has adopted what this one dropped, and could not see that it lies in this one's root."""
    create(catalog, "t", files=["p"])
    place, storage = location(catalog, "t"), catalog.lake.storage
    catalog.run(lambda tx: tx.changing().drop_table(named("t")))
    storage.put(
        claim_path(place), b'{"format":1,"root":"file:///other","transaction":"x","claimed_at":"2030-01-01T00:00:00Z"}'
    )
    kept = nights(catalog, clock)[-1].swept.kept_whole
    assert claim_path(place) in kept[place]
    assert storage.exists(f"{place}/p")
    storage.delete(claim_path(place))
    nights(catalog, clock)
    assert not storage.exists(f"{place}/p")


@pytest.mark.parametrize("makes_tables", [True, False])
def test_upkeep_of_one_table_outside_of_the_root_says_why_nothing_of_it_goes(
    catalog: TransactionalCatalog, clock: Ticking, tmp_path: Path, makes_tables: bool
) -> None:
    adopted(catalog, "t", plain_table(tmp_path / "warehouse" / "t", 1))
    place = location(catalog, "t")
    other = again(catalog)
    if makes_tables:
        tx = other.begin()
        stage_new(other, tx, "new", add("n"))
        records.write(other.lake, records.record_of(tx, now=clock(), process="there"))
    assert vacuum(again(catalog).lake, RETENTION, table=named("t"), dry_run=True).kept_whole == {place: NOT_OURS}


def test_what_a_dead_transaction_staged_in_an_adopted_table_goes(
    catalog: TransactionalCatalog, clock: Ticking, tmp_path: Path
) -> None:
    """Its files are somebody else's; what this lake's own transactions left in its log is not."""
    folder = plain_table(tmp_path / "lake" / "orders", 1)
    adopted(catalog, "orders", folder)
    other = again(catalog)
    stage(other, other.begin(), "orders", add("q"))
    assert [*(folder / "_delta_log" / "_lockstep").glob("*/*.json")]
    *_, last = nights(catalog, clock)
    assert last.swept.waiting_files == 0
    assert not [*(folder / "_delta_log" / "_lockstep").glob("*/*.json")]
    assert ids(folder) == [1]


# --- what others stage, adopt and make --------------------------------------------------------------------------------


def test_what_another_lake_stages_in_a_released_table_is_its_own(
    catalog: TransactionalCatalog, clock: Ticking, tmp_path: Path
) -> None:
    folder = written_log(tmp_path / "warehouse" / "t", add("p"))
    (folder / "p").write_bytes(b"rows")
    adopted(catalog, "t", folder)
    released(catalog, "t")
    store = OutsideStorage(open_storage(str(tmp_path / "two"), create=True))
    two = open_catalog(store, clock=clock)
    adopted(two, "t", folder)
    tx = two.begin()
    stage(two, tx, "t", large("q"))
    nights(catalog, clock, days=9)
    two.commit(tx)
    assert files(open_catalog(store, clock=clock), "t") == {"p", "q"}


def test_a_table_is_not_adopted_while_its_files_are_deleted(catalog: TransactionalCatalog, clock: Ticking) -> None:
    begun = deletions.Begun(format=1, id="x", began_at=clock.now, files=("default/t/q",))
    deletions.begin(catalog.lake.storage, begun)
    going = partial(deletions.going, catalog.lake.storage)
    assert going(Wanted(locations=frozenset({"default/t"}))) == "file default/t/q"
    assert going(Wanted(locations=frozenset({"default/t2", "default"}), files=frozenset({"default/t/p"}))) is not None
    assert going(Wanted(locations=frozenset({"default/t2", "def"}), files=frozenset({"default/t/p"}))) is None


def test_a_dropped_table_is_not_adopted_while_its_newest_files_go(
    catalog: TransactionalCatalog, clock: Ticking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tag keeps an older version of it, so its log stays and says of those files that they are there."""
    create(catalog, "t", files=["p"])
    version = catalog.timeline.head.version
    catalog.run(lambda tx: tx.changing().create_tag(TagDdl(action="create", name="keep", version=version)))
    append(catalog, "t", "q")
    place = location(catalog, "t")
    catalog.run(lambda tx: tx.changing().drop_table(named("t")))
    clock.now += 40 * DAY
    append(catalog, "a", "x")
    outcomes: list[LockstepError] = []
    fence = Lake.fence

    def adopt_behind(lake: Lake) -> None:
        fence(lake)
        monkeypatch.setattr(Lake, "fence", fence)
        with pytest.raises(LockstepError) as error:
            adopted(again(catalog), "t2", tmp_path / "lake" / place)
        outcomes.append(error.value)

    monkeypatch.setattr(Lake, "fence", adopt_behind)
    done = maintain(again(catalog).lake, Retention(age=DAY, last=1, grace=timedelta(), orphan_age=7 * DAY))
    assert done.swept.paths == (f"{place}/q",)
    assert "is being deleted" in outcomes[0].message


@pytest.mark.parametrize("how", ["empty", "clone", "rows"])
def test_the_folder_of_a_table_stays_whose_transaction_looked_dead_and_commits(
    catalog: TransactionalCatalog, clock: Ticking, how: str
) -> None:
    other = again(catalog)
    tx = other.begin()
    shared = add(f"{catalog.lake.storage.url}/{location(catalog, 'a')}/p")
    place = stage_new(other, tx, "new", *{"empty": [], "clone": [shared], "rows": [add("n")]}[how])
    clock.now += 30 * DAY
    found = plan(again(catalog).lake, Scope(EVERYTHING, orphan_age=7 * DAY), RETENTION)
    assert place in {each.path for each in found.doomed}
    assert found.dead == {tx.id}
    other.commit(tx)
    done = carry_out(again(catalog).lake, found, grace=timedelta())
    assert place in {each.path for each in done.spared}
    assert catalog.lake.storage.exists(f"{place}/_delta_log/{0:020d}.json")
    assert named("new") in again(catalog).database([named("new")]).tables
