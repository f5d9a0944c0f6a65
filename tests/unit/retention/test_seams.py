"""Upkeep where it meets others: commits of who looked dead, other names of the lake, other Locksteps, its own marks."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyarrow import parquet

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.log import commit_path
from lockstep.errors import ExpiredError, UnavailableError
from lockstep.lake import deletions
from lockstep.lake.deletions import Wanted
from lockstep.recovery.row_changes import VersionRange, commits_between, range_of_times
from lockstep.retention import planning
from lockstep.retention.ages import Retention
from lockstep.retention.deleting import carry_out
from lockstep.retention.expiring import expire_snapshots
from lockstep.retention.planning import EVERYTHING, Scope, need_at, plan
from lockstep.retention.upkeep import maintain, remove_orphan_files, vacuum
from lockstep.storage import open_storage
from tests.support.faulty import FaultyStorage
from tests.support.killed import Killed
from tests.support.lakes import (
    add,
    append,
    create,
    files,
    foreign,
    large,
    location,
    named,
    open_catalog,
    remove,
    stage,
    stage_new,
)
from tests.support.retained import AgedStorage, Ticking

DAY = timedelta(days=1)
AT_ONCE = Retention(age=timedelta(), last=1, grace=timedelta(), orphan_age=7 * DAY)


@pytest.fixture
def catalog(aged: AgedStorage, clock: Ticking) -> TransactionalCatalog:
    """A lake in which p gave way to q in table a, nine days ago."""
    catalog = open_catalog(aged, clock=clock)
    create(catalog, "a", files=["p"])
    replace_file(catalog, "p", "q", clock)
    clock.now += 9 * DAY
    append(catalog, "a", "later")
    return catalog


def replace_file(catalog: TransactionalCatalog, old: str, new: str, clock: Ticking) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", remove(old, deletionTimestamp=clock.ms), add(new))
    catalog.commit(tx)


def expire(catalog: TransactionalCatalog) -> None:
    expire_snapshots(catalog.lake, older_than=catalog.lake.clock(), retain_last=1, grace=timedelta())


def test_who_looked_dead_and_commits_after_all_keeps_what_it_staged(
    catalog: TransactionalCatalog, aged: AgedStorage, clock: Ticking
) -> None:
    """Its staged commit is all that says what it did until it is published, and its process dies before that."""
    faulty = FaultyStorage(aged)
    other = open_catalog(faulty, clock=clock)
    tx = other.begin()
    stage(other, tx, "a", large("its"))
    clock.now += 30 * DAY
    found = plan(catalog.lake, Scope(EVERYTHING, orphan_age=AT_ONCE.orphan_age), AT_ONCE)
    assert tx.id in found.dead

    def die() -> None:
        raise Killed

    for _ in range(2):
        faulty.interrupt("put_if_absent", die, path=commit_path(location(catalog, "a"), 3))
    with suppress(Killed):
        other.commit(tx)
    carry_out(catalog.lake, found, grace=timedelta())
    assert not open_catalog(aged, clock=clock).lake.refresh().set_aside


def test_who_looked_dead_and_commits_while_the_plan_is_made_keeps_what_it_staged(
    catalog: TransactionalCatalog, aged: AgedStorage, clock: Ticking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the look at what is staged, and another thread of the maintainer's process hears of the commit."""
    faulty = FaultyStorage(aged)
    other = open_catalog(faulty, clock=clock)
    tx = other.begin()
    stage(other, tx, "a", large("its"))
    clock.now += 30 * DAY

    def die() -> None:
        raise Killed

    for _ in range(2):
        faulty.interrupt("put_if_absent", die, path=commit_path(location(catalog, "a"), 3))

    def commits(*args: Any) -> frozenset[str]:
        with suppress(Killed):
            other.commit(tx)
        catalog.lake.timeline.refresh()
        return ended(*args)

    ended = planning._ended
    monkeypatch.setattr(planning, "_ended", commits)
    found = plan(catalog.lake, Scope(EVERYTHING, orphan_age=AT_ONCE.orphan_age), AT_ONCE)
    assert tx.id in found.dead
    carry_out(catalog.lake, found, grace=timedelta())
    assert not open_catalog(aged, clock=clock).lake.refresh().set_aside


def test_who_committed_is_not_ended_once_that_has_expired(
    catalog: TransactionalCatalog, clock: Ticking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process died behind the publication, so what it staged is there, and looks like a dead transaction's."""
    other = open_catalog(catalog.lake.storage, clock=clock)
    tx = other.begin()
    stage(other, tx, "a", add("its"))

    def die(*_args: object, **_more: object) -> None:
        raise Killed

    with monkeypatch.context() as patched, suppress(Killed):
        patched.setattr("lockstep.commit.ending.due_checkpoints", die)
        other.commit(tx)
    staged = f"{location(catalog, 'a')}/_delta_log/_lockstep/{tx.id}"
    assert catalog.lake.storage.list(staged)
    clock.now += 60 * DAY
    process = open_catalog(catalog.lake.storage, clock=clock)
    append(process, "a", "more")
    expire(process)
    done = maintain(process.lake, AT_ONCE)
    assert staged in done.swept.paths
    named_it = [entry.kind for entry in process.timeline.past() if tx.id in (entry.transaction.id, *entry.aborts)]
    assert named_it == ["transaction"]


def test_two_kinds_of_upkeep_each_night_delete_what_both_would(catalog: TransactionalCatalog, clock: Ticking) -> None:
    """Each leaves the other's marks alone, as does upkeep of one table, and removes its own once they are used."""
    retention = Retention.of({})
    create(catalog, "b", files=["p"])
    catalog.lake.storage.put(f"{location(catalog, 'b')}/litter", b"rows")
    expire(catalog)
    clock.now += 8 * DAY
    for _ in range(2):
        vacuum(catalog.lake, retention, table=named("a"))
        remove_orphan_files(catalog.lake, retention)
        vacuum(catalog.lake, retention, table=named("b"))
        clock.now += DAY + timedelta(hours=1)
    assert "p" not in catalog.lake.storage.list(location(catalog, "a"))
    assert "litter" not in catalog.lake.storage.list(location(catalog, "b"))
    assert catalog.lake.storage.list(deletions.FOLDER) == []


def test_expiry_looks_at_the_logs_before_it_deletes_what_mends_them(
    catalog: TransactionalCatalog, clock: Ticking
) -> None:
    """A table's log was restored from a backup without its last commit, and nobody used the table before upkeep."""
    create(catalog, "b")
    for n in range(3):
        append(catalog, "b", f"n{n}")
    catalog.lake.upkeep.settle()
    clock.now += 60 * DAY
    place = location(catalog, "a")
    for kind in ("json", "crc"):
        catalog.lake.storage.delete(f"{place}/_delta_log/{2:020d}.{kind}")
    process = open_catalog(catalog.lake.storage, clock=clock)
    done = maintain(process.lake, AT_ONCE)
    assert done.expired.after.first > 4
    assert catalog.lake.storage.exists(commit_path(place, 2))
    assert open_catalog(catalog.lake.storage, clock=clock).lake.newest().set_aside == {}


@pytest.mark.parametrize("has_expired", [False, True])
def test_what_was_brought_back_by_who_overtook_a_commit_of_ours_is_spared(
    catalog: TransactionalCatalog, clock: Ticking, has_expired: bool
) -> None:
    """Ours is moved behind theirs, since its process died before it was published; no entry names what theirs have."""
    store = FaultyStorage(catalog.lake.storage)
    other = open_catalog(store, clock=clock)
    expire(catalog)
    store.fail("put_if_absent", path=commit_path(location(catalog, "a"), 3), times=100)
    found = plan(catalog.lake, Scope(EVERYTHING, orphan_age=7 * DAY, is_everything=True), AT_ONCE)
    assert [each.path for each in found.doomed if each.kind == "data"] == [f"{location(catalog, 'a')}/p"]
    append(other, "a", "ours")
    foreign(catalog, "a", 3, add("p", modificationTime=1))
    foreign(catalog, "a", 4, add("beside"))
    if has_expired:
        another = open_catalog(catalog.lake.storage, clock=clock)
        append(another, "a", "more")
        clock.now += DAY
        append(another, "a", "and more")
        expire(another)
    swept = carry_out(open_catalog(catalog.lake.storage, clock=clock).lake, found, grace=timedelta())
    assert {"p", "ours", "beside"} <= files(catalog, "a")
    assert [each.path for each in swept.spared] == [f"{location(catalog, 'a')}/p"]


def test_a_lake_by_another_name_keeps_what_clones_share(
    catalog: TransactionalCatalog, aged: AgedStorage, clock: Ticking, tmp_path: Path
) -> None:
    tx = catalog.begin()
    stage_new(catalog, tx, "clone", add(f"{catalog.lake.storage.url}/{location(catalog, 'a')}/p"))
    catalog.commit(tx)
    expire(catalog)
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    store = AgedStorage(open_storage(str(tmp_path / "link")), clock)
    store.times = aged.times
    assert vacuum(open_catalog(store, clock=clock).lake, AT_ONCE).deleted_files == 0


def test_a_file_that_came_back_and_went_again_goes_in_the_end(catalog: TransactionalCatalog, clock: Ticking) -> None:
    """It was marked before it came back; such a mark counts no more, and hides no later one."""
    retention = Retention.of({})
    expire(catalog)
    assert vacuum(catalog.lake, retention).waiting_files == 1
    clock.now += timedelta(hours=6)
    append(catalog, "a", "p")
    replace_file(catalog, "p", "r", clock)
    append(catalog, "a", "s")
    clock.now += 8 * DAY
    expire(catalog)
    for _ in range(3):
        vacuum(catalog.lake, retention)
        clock.now += DAY + timedelta(hours=1)
    assert "p" not in catalog.lake.storage.list(location(catalog, "a"))
    assert catalog.lake.storage.list(deletions.FOLDER) == []


def test_what_another_lockstep_deletes_is_not_brought_back(catalog: TransactionalCatalog) -> None:
    path = f"{location(catalog, 'a')}/p"
    content = b'{"format":2,"id":"newer","began_at":"2030-01-10T00:00:00Z","files":["%s"],"more":1}' % path.encode()
    catalog.lake.storage.put(deletions.path_of("newer"), content)
    with pytest.raises(UnavailableError, match="begun-newer"):
        deletions.going(catalog.lake.storage, Wanted(files=frozenset({path})))


def test_a_table_made_and_dropped_since_the_first_version_is_needed(catalog: TransactionalCatalog) -> None:
    create(catalog, "n", files=["x"])
    place = location(catalog, "n")
    catalog.run(lambda tx: tx.changing().drop_table(named("n")))
    catalog.lake.refresh()
    assert need_at(catalog.lake, place).versions


def test_a_part_of_a_checkpoint_beside_a_whole_one_is_passed_over(
    catalog: TransactionalCatalog, clock: Ticking
) -> None:
    """Its writer died; what it lacks of the table's files is no litter."""
    place, store = location(catalog, "a"), catalog.lake.storage
    lines = [line for version in (0, 1) for line in (store.get(commit_path(place, version)) or b"").splitlines()]
    actions = [action for action in map(msgspec.json.decode, lines) if action.keys() & {"protocol", "metaData"}]
    actions += [{"add": {**add("q")["add"]}}, {"checkpointMetadata": {"version": 1}}]
    whole = b"\n".join(map(msgspec.json.encode, actions))
    store.put(f"{place}/_delta_log/{1:020d}.checkpoint.01234567-0123-0123-0123-0123456789ab.json", whole)
    part = BytesIO()
    parquet.write_table(pa.table({"add": pa.array([None], pa.struct([("path", pa.string())]))}), part)
    store.put(f"{place}/_delta_log/{1:020d}.checkpoint.{1:010d}.{2:010d}.parquet", part.getvalue())
    expire(catalog)
    for _ in range(3):
        vacuum(catalog.lake, AT_ONCE)
        clock.now += 40 * DAY
    assert {"q", "later"} <= {*store.list(place)}


def test_changes_since_a_time_outlive_what_expired(catalog: TransactionalCatalog, clock: Ticking) -> None:
    expire(catalog)
    clock.now += DAY
    append(catalog, "a", "new")
    head = catalog.database()
    versions = range_of_times(catalog.timeline, clock.now - timedelta(hours=1), None, last=head.version)
    assert versions == VersionRange(head.version - 1, head.version)
    with pytest.raises(ExpiredError, match="have expired"):
        commits_between(catalog.timeline, head.tables[named("a")].id, VersionRange(0, head.version))
