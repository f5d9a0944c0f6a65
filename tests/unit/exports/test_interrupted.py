"""Exports that end before they are done, or meet another one: what is left, and what the same asked for again makes."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import DuplicateError, ExpiredError, UnavailableError
from lockstep.exports.export import Asked
from lockstep.lake.exports import FOLDER, ExportRecord, begun_path, drop_export, needed_versions, read_exports
from lockstep.lake.verify import verify
from lockstep.retention.ages import Retention
from lockstep.retention.expiring import expire_snapshots
from lockstep.retention.upkeep import remove_orphan_files
from lockstep.storage import open_storage
from lockstep.timeline.entry import ExportMode, TagDdl
from tests.support.exports import build_lake, export, exporter, opened, paths, tree_of
from tests.support.faulty import FaultyStorage
from tests.support.killed import Killed
from tests.support.lakes import append, open_catalog
from tests.support.retained import Ticking

pytestmark = pytest.mark.long


@pytest.fixture
def catalog(store: FaultyStorage) -> TransactionalCatalog:
    return build_lake(store)


@pytest.mark.parametrize("which", ["source", "target"])
@pytest.mark.parametrize("mode", ["full", "partial"])
def test_a_kill_at_any_call_leaves_no_half_lake_and_the_same_again_goes_on(
    store: FaultyStorage, catalog: TransactionalCatalog, tmp_path: Path, mode: ExportMode, which: str
) -> None:
    """To be killed after a call is to be killed before the next one."""
    whole = tmp_path / "whole"
    exported = export(catalog, whole, mode)
    if mode == "partial":
        drop_export(store, exported.id)
    number, ended = 0, False
    while not ended:
        number += 1
        to = tmp_path / f"to{number}"
        target = FaultyStorage(open_storage(str(to), create=True))
        (store if which == "source" else target).die_at(number)
        asked = Asked(to=str(to), mode=mode, version=3)
        try:
            exporter(catalog, target).run(asked)
            ended = True
        except UnavailableError:
            pass
        store.heal()
        target.heal()
        has_begun = (to / "_lockstep" / "export.json").exists()
        is_lake = (to / "_lockstep" / "timeline").exists()
        if has_begun and not (is_lake and mode == "full"):
            assert read_exports(store.inner), f"call {number}: nothing keeps what the export needs"
        append(catalog, "sales.orders", f"meanwhile{number}")
        exporter(catalog).run(asked)
        lake = opened(to)
        assert len(paths(lake, "a")) == 2
        assert verify(lake.lake.storage, lake.timeline).differences == ()
        assert {path for path in tree_of(to) if "_delta_log" not in path and "_lockstep" not in path} == {
            path for path in tree_of(whole) if "_delta_log" not in path and "_lockstep" not in path
        }
        records = read_exports(store.inner)
        assert [record.target for record in records] == ([] if mode == "full" else [f"file://{to}"])
        for record in records:
            drop_export(store, record.id)
    assert number > 10


# --- interrupted before it had its target -----------------------------------------------------------------------------


def begun(catalog: TransactionalCatalog, to: Path, mode: ExportMode) -> int:
    """Have an export killed just before it takes its target; return the version that it is of."""

    def die() -> None:
        raise Killed

    target = FaultyStorage(open_storage(str(to.parent if mode == "minimal" else to), create=True))
    target.interrupt("put_if_absent", die, path=to.name if mode == "minimal" else "export.json")
    with pytest.raises(Killed):
        exporter(catalog, target).run(Asked(to=str(to), mode=mode))
    [record] = read_exports(catalog.lake.storage)
    return record.database_version


def expire_all(catalog: TransactionalCatalog, clock: Ticking) -> None:
    append(catalog, "a", f"q{catalog.timeline.head.version}")
    expire_snapshots(catalog.lake, older_than=clock(), retain_last=1, grace=timedelta(0))


def test_an_export_that_was_interrupted_before_it_had_its_target_keeps_its_version_for_a_day(
    aging: TransactionalCatalog, clock: Ticking, tmp_path: Path
) -> None:
    version = begun(aging, tmp_path / "to", "partial")
    expire_all(aging, clock)
    assert not aging.timeline.head.expired.has(version), "it may be about to go on"
    clock.now += timedelta(days=1)
    expire_all(aging, clock)
    assert aging.timeline.head.expired.has(version)
    with pytest.raises(ExpiredError):
        export(aging, tmp_path / "to", "partial", version)
    assert not (tmp_path / "to" / "_lockstep" / "timeline").exists()
    made = export(aging, tmp_path / "to", "partial", None)
    assert made.database_version > version


@pytest.mark.parametrize("mode", ["partial", "minimal"])
def test_an_export_keeps_its_version_for_ever_however_late_it_went_on(
    aging: TransactionalCatalog, clock: Ticking, tmp_path: Path, mode: ExportMode
) -> None:
    version = begun(aging, tmp_path / "to", mode)
    aging.run(lambda tx: tx.changing().create_tag(TagDdl(action="create", name="kept", version=version)))
    clock.now += timedelta(days=30)
    done = export(aging, tmp_path / "to", mode, version)
    assert [record.id for record in read_exports(aging.lake.storage)] == [done.id]
    aging.run(lambda tx: tx.changing().drop_tag("kept"))
    for _ in range(2):
        clock.now += timedelta(days=30)
        expire_all(aging, clock)
    assert not aging.timeline.head.expired.has(version)


def test_one_that_goes_on_after_its_version_has_expired_writes_nothing(
    aging: TransactionalCatalog, clock: Ticking, tmp_path: Path
) -> None:
    """Its process was stopped for days between its record and its claim."""
    target = FaultyStorage(open_storage(str(tmp_path / "to"), create=True))

    def sleep() -> None:
        clock.now += timedelta(days=30)
        expire_all(open_catalog(aging.lake.storage, clock=clock), clock)

    target.interrupt("put_if_absent", sleep, path="export.json")
    with pytest.raises(ExpiredError):
        exporter(aging, target).run(Asked(to=str(tmp_path / "to"), mode="partial"))
    assert {*tree_of(tmp_path / "to")} == {"_lockstep/export.json"}


def test_marks_that_no_record_has_go_once_they_are_old(
    aging: TransactionalCatalog, clock: Ticking, tmp_path: Path
) -> None:
    """An export was killed between the two. One beside its record stays: it says that the record keeps nothing."""
    clock.now = datetime.now(UTC)  # as the store has it
    begun(aging, tmp_path / "to", "partial")
    storage = aging.lake.storage
    storage.put(begun_path("killed"), b"")
    storage.put(begun_path("also-killed"), b"")
    ages = Retention(age=timedelta(days=30), last=100, grace=timedelta(0), orphan_age=timedelta(hours=2))

    def marks() -> set[str]:
        return {name for name in storage.list(FOLDER) if name.endswith(".begun")}

    before = marks()
    assert len(before) == 3
    remove_orphan_files(aging.lake, ages)
    assert marks() == before, "its process may be about to write the record"
    clock.now += timedelta(days=2)
    looked = remove_orphan_files(aging.lake, ages, dry_run=True)
    assert looked.by_kind == {"litter": 2}
    assert len(remove_orphan_files(aging.lake, ages).paths) == 2
    assert marks() == before - {"killed.begun", "also-killed.begun"}


def test_one_that_sees_another_begun_leaves_it_alone(
    store: FaultyStorage, catalog: TransactionalCatalog, tmp_path: Path
) -> None:
    target = FaultyStorage(open_storage(str(tmp_path / "to"), create=True))

    def rival() -> None:
        with pytest.raises(DuplicateError, match="is the target of export"):
            export(open_catalog(store.inner), tmp_path / "to", "full", 2)

    target.interrupt("put_if_absent", rival, path="export.json")
    done = exporter(catalog, target).run(Asked(to=str(tmp_path / "to"), mode="partial", version=3))
    assert [record.id for record in read_exports(store)] == [done.id]


def test_the_record_is_there_before_the_target(catalog: TransactionalCatalog, tmp_path: Path) -> None:
    target = FaultyStorage(open_storage(str(tmp_path / "to"), create=True))
    seen: list[int] = []
    target.interrupt("put_if_absent", lambda: seen.append(len(read_exports(catalog.lake.storage))))
    exporter(catalog, target).run(Asked(to=str(tmp_path / "to"), mode="partial", version=3))
    writes = [path for operation, path in target.calls if operation in ("put", "put_if_absent")]
    assert seen == [1]
    assert writes[0] == "_lockstep/export.json"
    assert writes[-1] == "_lockstep/timeline/00000000000000000000.json"


# --- what is reported done is kept ------------------------------------------------------------------------------------


LATER = timedelta(days=400)
"""A record that keeps anything so much later keeps it for good."""


def is_kept(catalog: TransactionalCatalog, clock: Ticking, version: int) -> bool:
    return version in needed_versions(catalog.lake.storage, clock() + LATER) and not (
        catalog.lake.refresh().expired.has(version)
    )


def made(catalog: TransactionalCatalog, to: Path, version: int | None) -> ExportRecord:
    id = export(catalog, to, "partial", version).id
    [record] = [record for record in read_exports(catalog.lake.storage) if record.id == id]
    return record


def no_fence(store: FaultyStorage, catalog: TransactionalCatalog) -> None:
    """Have the timeline's next entry fail, and all that asks for it; the records of exports go on."""
    store.go_down(f"timeline/{catalog.lake.refresh().version + 1:020d}.json", landed=False)


def dropped(catalog: TransactionalCatalog, clock: Ticking, to: Path) -> tuple[int, str]:
    """Make a clone and drop its record; return its version, which a tag keeps, and its id, two days later."""
    done = export(catalog, to, "partial", catalog.timeline.head.version)
    catalog.run(
        lambda tx: tx.changing().create_tag(TagDdl(action="create", name="kept", version=done.database_version))
    )
    drop_export(catalog.lake.storage, done.id)
    clock.now += timedelta(days=2)
    return done.database_version, done.id


def test_a_whole_export_that_is_recorded_again_is_kept_once_it_is_reported_done(
    aging: TransactionalCatalog, store: FaultyStorage, clock: Ticking, tmp_path: Path
) -> None:
    """Whichever request fails before that, and whoever asks again. Its record is as old as the clone."""
    version, id = dropped(aging, clock, tmp_path / "to")
    number, ended = 0, False
    while not ended:
        number += 1
        store.die_at(number)
        try:
            exporter(aging).run(Asked(to=str(tmp_path / "to"), mode="partial", version=version))
            ended = True
        except UnavailableError:
            pass
        store.heal()
        assert export(aging, tmp_path / "to", "partial", version).is_done
        assert is_kept(aging, clock, version), f"call {number}"
        drop_export(store, id)
    assert number > 5


def test_a_whole_export_loses_the_mark_that_it_has_not_its_target(
    aging: TransactionalCatalog, clock: Ticking, tmp_path: Path
) -> None:
    """Lockstep left such marks when a request failed, or a process was killed, while a whole one was recorded again."""
    version, id = dropped(aging, clock, tmp_path / "to")
    record = made(aging, tmp_path / "to", version)
    aging.lake.storage.put(begun_path(id), b"")
    assert not is_kept(aging, clock, version)
    assert made(aging, tmp_path / "to", version) == record
    assert is_kept(aging, clock, version)


def test_a_whole_export_whose_version_expires_while_it_is_recorded_again_is_not_reported_done(
    aging: TransactionalCatalog, store: FaultyStorage, clock: Ticking, tmp_path: Path
) -> None:
    version, id = dropped(aging, clock, tmp_path / "to")

    def expire() -> None:
        other = open_catalog(store.inner, clock=clock)
        other.run(lambda tx: tx.changing().drop_tag("kept"))
        expire_all(other, clock)

    store.interrupt("put_if_absent", expire, path=f"{id}.json")
    with pytest.raises(ExpiredError, match=f"drop export {id}"):
        export(aging, tmp_path / "to", "partial", version)


def test_a_whole_export_is_not_reported_done_before_an_expiry_has_seen_its_record(
    aging: TransactionalCatalog, store: FaultyStorage, clock: Ticking, tmp_path: Path
) -> None:
    """An expiry read the records before, and puts its entry after the first process failed and the next one looked."""
    version, id = dropped(aging, clock, tmp_path / "to")
    aging.run(lambda tx: tx.changing().drop_tag("kept"))
    rival = FaultyStorage(store.inner)
    expiring = open_catalog(rival, clock=clock)

    def record_again() -> None:
        store.interrupt("put_if_absent", lambda: store.die_at(1), path=f"{id}.json", when="after")
        with pytest.raises(UnavailableError):
            export(aging, tmp_path / "to", "partial", version)
        store.heal()
        assert export(aging, tmp_path / "to", "partial", version).is_done

    append(expiring, "a", "more")
    rival.interrupt("put_if_absent", record_again, path=f"{expiring.timeline.head.version + 1:020d}.json")
    expire_snapshots(expiring.lake, older_than=clock(), retain_last=1, grace=timedelta(0))
    assert is_kept(aging, clock, version)


def test_an_export_is_kept_whatever_becomes_of_another_one_to_its_target(
    aging: TransactionalCatalog, store: FaultyStorage, clock: Ticking, tmp_path: Path
) -> None:
    """The one is slow, and had its target half a day ago; the other finds that, and its store fails at any request."""
    number, ended = 0, False
    version = aging.timeline.head.version
    while not ended:
        number += 1
        to = tmp_path / f"to{number}"
        target = FaultyStorage(open_storage(str(to), create=True))
        failing = FaultyStorage(store.inner)
        rival = open_catalog(failing, clock=clock)

        def join(failing: FaultyStorage = failing, rival: TransactionalCatalog = rival, to: Path = to) -> None:
            nonlocal ended
            clock.now += timedelta(hours=13)
            failing.die_at(number)  # noqa: B023 (it is called at once)
            try:
                export(rival, to, "partial", version)
                ended = True
            except UnavailableError:
                pass

        target.interrupt("put_if_absent", join, path="timeline/00000000000000000000.json")
        done = exporter(aging, target).run(Asked(to=str(to), mode="partial", version=version))
        assert is_kept(aging, clock, version), f"call {number}"
        drop_export(store, done.id)
    assert number > 10


def test_an_export_is_kept_when_another_one_to_its_target_cannot_tell_whether_it_will_be(
    aging: TransactionalCatalog, store: FaultyStorage, clock: Ticking, tmp_path: Path
) -> None:
    """As above, and the other fails once it has found its target: it may not say that nothing is there."""
    version = aging.timeline.head.version
    target = FaultyStorage(open_storage(str(tmp_path / "to"), create=True))

    def join() -> None:
        clock.now += timedelta(hours=13)
        failing = FaultyStorage(store.inner)
        rival = open_catalog(failing, clock=clock)
        failing.interrupt("delete", lambda: no_fence(failing, aging), path=".begun")
        with pytest.raises(UnavailableError):
            export(rival, tmp_path / "to", "partial", version)

    target.interrupt("put_if_absent", join, path="timeline/00000000000000000000.json")
    exporter(aging, target).run(Asked(to=str(tmp_path / "to"), mode="partial", version=version))
    assert is_kept(aging, clock, version)


def test_a_finished_export_has_a_record_that_keeps_what_it_needs_whoever_dropped_or_marked_it_meanwhile(
    aging: TransactionalCatalog, store: FaultyStorage, clock: Ticking, tmp_path: Path
) -> None:
    version = aging.timeline.head.version

    def mark() -> None:
        store.put(begun_path(read_exports(store)[0].id), b"")

    def drop() -> None:
        drop_export(store, read_exports(store)[0].id)

    for number, meanwhile in enumerate((mark, drop)):
        target = FaultyStorage(open_storage(str(tmp_path / f"to{number}"), create=True))
        target.interrupt("put_if_absent", meanwhile, path="timeline/00000000000000000000.json")
        done = exporter(aging, target).run(Asked(to=str(tmp_path / f"to{number}"), mode="partial", version=version))
        assert is_kept(aging, clock, version)
        drop_export(store, done.id)


def test_an_export_forgets_no_record_but_its_own(
    aging: TransactionalCatalog, store: FaultyStorage, clock: Ticking, tmp_path: Path
) -> None:
    """A clone was moved, and its record says where it was: it is what keeps its files, whoever has that place now."""
    moved = export(aging, tmp_path / "to", "partial", 1)
    shutil.move(tmp_path / "to", tmp_path / "elsewhere")
    append(aging, "a", "q")
    target = FaultyStorage(open_storage(str(tmp_path / "to"), create=True))
    target.interrupt("put_if_absent", lambda: made(open_catalog(store.inner, clock=clock), tmp_path / "to", None))
    with pytest.raises(DuplicateError, match="is the target of export"):
        exporter(aging, target).run(Asked(to=str(tmp_path / "to"), mode="partial", version=1))
    assert moved.id in {record.id for record in read_exports(store)}


def test_a_minimal_export_forgets_no_record_but_its_own(
    aging: TransactionalCatalog, store: FaultyStorage, clock: Ticking, tmp_path: Path
) -> None:
    moved = export(aging, tmp_path / "eod.json", "minimal", 1)
    (tmp_path / "eod.json").rename(tmp_path / "kept.json")
    append(aging, "a", "q")
    target = FaultyStorage(open_storage(str(tmp_path)))
    target.interrupt(
        "put_if_absent",
        lambda: export(open_catalog(store.inner, clock=clock), tmp_path / "eod.json", "minimal", None),
        path="eod.json",
    )
    with pytest.raises(DuplicateError, match="there is another export"):
        exporter(aging, target).run(Asked(to=str(tmp_path / "eod.json"), mode="minimal", version=1))
    assert moved.id in {record.id for record in read_exports(store)}


def test_an_export_that_another_has_gone_on_with_is_not_forgotten_when_its_own_process_fails(
    aging: TransactionalCatalog, store: FaultyStorage, clock: Ticking, tmp_path: Path
) -> None:
    """The other found its record, had the target, and was done before the first one's store failed."""
    version = aging.timeline.head.version
    other = open_catalog(store.inner, clock=clock)

    def go_on() -> None:
        made(other, tmp_path / "to", version)
        no_fence(store, other)

    store.interrupt("put_if_absent", go_on, path=".json", when="after")
    with pytest.raises(UnavailableError):
        export(aging, tmp_path / "to", "partial", version)
    store.heal()
    assert len(read_exports(store)) == 1
    assert is_kept(aging, clock, version)
