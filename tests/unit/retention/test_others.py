"""What upkeep leaves alone since somebody else has it, or may have it: adopted tables, other lakes, shallow clones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lockstep.catalog import TransactionalCatalog
from lockstep.retention.ages import Retention
from lockstep.retention.deleting import carry_out
from lockstep.retention.planning import EVERYTHING, NOT_KNOWN, Scope, plan
from lockstep.retention.upkeep import Maintained, maintain
from lockstep.storage import Storage, open_storage
from lockstep.storage.outside import OutsideStorage
from tests.support.adopting import adopted, ids, plain_table, released
from tests.support.lakes import append, create, named, open_catalog
from tests.support.retained import Ticking

DAY = timedelta(days=1)
RETENTION = Retention(age=30 * DAY, last=1, grace=DAY, orphan_age=7 * DAY)
OF_AN_OBJECT = "507f1f77bcf86cd799439011"
"""What others end names with, too: the id of an object in MongoDB."""


@pytest.fixture
def clock() -> Ticking:
    """A clock that begins now, since the files here are as old as the disk says."""
    clock = Ticking()
    clock.now = datetime.now(UTC)
    return clock


@pytest.fixture
def store(tmp_path: Path) -> Storage:
    return OutsideStorage(open_storage(str(tmp_path / "lake"), create=True))


@pytest.fixture
def catalog(store: Storage, clock: Ticking) -> TransactionalCatalog:
    """A lake with the table a."""
    catalog = open_catalog(store, clock=clock)
    create(catalog, "a", files=["p"])
    return catalog


def again(catalog: TransactionalCatalog) -> TransactionalCatalog:
    """The same lake in another process."""
    return open_catalog(catalog.lake.storage, clock=catalog.lake.clock)


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
