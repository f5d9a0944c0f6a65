"""Shallow clones that others made, and that are adopted while files go which they share with tables of the lake."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lockstep.adoption.adopt import Wanted, adopt, look
from lockstep.catalog import TransactionalCatalog
from lockstep.errors import LockstepError, UnavailableError
from lockstep.lake import deletions
from lockstep.lake.lake import Lake
from lockstep.retention.ages import Retention
from lockstep.retention.deleting import carry_out
from lockstep.retention.expiring import expire_snapshots
from lockstep.retention.planning import VACUUM, Plan, Scope, plan
from lockstep.storage.outside import open_reaching
from tests.support.adopting import adopted, written_log
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, again, append, create, location, named, open_catalog, remove, stage
from tests.support.retained import Ticking

DAY = timedelta(days=1)
RETENTION = Retention(age=30 * DAY, last=1, grace=DAY, orphan_age=7 * DAY)


@pytest.fixture
def clock() -> Ticking:
    """A clock that begins now, since the files here are as old as the disk says."""
    return Ticking(datetime.now(UTC))


@pytest.fixture
def catalog(clock: Ticking, tmp_path: Path) -> TransactionalCatalog:
    """A lake with the table a, whose store also reaches what is outside of it."""
    catalog = open_catalog(FaultyStorage(open_reaching(str(tmp_path / "lake"), create=True)), clock=clock)
    create(catalog, "a", files=["p"])
    return catalog


def clone_of_what_goes(catalog: TransactionalCatalog, clock: Ticking, tmp_path: Path, place: str) -> tuple[Plan, Path]:
    """Have a plain clone that names p of table a, which nobody in the lake needs any more; return the plan, and it."""
    source = location(catalog, "a")
    tx = catalog.begin()
    stage(catalog, tx, "a", remove("p", deletionTimestamp=clock.ms), add("q"))
    catalog.commit(tx)
    folder = written_log(tmp_path / place, add(f"file:{tmp_path}/lake/{source}/p", modificationTime=1))
    clock.now += 40 * DAY
    append(catalog, "a", "x")
    catalog.lake.upkeep.settle()
    expire_snapshots(catalog.lake, older_than=clock(), retain_last=1, grace=timedelta())
    found = plan(again(catalog).lake, Scope(VACUUM), RETENTION)
    assert f"{source}/p" in {each.path for each in found.doomed}
    return found, folder


@pytest.mark.parametrize("place", ["warehouse/c", "lake/c"])
def test_a_clone_that_is_adopted_before_the_fence_keeps_what_it_shares(
    catalog: TransactionalCatalog, clock: Ticking, tmp_path: Path, place: str
) -> None:
    found, folder = clone_of_what_goes(catalog, clock, tmp_path, place)
    adopted(again(catalog), "c", folder)
    done = carry_out(again(catalog).lake, found, grace=timedelta())
    assert f"{location(catalog, 'a')}/p" in {each.path for each in done.spared}
    assert (tmp_path / "lake" / location(catalog, "a") / "p").exists()


@pytest.mark.parametrize("place", ["warehouse/c", "lake/c"])
def test_a_clone_is_not_adopted_while_what_it_shares_goes(
    catalog: TransactionalCatalog, clock: Ticking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """One that names nothing of that is."""
    found, folder = clone_of_what_goes(catalog, clock, tmp_path, place)
    apart = written_log(tmp_path / f"{place}-apart", add("n"))
    outcomes: list[LockstepError] = []
    fence = Lake.fence

    def adopt_behind(lake: Lake) -> None:
        fence(lake)
        monkeypatch.setattr(Lake, "fence", fence)
        with pytest.raises(LockstepError) as error:
            adopted(again(catalog), "c", folder)
        outcomes.append(error.value)
        adopted(again(catalog), "apart", apart)

    monkeypatch.setattr(Lake, "fence", adopt_behind)
    carry_out(again(catalog).lake, found, grace=timedelta())
    assert f"{location(catalog, 'a')}/p, which transaction" in outcomes[0].message
    assert "is being deleted" in outcomes[0].message
    assert not (tmp_path / "lake" / location(catalog, "a") / "p").exists()
    assert {*again(catalog).database().tables} == {named("a"), named("apart")}


def test_no_data_goes_while_nobody_can_tell_what_a_table_shares_that_was_adopted_since(
    catalog: TransactionalCatalog, clock: Ticking, tmp_path: Path
) -> None:
    found, folder = clone_of_what_goes(catalog, clock, tmp_path, "warehouse/c")
    adopted(again(catalog), "c", folder)
    (folder / "_delta_log" / f"{0:020d}.json").write_bytes(b"{")
    done = carry_out(again(catalog).lake, found, grace=timedelta())
    assert {each.path for each in found.doomed if each.kind in ("data", "litter")} <= {e.path for e in done.spared}


@pytest.mark.parametrize("is_going", [True, False])
def test_a_table_whose_log_cannot_be_read_is_adopted_if_nothing_goes(
    catalog: TransactionalCatalog, clock: Ticking, tmp_path: Path, is_going: bool
) -> None:
    """Only while something goes does COMMIT read all that a log says: adopting costs nothing of that else."""
    found, folder = clone_of_what_goes(catalog, clock, tmp_path, "warehouse/c")
    other = again(catalog)
    tx = other.begin()
    adopt(other.lake, tx, look(other.lake, tx.names, [Wanted(named("c"), str(folder))]))
    (folder / "_delta_log" / f"{0:020d}.json").write_bytes(b"{")
    if not is_going:
        other.commit(tx)
        return
    begun = deletions.Begun.of("x", found.head, clock.now, ([f"{location(catalog, 'a')}/p"], []))
    deletions.begin(other.lake.storage, begun)
    with pytest.raises(UnavailableError, match=r"whether .*warehouse/c names one of them cannot be told"):
        other.commit(tx)
    assert tx.is_open
