"""Several expiries at once: what one of them has left for an export, or an open transaction, the others leave, too."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.commit.records import record_of, write
from lockstep.retention.expiring import expire_snapshots
from tests.support.exports import export
from tests.support.faulty import FaultyStorage
from tests.support.lakes import append, open_catalog
from tests.support.retained import Ticking

Pin: TypeAlias = Callable[[TransactionalCatalog, Ticking], object]


def exports(catalog: TransactionalCatalog, _: Ticking) -> None:
    lake = Path(catalog.lake.storage.url.removeprefix("file://"))
    export(catalog, lake.with_name("clone"), "partial", None)


def stays_open(catalog: TransactionalCatalog, clock: Ticking) -> None:
    tx = catalog.begin()
    write(catalog.lake, record_of(tx, now=clock() + timedelta(hours=1), process="elsewhere:1"))


@pytest.fixture
def catalog(aging: TransactionalCatalog) -> TransactionalCatalog:
    append(aging, "a", "q")
    return aging


def expire_all(catalog: TransactionalCatalog, clock: Ticking) -> None:
    expire_snapshots(catalog.lake, older_than=clock(), retain_last=1, grace=timedelta(0))


@pytest.mark.parametrize("pin", [exports, stays_open])
@pytest.mark.parametrize("is_told", [True, False])
def test_an_expiry_that_another_overtakes_keeps_what_that_kept_of_versions_it_has_not_seen(
    catalog: TransactionalCatalog, store: FaultyStorage, clock: Ticking, pin: Pin, is_told: bool
) -> None:
    """It looked which versions there are; then one was made that somebody needs, became old, and was kept alone.

    So it is if it could not read who needs older ones, and wants none of them to expire.
    """
    other = FaultyStorage(store.inner)
    expiring = open_catalog(other, clock=clock)
    if not is_told:
        store.put("_lockstep/exports/damaged.json", b"{")
    needed: list[int] = []

    def overtake() -> None:
        if not is_told:
            store.delete("_lockstep/exports/damaged.json")
        append(catalog, "a", "new")
        needed.append(catalog.timeline.head.version)
        pin(catalog, clock)
        append(catalog, "a", "newer")
        clock.now += timedelta(hours=1)
        expire_all(catalog, clock)
        assert needed[0] in catalog.timeline.head.expired.kept

    if is_told:
        other.interrupt("list", overtake, path="_lockstep/exports")
    else:
        other.interrupt("get", overtake, path="damaged.json", when="after")
    expire_all(expiring, clock)
    assert needed
    assert not catalog.lake.refresh().expired.has(needed[0])
