"""Exports that end before they are done, or meet another one: what is left, and what the same asked for again makes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import DuplicateError, ExpiredError, UnavailableError
from lockstep.exports.export import Asked
from lockstep.lake.exports import FOLDER, begun_path, drop_export, read_exports
from lockstep.lake.verify import verify
from lockstep.retention.ages import Retention
from lockstep.retention.expiring import expire_snapshots
from lockstep.retention.upkeep import remove_orphan_files
from lockstep.storage import open_storage
from lockstep.timeline import fence
from lockstep.timeline.entry import ExportMode, TagDdl
from tests.support.exports import build_lake, export, exporter, opened, paths, tree_of
from tests.support.faulty import FaultyStorage
from tests.support.killed import Killed
from tests.support.lakes import append, create, open_catalog
from tests.support.retained import Ticking


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


@pytest.fixture
def clock() -> Ticking:
    return Ticking()


@pytest.fixture
def aging(store: FaultyStorage, clock: Ticking, monkeypatch: pytest.MonkeyPatch) -> TransactionalCatalog:
    """A lake with a clock of its own."""
    monkeypatch.setattr(fence, "GRACE_SECONDS", 0.0)  # no process but this one
    catalog = open_catalog(store, clock=clock)
    create(catalog, "a", files=["p"])
    return catalog


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
