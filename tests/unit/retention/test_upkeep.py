"""Upkeep on a lake without Spark: what goes, what stays, and what happens to whoever is in the way."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import deltalake
import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.commit import records
from lockstep.commit.commit import commit
from lockstep.commit.ended import ended_transactions
from lockstep.commit.files import Gone, missing_files
from lockstep.delta.actions import render
from lockstep.delta.checkpoint_files import checkpoint_actions
from lockstep.delta.log import commit_path
from lockstep.errors import (
    CancelledError,
    ConflictError,
    ForeignCommitError,
    InvalidError,
    LockstepError,
    MissingFilesError,
    UndefinedError,
)
from lockstep.lake import deletions
from lockstep.lake.exports import FORMAT, ExportRecord, encode_record, record_path
from lockstep.recovery.changes import undrop
from lockstep.retention.ages import Retention
from lockstep.retention.deleting import carry_out
from lockstep.retention.expiring import expire_snapshots
from lockstep.retention.planning import EVERYTHING, Scope, need_at, plan, shared_files
from lockstep.retention.upkeep import maintain, remove_orphan_files, status, vacuum
from lockstep.storage import open_storage
from lockstep.timeline.entry import TagDdl
from lockstep.timeline.files import entry_path
from tests.support.faulty import FaultyStorage
from tests.support.killed import Killed, KilledStorage
from tests.support.lakes import (
    add,
    again,
    append,
    create,
    location,
    metadata,
    named,
    open_catalog,
    remove,
    stage,
    stage_new,
)
from tests.support.retained import AgedStorage, Ticking, read_back

DAY = timedelta(days=1)
RETENTION = Retention.of({})
AT_ONCE = Retention(age=timedelta(), last=1, grace=timedelta(), orphan_age=7 * DAY)


@pytest.fixture
def catalog(aged: AgedStorage, clock: Ticking) -> TransactionalCatalog:
    """A lake with the tables a and b, in which p gave way to q in a, nine days ago, and both versions can be read."""
    catalog = open_catalog(aged, clock=clock)
    create(catalog, "a", "b", files=["p"])
    change(catalog, "a", remove("p", deletionTimestamp=clock.ms), add("q"))
    clock.now += 9 * DAY
    append(catalog, "b", "later")
    return catalog


def change(catalog: TransactionalCatalog, name: str, *actions: Any) -> int:
    tx = catalog.begin()
    stage(catalog, tx, name, *actions)
    return catalog.commit(tx).version


def expire(catalog: TransactionalCatalog, last: int = 1) -> None:
    expire_snapshots(catalog.lake, older_than=catalog.lake.clock(), retain_last=last, grace=timedelta(), dry_run=False)


def contents(root: Path) -> dict[Path, bytes]:
    """Return all of a lake, but for the timeline's hint, which is written in the background behind a commit."""
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != "_latest"}


def data(catalog: TransactionalCatalog, name: str) -> set[str]:
    place = location(catalog, name)
    return {path for path in catalog.lake.storage.list(place) if not path.startswith(("_", "."))}


@pytest.mark.parametrize("has_looked", [True, False])
def test_ours_of_a_table_that_was_written_over_stays_until_a_person_decides(
    catalog: TransactionalCatalog, clock: Ticking, has_looked: bool
) -> None:
    """The log does not name it any more, and that is noticed by a look, not by what publishing says."""
    append(catalog, "a", "ours")
    catalog.lake.upkeep.settle()
    place = location(catalog, "a")
    catalog.lake.storage.put(commit_path(place, 2), render([{"commitInfo": {"operation": "WRITE"}}, add("theirs")]))
    for days in (8, 60):
        clock.now += days * DAY
        process = again(catalog)
        if has_looked:
            with pytest.raises(ForeignCommitError):
                process.database([named("a")])
        maintain(process.lake, Retention.of({}))
        process.lake.upkeep.settle()
        assert "ours" in data(process, "a")
    found = status(again(catalog).lake, RETENTION)
    assert "it is set aside" in found.kept_whole[place]
    assert found.set_aside, "whoever looks at that alone learns of it"
    with pytest.raises(MissingFilesError, match="cannot be read"):
        shared_files(again(catalog).lake, location(catalog, "b"))  # which a clone may name in the timeline alone


def put_export(catalog: TransactionalCatalog, version: int) -> None:
    record = ExportRecord(
        format=FORMAT,
        id="x",
        database_version=version,
        mode="partial",
        source=catalog.lake.storage.url,
        target="elsewhere",
        created_at=catalog.lake.clock(),
    )
    catalog.lake.storage.put(record_path(record.id), encode_record(record))


# --- what goes --------------------------------------------------------------------------------------------------------


def test_nothing_goes_that_a_version_needs_which_can_be_read(catalog: TransactionalCatalog) -> None:
    swept = vacuum(catalog.lake, AT_ONCE)
    assert (swept.tables, swept.deleted_files, swept.waiting_files) == (2, 0, 0)
    assert data(catalog, "a") == {"p", "q"}


def test_what_expired_is_marked_and_goes_after_the_grace_period(catalog: TransactionalCatalog, clock: Ticking) -> None:
    expire(catalog)
    dry = vacuum(catalog.lake, RETENTION, dry_run=True)
    assert (dry.deleted_files, dry.waiting_files) == (0, 1)
    assert catalog.lake.storage.list(deletions.FOLDER) == []
    assert vacuum(catalog.lake, RETENTION).waiting_files == 1
    clock.now += DAY - timedelta(minutes=1)
    assert vacuum(again(catalog).lake, RETENTION).waiting_files == 1
    assert data(catalog, "a") == {"p", "q"}
    clock.now += timedelta(minutes=1)
    told: list[tuple[int, int]] = []
    swept = vacuum(again(catalog).lake, RETENTION, progress=lambda *done: told.append(done))
    assert (swept.deleted_files, swept.deleted_bytes, swept.paths) == (1, 4, (f"{location(catalog, 'a')}/p",))
    assert told[-1] == (1, 1)
    assert data(catalog, "a") == {"q"}
    assert catalog.lake.storage.list(deletions.FOLDER) == [], "no mark and nothing begun is left"


def test_of_a_lake_that_nobody_writes_no_further_run_takes_anything(
    catalog: TransactionalCatalog, clock: Ticking
) -> None:
    """A run of upkeep is a version, too, and takes the place of no other among the newest that are kept."""
    for number in range(5):
        append(catalog, "b", f"{number}")
    kept = catalog.database().version - 2
    for _ in range(4):
        clock.now += DAY
        expire(catalog, last=3)
        assert again(catalog).database().expired.first_kept == kept
    append(catalog, "b", "next")
    expire(catalog, last=3)
    assert again(catalog).database().expired.first_kept == kept + 1


def test_only_what_was_chosen_goes(catalog: TransactionalCatalog) -> None:
    expire(catalog)
    catalog.run(lambda tx: tx.changing().create_namespace(("s",), {}))
    for chosen in ({"table": named("b")}, {"namespace": ("s",)}):
        assert vacuum(catalog.lake, AT_ONCE, **chosen).deleted_files == 0
    assert vacuum(catalog.lake, AT_ONCE, table=named("a")).deleted_files == 1
    with pytest.raises(UndefinedError, match=r"no table default\.x"):
        vacuum(catalog.lake, AT_ONCE, table=named("x"))
    with pytest.raises(UndefinedError, match="no namespace x"):
        vacuum(catalog.lake, AT_ONCE, namespace=("x",))
    with pytest.raises(InvalidError, match="one of them"):
        vacuum(catalog.lake, AT_ONCE, table=named("a"), namespace=("s",))


def test_a_tables_own_retention_counts(catalog: TransactionalCatalog) -> None:
    change(catalog, "a", metadata(**{"delta.deletedFileRetentionDuration": "interval 30 days"}))
    change(catalog, "b", metadata(**{"delta.deletedFileRetentionDuration": "whenever"}), remove("p"))
    expire(catalog)
    swept = vacuum(catalog.lake, AT_ONCE)
    assert swept.deleted_files == 0
    assert [*swept.kept_whole] == [location(catalog, "b")], "a retention that nobody can read keeps all"


def test_a_log_goes_behind_a_checkpoint_and_all_is_told_from_there(
    catalog: TransactionalCatalog, clock: Ticking, tmp_path: Path
) -> None:
    place = location(catalog, "a")
    deltalake.DeltaTable(str(tmp_path / "lake" / place)).create_checkpoint()
    clock.now += 40 * DAY
    change(catalog, "a", add("r"))
    change(catalog, "a", remove("q", deletionTimestamp=clock.ms), add("s"))
    expire(catalog, last=2)
    swept = vacuum(catalog.lake, AT_ONCE)
    assert swept.by_kind["log"] >= 1
    names = catalog.lake.storage.list(f"{place}/_delta_log")
    assert not [name for name in names if name.startswith(f"{0:020d}")]
    found = checkpoint_actions(catalog.lake.storage, place, 1, names)
    assert [action["add"]["path"] for action in found if "add" in action] == ["q"]
    clock.now += 9 * DAY
    expire(catalog)
    assert vacuum(catalog.lake, AT_ONCE).deleted_files >= 1
    table = catalog.database().tables[named("a")]
    assert {path for path, _ in read_back(tmp_path / "lake", place, table.version).files} == {"r", "s"}
    assert data(catalog, "a") == {"r", "s"}


def test_what_nobody_can_tell_of_stays_whole(catalog: TransactionalCatalog) -> None:
    place = location(catalog, "a")
    expire(catalog)
    catalog.lake.storage.delete(commit_path(place, 0))  # while its entry was there, it would be published again
    swept = vacuum(catalog.lake, AT_ONCE)
    assert (swept.deleted_files, [*swept.kept_whole]) == (0, [place])
    assert status(catalog.lake, RETENTION).kept_whole == swept.kept_whole


@pytest.mark.parametrize("content", [b"{}", b"no json", b'{"database_version":"1"}'])
def test_an_export_that_nobody_can_read_keeps_all(catalog: TransactionalCatalog, content: bytes) -> None:
    catalog.lake.storage.put(record_path("x"), content)
    expire(catalog)
    assert need_at(catalog.lake, location(catalog, "a")).first == 0


def test_an_export_keeps_its_version(catalog: TransactionalCatalog) -> None:
    put_export(catalog, 1)
    expire(catalog)
    assert need_at(catalog.lake, location(catalog, "a")).alone == (0,)
    assert vacuum(catalog.lake, AT_ONCE).deleted_files == 0


def test_an_export_that_is_begun_while_versions_expire_keeps_its_version(aged: AgedStorage, clock: Ticking) -> None:
    """It is written down behind the expiry's first look, and then sees that there is another version."""
    store = FaultyStorage(aged)
    here = open_catalog(store, clock=clock)
    create(here, "a", files=["p"])
    for n in range(3):
        append(here, "a", f"q{n}")
    other = open_catalog(aged, clock=clock)

    def come() -> None:
        put_export(other, 1)
        other.lake.fence()

    store.interrupt("put_if_absent", come, path=entry_path(here.timeline.head.version + 1))
    expire(here)
    assert (here.timeline.head.expired.first_kept, here.timeline.head.expired.kept) == (4, (1,))
    assert other.timeline.at(1).version == 1


def test_a_file_that_is_added_again_is_no_younger(catalog: TransactionalCatalog, clock: Ticking) -> None:
    """A tag keeps a version from before new statistics were written for its file, and before that was removed."""
    tag = TagDdl(action="create", name="keep", version=catalog.timeline.head.version)
    catalog.run(lambda tx: tx.changing().create_tag(tag))
    change(catalog, "b", add("p", dataChange=False, stats='{"numRecords":1}'))
    change(catalog, "b", remove("p", deletionTimestamp=clock.ms), add("y"))
    append(catalog, "b", "z")
    clock.now += 40 * DAY
    expire(catalog)
    assert f"{location(catalog, 'b')}/p" not in vacuum(catalog.lake, AT_ONCE).paths


def test_while_nobody_can_read_a_log_no_file_goes_that_it_may_name(catalog: TransactionalCatalog) -> None:
    """A clone names the files of its source; where its log is damaged, nobody can tell which."""
    tx = catalog.begin()
    stage_new(catalog, tx, "clone", add(f"{catalog.lake.storage.url}/{location(catalog, 'a')}/p"))
    catalog.commit(tx)
    append(catalog, "clone", "c")
    expire(catalog)
    catalog.lake.storage.put(commit_path(location(catalog, "clone"), 1), b"{torn")
    with pytest.raises(MissingFilesError, match="nothing was deleted"):
        shared_files(again(catalog).lake, location(catalog, "a"))
    swept = vacuum(again(catalog).lake, AT_ONCE)
    assert (swept.deleted_files, {*swept.kept_whole}) == (0, {location(catalog, "clone"), location(catalog, "a")})


def test_a_clone_in_the_lake_keeps_what_it_shares(catalog: TransactionalCatalog) -> None:
    url = f"{catalog.lake.storage.url}/{location(catalog, 'a')}/p"
    tx = catalog.begin()
    stage_new(catalog, tx, "clone", add(url))
    catalog.commit(tx)
    expire(catalog)
    for table in (None, named("a")):
        assert vacuum(catalog.lake, AT_ONCE, table=table).deleted_files == 0
    assert shared_files(catalog.lake, location(catalog, "a")) == {"p"}, "what the statement VACUUM spares, too"
    assert shared_files(catalog.lake, location(catalog, "clone")) == set()
    catalog.run(lambda tx: tx.changing().drop_table(named("a")))
    expire(catalog)
    catalog.lake.clock.now += 30 * DAY  # type: ignore[attr-defined]
    assert remove_orphan_files(catalog.lake, AT_ONCE).deleted_files == 0


# --- litter -----------------------------------------------------------------------------------------------------------


def test_a_dropped_tables_folder_goes_once_no_version_has_it(
    catalog: TransactionalCatalog, clock: Ticking, tmp_path: Path
) -> None:
    place = location(catalog, "a")
    catalog.run(lambda tx: tx.changing().drop_table(named("a")))
    clock.now += 9 * DAY
    assert remove_orphan_files(catalog.lake, AT_ONCE).deleted_files == 0
    expire(catalog)
    swept = remove_orphan_files(catalog.lake, AT_ONCE)
    assert place in swept.paths
    assert not (tmp_path / "lake" / place).exists()
    assert (tmp_path / "lake" / location(catalog, "b")).exists()


def test_what_an_open_transaction_wrote_stays_however_old_it_is(catalog: TransactionalCatalog, clock: Ticking) -> None:
    other = again(catalog)
    tx = other.begin()
    stage(other, tx, "a", add("mine"))
    catalog.lake.storage.put(f"{location(catalog, 'a')}/of-its-next-statement", b"rows")
    clock.now += 30 * DAY
    records.write(other.lake, records.record_of(tx, now=clock.now, process="there"))
    assert remove_orphan_files(catalog.lake, AT_ONCE).deleted_files == 0
    assert vacuum(catalog.lake, AT_ONCE).deleted_files == 0
    other.commit(tx)
    assert data(catalog, "a") == {"p", "q", "mine", "of-its-next-statement"}


def test_dead_transactions_are_ended_by_one_entry_before_what_they_staged_goes(
    catalog: TransactionalCatalog, clock: Ticking
) -> None:
    other = again(catalog)
    tx, second = other.begin(comment="nightly"), other.begin()
    stage(other, tx, "a", add("its"))
    stage(other, second, "a", add("other"))
    records.write(other.lake, records.record_of(tx, now=other.lake.clock(), process="host:1"))
    clock.now += 30 * DAY
    swept = remove_orphan_files(catalog.lake, AT_ONCE)
    assert swept.by_kind == {"staging": 2}
    catalog.lake.refresh()
    aborts = [entry.aborts for entry in catalog.timeline.entries(tx.base.version) if entry.kind == "abort"]
    assert aborts == [sorted([tx.id, second.id])], "they can never commit"
    [kept] = ended_transactions(catalog.lake)
    assert (kept.transaction, kept.message, kept.tables) == (tx.id, "nightly", (named("a"),))
    assert "not been seen for long" in kept.reason
    assert records.open_transactions(catalog.lake) == []
    with pytest.raises(LockstepError) as error:
        other.commit(tx)
    assert isinstance(error.value, CancelledError | MissingFilesError) or "gone" in str(error.value)
    assert remove_orphan_files(catalog.lake, AT_ONCE).by_kind == {"litter": 2}
    assert data(catalog, "a") == {"p", "q"}


def test_dry_runs_change_nothing_and_a_run_removes_the_record_of_who_has_ended(
    catalog: TransactionalCatalog, clock: Ticking
) -> None:
    """Of two that were killed after they had a record, one had committed, and of one the snapshot has expired."""
    root, ended = Path(catalog.lake.storage.url.removeprefix("file://")), []
    for _ in range(2):
        tx = catalog.begin()
        stage(catalog, tx, "a", add(f"of-{tx.id}"))
        records.write(catalog.lake, records.record_of(tx, now=clock.now, process="gone:1"))
        ended.append(f"{tx.id}.json")
        if len(ended) == 1:
            catalog.commit(tx)
    append(catalog, "a", "x")
    append(catalog, "a", "y")
    expire(catalog)
    clock.now += 2 * DAY
    before = contents(root)
    for look in (
        lambda lake: expire_snapshots(lake, older_than=clock.now, retain_last=1, grace=timedelta(), dry_run=True),
        lambda lake: vacuum(lake, AT_ONCE, dry_run=True),
        lambda lake: remove_orphan_files(lake, AT_ONCE, dry_run=True),
        lambda lake: maintain(lake, AT_ONCE, dry_run=True),
        lambda lake: status(lake, AT_ONCE),
        records.open_transactions,
    ):
        look(again(catalog).lake)
        assert contents(root) == before
    assert set(catalog.lake.storage.list(records.FOLDER)) == set(ended)
    vacuum(again(catalog).lake, AT_ONCE)
    assert catalog.lake.storage.list(records.FOLDER) == []


def test_young_litter_stays_whatever_is_asked(catalog: TransactionalCatalog, clock: Ticking) -> None:
    catalog.lake.storage.put(f"{location(catalog, 'a')}/young", b"x")
    with pytest.raises(InvalidError, match="less than an hour"):
        remove_orphan_files(catalog.lake, AT_ONCE, older_than=clock.now - timedelta(minutes=59))
    assert remove_orphan_files(catalog.lake, AT_ONCE, older_than=clock.now - timedelta(hours=1)).deleted_files == 0
    clock.now += timedelta(hours=2)
    assert remove_orphan_files(catalog.lake, AT_ONCE, older_than=clock.now - timedelta(hours=1)).deleted_files == 1


# --- races ------------------------------------------------------------------------------------------------------------


def restoring(catalog: TransactionalCatalog) -> Callable[[], object]:
    """Bring p back into a as a restore of an old version of the table's own log does."""
    tx = catalog.begin()
    stage(catalog, tx, "a", remove("q"), add("p", modificationTime=1))
    return lambda: commit(catalog.lake, tx)


def test_a_restore_before_the_fence_is_seen(catalog: TransactionalCatalog) -> None:
    expire(catalog)
    found = plan(catalog.lake, Scope(EVERYTHING), AT_ONCE)
    restoring(again(catalog))()
    done = carry_out(catalog.lake, found, grace=timedelta())
    assert [each.path for each in done.spared] == [f"{location(catalog, 'a')}/p"]
    assert data(catalog, "a") == {"p", "q"}


def test_a_restore_that_looked_before_and_puts_behind_the_fence_is_refused(
    catalog: TransactionalCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds nothing begun, and its files; then they go; its put is lost to the fence, and it looks again."""
    expire(catalog)
    found = plan(catalog.lake, Scope(EVERYTHING), AT_ONCE)
    restore = restoring(again(catalog))

    def late(*args: Any) -> Gone | None:
        answer = missing_files(*args)
        assert answer is None
        monkeypatch.setattr("lockstep.commit.going.missing_files", missing_files)
        assert len(carry_out(catalog.lake, found, grace=timedelta()).gone) == 1
        return answer

    monkeypatch.setattr("lockstep.commit.going.missing_files", late)
    outcome = restore()
    assert isinstance(outcome, Gone)
    assert "are gone" in outcome.message
    assert again(catalog).database().tables[named("a")].version == 1


def test_what_has_begun_to_go_cannot_be_brought_back(catalog: TransactionalCatalog, clock: Ticking) -> None:
    """A run that was killed has written it down, and nobody knows what of it is gone."""
    begun = deletions.Begun.of("x", catalog.lake.refresh().version, clock.now, ([f"{location(catalog, 'a')}/p"], []))
    deletions.begin(catalog.lake.storage, begun)
    outcome = restoring(again(catalog))()
    assert isinstance(outcome, Gone)
    assert "is being deleted" in outcome.message
    expire(catalog)
    vacuum(catalog.lake, AT_ONCE)
    assert deletions.begun(catalog.lake.storage) == []
    assert data(catalog, "a") == {"q"}


def test_a_table_that_comes_back_from_a_version_that_expires_is_refused(catalog: TransactionalCatalog) -> None:
    catalog.run(lambda tx: tx.changing().drop_table(named("a")))
    other = again(catalog)
    tx = other.begin()
    undrop(other.lake, tx, named("a"))
    append(catalog, "b", "more")
    expire(catalog)
    with pytest.raises(LockstepError):
        other.commit(tx)
    assert named("a") not in again(catalog).database().tables


def test_a_tag_and_expiry_are_never_both_first(catalog: TransactionalCatalog) -> None:
    other = again(catalog)
    tx = other.begin()
    tx.changing().create_tag(TagDdl(action="create", name="eod", version=1))
    expire(catalog)
    with pytest.raises(LockstepError):
        other.commit(tx)
    assert "eod" not in again(catalog).database().tags


def test_two_maintainers_at_once_do_no_harm(catalog: TransactionalCatalog) -> None:
    expire(catalog)
    one, two = again(catalog).lake, again(catalog).lake
    first, second = plan(one, Scope(EVERYTHING), AT_ONCE), plan(two, Scope(EVERYTHING), AT_ONCE)
    assert len(carry_out(one, first, grace=timedelta()).gone) == 1
    assert len(carry_out(two, second, grace=timedelta()).gone) == 1
    assert data(catalog, "a") == {"q"}
    assert catalog.lake.storage.list(deletions.FOLDER) == []


def test_a_run_that_is_killed_at_any_call_is_finished_by_the_next(tmp_path: Path) -> None:
    """And at each of these moments all that can be read is there."""

    def lake(number: int) -> tuple[TransactionalCatalog, Ticking]:
        clock = Ticking()
        store = AgedStorage(open_storage(str(tmp_path / f"lake-{number}"), create=True), clock)
        catalog = open_catalog(store, clock=clock)
        create(catalog, "a", files=["p"])
        change(catalog, "a", remove("p"), add("q"))
        clock.now += 9 * DAY
        append(catalog, "a", "r")
        return catalog, clock

    number, is_killed = 0, True
    while is_killed:
        catalog, clock = lake(number)
        killed = KilledStorage(catalog.lake.storage, at=number)
        killed.walk = catalog.lake.storage.walk  # type: ignore[method-assign]
        is_killed = False
        try:
            maintain(open_catalog(killed, clock=clock).lake, AT_ONCE)
        except Killed:
            is_killed = True
        table = again(catalog).database().tables[named("a")]
        found = read_back(tmp_path / f"lake-{number}", table.location, table.version)
        assert {path for path, _ in found.files} == {"q", "r"}
        maintain(again(catalog).lake, AT_ONCE)
        assert data(again(catalog), "a") == {"q", "r"}
        number += 1
    assert number > 20


@pytest.mark.parametrize("setting", ["retention-age", "deletion-grace", "orphan-age"])
def test_what_is_kept_for_ever_is_no_error(catalog: TransactionalCatalog, setting: str) -> None:
    retention = Retention.of({setting: "9999999999d"})
    expire(catalog)
    maintain(catalog.lake, retention, dry_run=True)
    assert maintain(catalog.lake, retention).swept.deleted_files == 0
    assert maintain(catalog.lake, retention).swept.waiting_files == 1
    assert status(catalog.lake, retention).reclaimable_files == 1


def test_status_says_what_there_is(catalog: TransactionalCatalog) -> None:
    expire(catalog)
    found = status(catalog.lake, RETENTION)
    assert (found.tables, found.tags, found.transactions, found.gone) == (2, 0, 0, 0)
    assert (found.reclaimable_files, found.reclaimable_bytes, found.leftovers) == (1, 4, {"data": 1})
    assert found.oldest_version == found.newest_version - 1


def test_two_transactions_of_one_process_still_conflict(catalog: TransactionalCatalog) -> None:
    """A fence changes nothing about what conflicts."""
    tx = catalog.begin()
    stage(catalog, tx, "a", remove("q"))
    again(catalog).lake.fence()
    change(again(catalog), "a", remove("q"))
    with pytest.raises(ConflictError):
        catalog.commit(tx)


@pytest.mark.parametrize("grace", [timedelta(), DAY])
def test_a_dry_run_of_maintain_says_what_the_run_does_that_lets_versions_expire_first(
    catalog: TransactionalCatalog, clock: Ticking, grace: timedelta
) -> None:
    catalog.run(lambda tx: tx.changing().drop_table(named("b")))
    clock.now += 60 * DAY
    append(catalog, "a", "r")
    clock.now += 60 * DAY
    retention, deleted = Retention(age=timedelta(), last=1, grace=grace, orphan_age=7 * DAY), 0
    for _ in range(3):
        planned = maintain(catalog.lake, retention, dry_run=True)
        done = maintain(catalog.lake, retention)
        assert planned.swept == done.swept
        assert (planned.expired.versions, planned.expired.entries) == (done.expired.versions, done.expired.entries)
        deleted += done.swept.deleted_files
        clock.now += 25 * timedelta(hours=1)
    assert deleted > 0, "there was nothing to say"
