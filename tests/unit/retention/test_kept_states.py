"""What tags keep beside logs: logs need not be kept for it, files are, and it goes once nobody needs it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import deltalake
import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.commit.commit import commit
from lockstep.commit.files import Gone
from lockstep.commit.outcomes import Committed
from lockstep.delta.log import LOG, commit_path
from lockstep.delta.snapshot import read_snapshot
from lockstep.lake import deletions
from lockstep.lake.kept_states import FOLDER, kept_states, state_path, told_at
from lockstep.retention.ages import Retention
from lockstep.retention.deleting import carry_out
from lockstep.retention.expiring import expire_snapshots
from lockstep.retention.files import Doomed
from lockstep.retention.kept import with_kept
from lockstep.retention.needs import Need
from lockstep.retention.planning import EVERYTHING, Scope, need_at, plan
from lockstep.retention.upkeep import maintain, vacuum
from lockstep.timeline.entry import TagDdl
from tests.support.lakes import add, append, create, location, named, open_catalog, remove, stage
from tests.support.retained import AgedStorage, Ticking

DAY = timedelta(days=1)
AT_ONCE = Retention(age=timedelta(), last=1, grace=timedelta(), orphan_age=7 * DAY)


def tag(catalog: TransactionalCatalog, name: str) -> int:
    return catalog.run(lambda tx: tx.changing().create_tag(TagDdl(action="create", name=name))).version


def change(catalog: TransactionalCatalog, *actions: Any) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", *actions)
    catalog.commit(tx)


def expire(catalog: TransactionalCatalog) -> None:
    expire_snapshots(catalog.lake, older_than=catalog.lake.clock(), retain_last=1, grace=timedelta())


def checkpoint(catalog: TransactionalCatalog) -> None:
    catalog.lake.upkeep.settle()
    root = Path(catalog.lake.storage.url.removeprefix("file://"))
    deltalake.DeltaTable(str(root / location(catalog, "a"))).create_checkpoint()


def files_then(catalog: TransactionalCatalog, version: int) -> set[str]:
    table = catalog.timeline.at(version).tables[named("a")]
    store = catalog.lake.storage
    return {add["path"] for add in read_snapshot(store, told_at(store, table), table.version).files.values()}


@pytest.fixture
def catalog(aged: AgedStorage, clock: Ticking) -> TransactionalCatalog:
    """A lake whose table a has p and q in the tag `good`, and r and s behind a checkpoint, all of it long ago."""
    catalog = open_catalog(aged, clock=clock)
    create(catalog, "a", files=["p"])
    append(catalog, "a", "q")
    tag(catalog, "good")
    change(catalog, remove("p", deletionTimestamp=clock.ms), add("between"))
    change(catalog, *(remove(path, deletionTimestamp=clock.ms) for path in ("q", "between")), add("r"))
    checkpoint(catalog)
    clock.now += 60 * DAY
    append(catalog, "a", "s")
    return catalog


GOOD = 3


def data(catalog: TransactionalCatalog) -> set[str]:
    return {path for path in catalog.lake.storage.list(location(catalog, "a")) if not path.startswith(("_", "."))}


def test_a_log_goes_that_only_a_kept_tag_would_need(catalog: TransactionalCatalog) -> None:
    expire(catalog)
    place = location(catalog, "a")
    assert with_kept(catalog.lake, place, need_at(catalog.lake, place)).of_log == [4]
    swept = vacuum(catalog.lake, AT_ONCE)
    assert swept.kept_whole == {}
    names = catalog.lake.storage.list(f"{place}/{LOG}")
    assert f"{2:020d}.json" not in names, "nothing of before the checkpoint of version 3"
    assert data(catalog) == {"p", "q", "r", "s"}
    assert files_then(catalog, GOOD) == {"p", "q"}
    again = vacuum(open_catalog(catalog.lake.storage, clock=catalog.lake.clock).lake, AT_ONCE)
    assert (again.kept_whole, data(catalog)) == ({}, {"p", "q", "r", "s"}), "by what is kept, now that the log is gone"


def test_a_log_stays_that_a_tag_needs_of_which_nothing_is_kept(
    catalog: TransactionalCatalog, aged: AgedStorage
) -> None:
    """An older Lockstep made it."""
    aged.delete_folder(FOLDER)
    expire(catalog)
    vacuum(catalog.lake, AT_ONCE)
    assert f"{0:020d}.json" in aged.list(f"{location(catalog, 'a')}/{LOG}")
    maintain(catalog.lake, AT_ONCE)
    assert len(kept_states(aged).states) == 1, "it is kept late"
    maintain(catalog.lake, AT_ONCE)
    assert f"{0:020d}.json" not in aged.list(f"{location(catalog, 'a')}/{LOG}")
    assert files_then(catalog, GOOD) == {"p", "q"}


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_log_stays_whose_copies_may_have_gone_as_litter_before_they_were_said_to_be_kept(
    catalog: TransactionalCatalog, aged: AgedStorage, clock: Ticking, is_gone: bool
) -> None:
    """Who made the tag stood still between the copies and what says that they are kept, longer than litter stays."""
    ((key, said),) = kept_states(aged).states.items()
    [folder] = kept_states(aged).folders
    aged.times[said.path] += timedelta(hours=2)
    if is_gone:
        aged.delete_folder(folder)
    expire(catalog)
    vacuum(catalog.lake, AT_ONCE)
    assert f"{0:020d}.json" in aged.list(f"{location(catalog, 'a')}/{LOG}")
    assert files_then(catalog, GOOD) == {"p", "q"}
    if is_gone:
        for _ in range(3):
            maintain(catalog.lake, AT_ONCE)
            clock.now += DAY
        assert kept_states(aged).sure == {key}, "it is kept anew"
        assert f"{0:020d}.json" not in aged.list(f"{location(catalog, 'a')}/{LOG}")
        assert files_then(catalog, GOOD) == {"p", "q"}


def test_what_a_clean_up_from_outside_leaves_of_a_log_keeps_the_tags_files(
    catalog: TransactionalCatalog, aged: AgedStorage
) -> None:
    for version in range(3):
        aged.delete(commit_path(location(catalog, "a"), version))
    expire(catalog)
    swept = vacuum(catalog.lake, AT_ONCE)
    assert (swept.kept_whole, data(catalog)) == ({}, {"p", "q", "r", "s"})


def test_what_nobody_can_tell_of_keeps_the_table_whole(catalog: TransactionalCatalog, aged: AgedStorage) -> None:
    for version in range(3):
        aged.delete(commit_path(location(catalog, "a"), version))
    [path] = [found.path for found in aged.walk(FOLDER) if found.path.endswith(f"{LOG}/{1:020d}.json")]
    aged.put(path, b"{torn")
    expire(catalog)
    swept = vacuum(catalog.lake, AT_ONCE)
    assert ([*swept.kept_whole], data(catalog)) == ([location(catalog, "a")], {"p", "q", "between", "r", "s"})


def test_what_is_kept_goes_once_no_version_needs_it(
    catalog: TransactionalCatalog, aged: AgedStorage, clock: Ticking
) -> None:
    expire(catalog)
    catalog.run(lambda tx: tx.changing().drop_tag("good"))
    assert len(kept_states(aged).states) == 1, "DROP TAG deletes nothing"
    clock.now += 9 * DAY
    maintain(catalog.lake, AT_ONCE)
    assert [*aged.walk(FOLDER)] == []
    maintain(catalog.lake, AT_ONCE)
    assert data(catalog) == {"r", "s"}


def test_a_tag_that_is_made_while_what_it_would_share_goes_keeps_it_or_is_refused(
    catalog: TransactionalCatalog, aged: AgedStorage, clock: Ticking
) -> None:
    """What a dropped tag had kept is about to be deleted: it is written down, and behind that comes a fence."""
    expire(catalog)
    catalog.run(lambda tx: tx.changing().drop_tag("good"))
    clock.now += 9 * DAY
    id_ = catalog.timeline.head.tables[named("a")].id
    path = state_path(id_, 1)
    deletions.begin(aged, deletions.Begun(format=1, id="x", began_at=clock(), files=(path,)))
    tx = catalog.begin()
    tx.changing().create_tag(TagDdl(action="create", name="again", version=GOOD))
    assert isinstance(commit(catalog.lake, tx), Gone)
    deletions.end(aged, "x")
    tx = catalog.begin()
    tx.changing().create_tag(TagDdl(action="create", name="again", version=GOOD))
    assert isinstance(commit(catalog.lake, tx), Committed)
    clock.now += 9 * DAY
    maintain(catalog.lake, AT_ONCE)
    assert files_then(catalog, GOOD) == {"p", "q"}


def test_what_a_killed_attempt_left_goes_as_litter(
    catalog: TransactionalCatalog, aged: AgedStorage, clock: Ticking
) -> None:
    id_ = catalog.timeline.head.tables[named("a")].id
    for version in (1, 4):
        aged.put(f"{FOLDER}/{id_}/{version:020d}-killed/{LOG}/{0:020d}.json", b"{}")
    maintain(catalog.lake, AT_ONCE)
    assert len(kept_states(aged).folders) == 3, "it may be about to be needed"
    clock.now += 9 * DAY
    maintain(catalog.lake, AT_ONCE)
    assert len(kept_states(aged).folders) == 1
    assert files_then(catalog, GOOD) == {"p", "q"}


@pytest.mark.parametrize(
    ("need", "of_log"),
    [
        (Need(5), [5]),
        (Need(5, (1, 3)), [1, 3, 5]),
        (Need(5, (1, 3), frozenset({("t", 1)})), [3, 5]),
        (Need(None, (1,), frozenset({("t", 1)})), []),
        (Need(1, (1,), frozenset({("t", 1)})), [1]),
    ],
)
def test_which_versions_need_the_log(need: Need, of_log: list[int]) -> None:
    assert need.of_log == of_log


def test_what_a_tag_has_come_to_need_is_spared_whole(catalog: TransactionalCatalog, aged: AgedStorage) -> None:
    """Both of what says that it is kept and of the copies: one without the other would be worse than neither."""
    [(key, said)] = kept_states(aged).states.items()
    [folder] = kept_states(aged).folders
    before = plan(catalog.lake, Scope(EVERYTHING, is_everything=True), AT_ONCE)
    doomed = [Doomed(said.path, "litter", 1, said.modified_at), Doomed(folder, "folder", 1, said.modified_at)]
    catalog.run(lambda tx: tx.changing().create_tag(TagDdl(action="create", name="again", version=GOOD)))
    done = carry_out(catalog.lake, replace(before, doomed=doomed), grace=timedelta())
    assert {each.path for each in done.spared} == {said.path, folder}
    assert key in kept_states(aged).states
    assert files_then(catalog, GOOD) == {"p", "q"}
