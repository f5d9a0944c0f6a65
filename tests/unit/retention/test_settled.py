"""Tables that were settled, of which somebody has a version that their logs do not tell of any more."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from lockstep.errors import MissingFilesError
from lockstep.exports.export import Asked, Exporter
from lockstep.lake.exports import drop_export, read_exports, record_path
from lockstep.recovery.settle import Side
from lockstep.retention.ages import Retention
from lockstep.retention.expiring import expire_snapshots
from lockstep.retention.planning import shared_files
from lockstep.retention.upkeep import vacuum
from lockstep.storage.outside import open_reaching
from tests.support.diverged import SIDES, put_foreign, settled
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, again, append, create, location, open_catalog, remove, stage
from tests.support.retained import AgedStorage, Ticking

DAY = timedelta(days=1)


@pytest.mark.parametrize("keep", SIDES)
def test_what_an_export_has_of_a_clone_stays_when_that_is_settled(tmp_path: Path, clock: Ticking, keep: Side) -> None:
    """The commit that shared a file of another table is not in the clone's log any more."""
    store = FaultyStorage(AgedStorage(open_reaching(str(tmp_path / "lake"), create=True), clock))
    catalog = open_catalog(store, clock=clock)
    create(catalog, "a", "t", files=["p"])
    place = location(catalog, "a")
    shared = f"{store.url}/{place}/p"
    for name, actions in (("t", [remove("p"), add(shared)]), ("a", [remove("p"), add("q")])):
        tx = catalog.begin()
        stage(catalog, tx, name, *actions)
        catalog.commit(tx)
    catalog.lake.upkeep.settle()
    Exporter(again(catalog).lake).run(Asked(to=str(tmp_path / "export"), mode="partial"))
    put_foreign(catalog, 1, remove("p"), add("theirs"))
    settled(again(catalog), keep)
    if keep == "ours":
        after = again(catalog)
        tx = after.begin()
        stage(after, tx, "t", remove(shared), add("n"))
        after.commit(tx)
    append(again(catalog), "a", "x")
    lake = again(catalog).lake
    expire_snapshots(lake, older_than=lake.clock(), retain_last=1, grace=timedelta())
    clock.now += 40 * DAY

    at_once = Retention(age=timedelta(), last=1, grace=timedelta(), orphan_age=7 * DAY)
    why = vacuum(again(catalog).lake, at_once).kept_whole[place]
    assert "was settled, and its log does not say any more what it was, and an export or a transaction has" in why
    assert store.exists(f"{place}/p")
    for name in ("a", "t"):  # of the settled table itself, too, whose files only it has
        with pytest.raises(MissingFilesError, match="Drop that export") as caught:
            shared_files(again(catalog).lake, location(again(catalog), name))
        assert ("may be a clone" in caught.value.message) is (name == "a")

    [record] = read_exports(store)
    drop_export(store, record.id)
    store.put(record_path("torn"), b"{")
    assert "which exports or open transactions there are" in vacuum(again(catalog).lake, at_once).kept_whole[place]
    store.delete(record_path("torn"))
    vacuum(again(catalog).lake, at_once)
    assert not store.exists(f"{place}/p")
