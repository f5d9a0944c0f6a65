"""Tables whose log's beginning a clean-up took that knows no database versions: what of them, and of others, goes."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.commit import records
from lockstep.delta.log import LogFiles, commit_path
from lockstep.errors import MissingFilesError
from lockstep.exports.keeping import record_export
from lockstep.lake.exports import ExportRecord, record_path
from lockstep.lake.kept_states import kept_states
from lockstep.retention.ages import Retention
from lockstep.retention.expiring import expire_snapshots
from lockstep.retention.logs import first_told
from lockstep.retention.needs import Need
from lockstep.retention.planning import shared_files
from lockstep.retention.upkeep import vacuum
from lockstep.timeline.entry import TagDdl
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, again, append, create, location, open_catalog, remove, stage, stage_new
from tests.support.retained import AgedStorage, Ticking

DAY = timedelta(days=1)
AT_ONCE = Retention(age=timedelta(), last=1, grace=timedelta(), orphan_age=7 * DAY)


def change(catalog: TransactionalCatalog, name: str, *actions: Any) -> int:
    tx = catalog.begin()
    stage(catalog, tx, name, *actions)
    return catalog.commit(tx).version


def replace(catalog: TransactionalCatalog, name: str, old: str, new: str) -> int:
    """Put a file in another's place, so long ago that no checkpoint tells of the old one any more."""
    return change(catalog, name, remove(old), add(new))


def tag(catalog: TransactionalCatalog, name: str) -> int:
    return catalog.run(lambda tx: tx.changing().create_tag(TagDdl(action="create", name=name))).version


def cut(catalog: TransactionalCatalog, name: str) -> int:
    """Write a checkpoint of a table, and take all of its log that comes before; return the checkpoint's version."""
    catalog.lake.upkeep.settle()
    place = location(catalog, name)
    deltalake.DeltaTable(str(Path(catalog.lake.storage.url.removeprefix("file://"), place))).create_checkpoint()
    version = catalog.timeline.head.table_at(place)
    assert version is not None
    for each in range(version.version):
        catalog.lake.storage.delete(commit_path(place, each))
    return version.version


def data(catalog: TransactionalCatalog, name: str) -> set[str]:
    return {path for path in catalog.lake.storage.list(location(catalog, name)) if not path.startswith(("_", "."))}


def kept_whole(catalog: TransactionalCatalog, names: str) -> dict[str, str]:
    """Vacuum, and return of which tables nothing goes, by their names, and why."""
    by_location = {location(catalog, name): name for name in names}
    return {by_location[each]: why for each, why in vacuum(again(catalog).lake, AT_ONCE).kept_whole.items()}


def shared(catalog: TransactionalCatalog) -> str:
    """How a clone calls the file p of a."""
    return f"{catalog.lake.storage.url}/{location(catalog, 'a')}/p"


def expire(catalog: TransactionalCatalog, since: int | None = None) -> None:
    """Let all versions expire but the newest, or all before one."""
    lake = again(catalog).lake
    older_than = lake.clock() if since is None else lake.timeline.at(since).committed_at
    expire_snapshots(lake, older_than=older_than, retain_last=1, grace=timedelta())


@pytest.fixture
def catalog(aged: AgedStorage, clock: Ticking) -> TransactionalCatalog:
    """A lake whose a and b have lost o and p, and the versions that had them expired; but c, a clone, has p of a."""
    catalog = open_catalog(aged, clock=clock)
    create(catalog, "a", "b", files=["o", "p"])
    tx = catalog.begin()
    stage_new(catalog, tx, "c", add("own"), add(shared(catalog)))
    catalog.commit(tx)
    for name in ("a", "b"):
        change(catalog, name, remove("o"), remove("p"), add("q"))
    expire(catalog)
    return catalog


def cut_of_c(catalog: TransactionalCatalog, clock: Ticking, *, shares: bool = False) -> int:
    """Take the beginning of the log of c, whose rest names files of a or not.

    Returns:
        The first database version in which the log tells of c.
    """
    if not shares:
        replace(catalog, "c", shared(catalog), "x")
    append(catalog, "c", "y")
    told = catalog.timeline.head.version
    cut(catalog, "c")
    clock.now += 9 * DAY
    return told


# --- what nobody can read holds up its own table, and no other --------------------------------------------------------


def test_of_that_table_nothing_goes_and_of_others_what_nobody_needs(
    catalog: TransactionalCatalog, clock: Ticking
) -> None:
    cut_of_c(catalog, clock)
    why = kept_whole(catalog, "abc")
    assert why == {"c": why["c"]}
    assert re.fullmatch(
        r"its log does not tell of version 0 any more, which a database version that is kept has: commit 0 is gone",
        why["c"],
    )
    assert (data(catalog, "a"), data(catalog, "b"), data(catalog, "c")) == ({"q"}, {"q"}, {"own", "x", "y"})
    assert shared_files(again(catalog).lake, location(catalog, "a")) == frozenset()
    expire(catalog)
    assert kept_whole(catalog, "abc") == {}


def test_what_its_log_tells_of_is_needed(catalog: TransactionalCatalog, clock: Ticking) -> None:
    """A version behind the cut has the file, and a later one does not, which is read from a later checkpoint."""
    told = cut_of_c(catalog, clock, shares=True)
    replace(catalog, "c", shared(catalog), "x")
    append(catalog, "c", "z")
    place, storage = location(catalog, "c"), catalog.lake.storage
    catalog.lake.upkeep.settle()
    deltalake.DeltaTable(str(Path(storage.url.removeprefix("file://"), place))).create_checkpoint()
    assert storage.exists(commit_path(place, 2))
    assert "commit 0 is gone, and that table shares files of this one" in kept_whole(catalog, "abc")["a"]
    expire(catalog, since=told)
    assert kept_whole(catalog, "abc") == {}
    assert shared_files(again(catalog).lake, location(catalog, "a")) == {"p"}
    assert data(catalog, "a") == {"p", "q"}


def test_nothing_goes_of_a_table_whose_files_the_rest_of_the_log_names(
    catalog: TransactionalCatalog, clock: Ticking
) -> None:
    """What the clone shared before nobody can tell; who has a copy of its log may need it. Others are not concerned."""
    told = cut_of_c(catalog, clock, shares=True)
    place = location(catalog, "a")
    why = kept_whole(catalog, "abc")
    assert {*why} == {"a", "c"}
    assert why["a"].startswith(f"the log of {location(catalog, 'c')} does not tell of version 0 any more")
    assert (data(catalog, "a"), data(catalog, "b")) == ({"o", "p", "q"}, {"q"})
    assert shared_files(again(catalog).lake, location(catalog, "b")) == frozenset()
    with pytest.raises(MissingFilesError, match=r"nothing was deleted of .*shares files of this one") as caught:
        shared_files(again(catalog).lake, place)
    do_as_it_says(catalog, caught.value.message)
    assert again(catalog).timeline.head.expired.first_kept == told
    assert shared_files(again(catalog).lake, place) == {"p"}


def do_as_it_says(catalog: TransactionalCatalog, message: str) -> None:
    """Let expire what a message says."""
    said = re.search(r"older_than => TIMESTAMP '([^']+)', retain_last => (\d+)\)", message)
    assert said is not None
    lake = again(catalog).lake
    expire_snapshots(lake, older_than=datetime.fromisoformat(said[1]), retain_last=int(said[2]), grace=timedelta())
    catalog.lake.refresh()


# --- what can be read all the same ------------------------------------------------------------------------------------


def of_a_tag(catalog: TransactionalCatalog) -> None:
    tag(catalog, "kept")


def of_a_tag_said_late(catalog: TransactionalCatalog) -> None:
    """Its copies may have gone as litter before, and have not."""
    tag(catalog, "kept")
    aged = catalog.lake.storage
    assert isinstance(aged, AgedStorage)
    for said in kept_states(aged).states.values():
        aged.times[said.path] += timedelta(hours=2)


@pytest.mark.parametrize("make", [of_a_tag, of_a_tag_said_late])
@pytest.mark.parametrize("is_alone", [True, False])
def test_a_version_that_a_tag_has_copies_of_needs_its_files(
    catalog: TransactionalCatalog, clock: Ticking, make: Callable[[TransactionalCatalog], None], is_alone: bool
) -> None:
    """Be it one of all since some version that stay, or alone."""
    make(catalog)
    cut_of_c(catalog, clock)
    append(catalog, "b", "r")
    if is_alone:
        expire(catalog)
    is_concerned = "a" in kept_whole(catalog, "abc")
    assert is_concerned is not is_alone, "of other versions that are lost nobody can tell"
    assert data(catalog, "a") - {"o"} == {"p", "q"}
    if is_alone:
        assert data(catalog, "a") == {"p", "q"}
        assert shared_files(again(catalog).lake, location(catalog, "a")) == {"p"}


def of_an_export(catalog: TransactionalCatalog, clock: Ticking) -> Callable[[], None]:
    lake = catalog.lake
    record = ExportRecord(
        format=1,
        id="x",
        database_version=catalog.timeline.head.version,
        mode="partial",
        source=lake.storage.url,
        target="elsewhere",
        created_at=clock(),
    )
    record_export(lake.storage, record)
    return lambda: lake.storage.delete(record_path("x"))


def of_a_transaction(catalog: TransactionalCatalog, clock: Ticking) -> Callable[[], None]:
    tx = catalog.begin()
    clock.now += 9 * DAY
    records.write(catalog.lake, records.record_of(tx, now=clock() + 9 * DAY, process="there"))
    return lambda: records.remove(catalog.lake, tx.id)


def of_who_cannot_be_read(catalog: TransactionalCatalog, _: Ticking) -> Callable[[], None]:
    catalog.lake.storage.put(record_path("x"), b"{torn")
    return lambda: catalog.lake.storage.delete(record_path("x"))


@pytest.mark.parametrize("hold", [of_an_export, of_a_transaction, of_who_cannot_be_read])
@pytest.mark.parametrize("is_alone", [True, False])
def test_a_version_stays_needed_that_somebody_reads_who_needs_no_log(
    catalog: TransactionalCatalog,
    clock: Ticking,
    hold: Callable[[TransactionalCatalog, Ticking], Callable[[], None]],
    is_alone: bool,
) -> None:
    end = hold(catalog, clock)
    cut_of_c(catalog, clock)
    if is_alone:
        expire(catalog)
    assert {*kept_whole(catalog, "abc")} == {"a", "b", "c"}
    assert data(catalog, "a") == {"o", "p", "q"}
    with pytest.raises(MissingFilesError, match=r"nothing was deleted: the log of .* commit 0 is gone"):
        shared_files(again(catalog).lake, location(catalog, "a"))
    end()
    assert shared_files(again(catalog).lake, location(catalog, "a")) == frozenset()


def test_who_needs_a_version_is_asked_behind_the_look_at_the_logs(
    catalog: TransactionalCatalog, clock: Ticking
) -> None:
    """An export is begun while upkeep looks, and the log that it has read is cut behind it."""
    end, record = of_an_export(catalog, clock), catalog.lake.storage.get(record_path("x"))
    end()
    replace(catalog, "c", shared(catalog), "x")
    clock.now += 9 * DAY
    store = FaultyStorage(catalog.lake.storage)

    def export_and_cut() -> None:
        assert record is not None
        store.put(record_path("x"), record)
        cut(catalog, "c")

    store.interrupt("walk", export_and_cut)
    swept = vacuum(open_catalog(store, clock=clock).lake, AT_ONCE)
    assert "an export or a transaction has database version" in swept.kept_whole[location(catalog, "a")]
    assert data(catalog, "a") == {"o", "p", "q"}


def test_a_log_with_a_gap_has_lost_what_no_clean_up_takes(catalog: TransactionalCatalog, clock: Ticking) -> None:
    """It may get that back, and tells of a version before it: so nobody knows what the table shares."""
    place, storage = location(catalog, "c"), catalog.lake.storage
    first = storage.get(commit_path(place, 0))
    cut_of_c(catalog, clock)
    assert first is not None
    storage.put(commit_path(place, 0), first)
    gone = f"{commit_path(place, 1)} is gone, and what follows it needs it"
    assert f"what the log of {place} says cannot be read: {gone}, and that may be" in kept_whole(catalog, "abc")["a"]
    assert data(catalog, "a") == {"o", "p", "q"}
    with pytest.raises(MissingFilesError, match=re.escape(gone)):
        shared_files(again(catalog).lake, location(catalog, "a"))


# --- from where a log tells -------------------------------------------------------------------------------------------

TELLS: list[tuple[str, str, str, Need, int | None]] = [
    # commits, checkpoints, what is needed, the first that is told
    ("all of it", "0123", "", Need(0), 0),
    ("a checkpoint and on", "2345", "2", Need(0), 2),
    ("commits before the checkpoint", "12345", "3", Need(0), 3),
    ("a checkpoint without its commit", "345", "2", Need(0), 2),
    ("a checkpoint alone", "", "4", Need(0), 4),
    ("two checkpoints", "23456", "24", Need(0), 2),
    ("a gap behind one that is needed", "2356", "25", Need(0), None),
    ("a gap behind one that is not", "2356", "25", Need(4), 5),
    ("a gap behind one that is needed alone", "2356", "25", Need(6, (3,)), None),
    ("a gap behind the first commits", "0156", "5", Need(0), None),
    ("a gap behind first commits that nobody needs", "0156", "5", Need(3), 5),
    ("no checkpoint", "345", "", Need(0), None),
    ("nothing", "", "", Need(0), None),
]


@pytest.mark.parametrize(
    ("commits", "checkpoints", "need", "first"), [case[1:] for case in TELLS], ids=[case[0] for case in TELLS]
)
def test_from_where_a_log_tells_of_all(commits: str, checkpoints: str, need: Need, first: int | None) -> None:
    log = LogFiles(frozenset(map(int, commits)), frozenset(map(int, checkpoints)))
    assert first_told(log, need) == first
