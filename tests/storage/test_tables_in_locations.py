"""Tables of a lake in a registered location: another server, other keys, another kind of store than the root's.

The servers take only what is signed with their own key, and have one bucket each.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import lockstep
from lockstep.adoption.adopt import Wanted, adopt, look
from lockstep.adoption.release import release
from lockstep.catalog import TransactionalCatalog
from lockstep.errors import InvalidError, LockstepError, StoreRefusedError
from lockstep.exports.copying import Stores, check_there
from lockstep.exports.deep import verify_deep
from lockstep.exports.export import Asked, Exporter
from lockstep.exports.files import Place as InTable
from lockstep.lake.claims import claim_path
from lockstep.lake.identity import PATH as IDENTITY
from lockstep.lake.verify import verify
from lockstep.retention.ages import Retention
from lockstep.retention.removed import _named
from lockstep.retention.upkeep import maintain, vacuum
from lockstep.spark.host.export_procedures import _origin
from lockstep.storage import Storage, open_storage
from lockstep.storage.locations import registered
from lockstep.storage.outside import OutsideStorage, check_reach, locations_of, opener_of
from lockstep.tables.by_deltalake import options_of
from lockstep.tables.opened import OpenLake
from lockstep.timeline.entry import Commit, TableWrite, TagDdl
from lockstep.timeline.hint import HINT
from lockstep.workers import Workers
from tests.support.entries import entry
from tests.support.lakes import named
from tests.support.s3 import Guarded, moto, serving

pytestmark = pytest.mark.long

SECRET = "planted/SECRET"
ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})


@dataclass(frozen=True)
class Place:
    """A folder, and what its store is opened with."""

    url: str
    options: Mapping[str, str] | None

    def below(self, name: str) -> Place:
        return Place(f"{self.url}/{name}", self.options)

    @property
    def store(self) -> Storage:
        return open_storage(self.url, create=True, options=self.options)

    @property
    def delta(self) -> dict[str, Any]:
        place = self.url.removeprefix("file://")
        return {"table_or_uri": place, "storage_options": options_of(self.url, self.options or {})}

    def ids(self) -> list[int]:
        said = self.delta
        table = DeltaTable(said["table_or_uri"], storage_options=said["storage_options"])
        return sorted(table.to_pyarrow_table()["id"].to_pylist())


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Place]]:
    """Two servers with a bucket and a key of their own."""
    found = {}
    with ExitStack() as stack:
        for bucket in ("ours", "theirs"):
            endpoint = stack.enter_context(serving(Guarded(moto(), bucket, f"key-of-{bucket}"), bucket=bucket))
            keys = {"access_key_id": f"key-of-{bucket}", "secret_access_key": SECRET, "region": "us-east-1"}
            found[bucket] = Place(f"s3://{bucket}", {**keys, "endpoint": endpoint})
        yield found


KINDS = {
    "s3 beside a local lake": ("local", "theirs"),
    "another server": ("ours", "theirs"),
    "a disk beside a lake in s3": ("ours", "local"),
    "a disk": ("local", "local"),
}


@pytest.fixture(params=KINDS)
def places(request: pytest.FixtureRequest, servers: dict[str, Place], tmp_path: Path) -> tuple[Place, Place]:
    """Where a lake is to be, and a warehouse beside it."""
    local = Place(f"file://{tmp_path}", None)
    lake, warehouse = (servers.get(kind, local).below(tmp_path.name) for kind in KINDS[request.param])
    return lake.below("lake"), warehouse.below("warehouse")


def opened(lake: Place, *locations: Place, only: bool = True) -> OpenLake:
    said = {each.url: each.options for each in locations}
    return lockstep.open(lake.url, create=True, options=lake.options, locations=said, locations_only=only)


def filled(table: Place, rows: pa.Table = ROWS) -> Place:
    write_deltalake(data=rows, mode="append", **table.delta)
    return table


def take_in(catalog: TransactionalCatalog, name: str, table: Place) -> None:
    tx = catalog.begin()
    found = look(catalog.lake, tx.names, [Wanted(named(name), table.url)])
    adopt(catalog.lake, tx, found)
    catalog.commit(tx)


def written_there(root: Place, warehouse: Place) -> tuple[OpenLake, Place]:
    """Make a lake that has adopted a table in a location, and has written it beside one of its own; return both."""
    orders = filled(warehouse.below("orders"))
    lake = opened(root, warehouse)
    take_in(lake.catalog, "orders", orders)
    with lake.transaction() as tx:
        tx.create("home", ROWS.schema)
        tx["home"].append(ROWS)
        tx["orders"].append({"id": [3]})
    return lake, orders


def ids(rows: pa.Table) -> list[int]:
    return sorted(rows["id"].to_pylist())


def all_of(store: Storage) -> dict[str, bytes]:
    return {each.path: store.get(each.path) or b"" for each in store.walk("")}


def test_a_table_in_a_location_takes_part_in_all_that_a_lake_does(
    places: tuple[Place, Place], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    root, warehouse = places
    orders = filled(warehouse.below("orders"))
    lake = opened(root, warehouse)
    take_in(lake.catalog, "orders", orders)
    before = lake.at().version
    assert lake.catalog.database().tables[named("orders")].location == orders.url

    with lake.transaction() as tx:
        tx.create("home", ROWS.schema)
        tx["home"].append(ROWS)
        tx["orders"].append({"id": [3]})
        tx["orders"].delete("id = 1")
        assert tx.sql("SELECT count(*) AS n FROM orders JOIN home USING (id)").to_pylist() == [{"n": 1}]
    assert (ids(lake.at()["orders"].to_arrow()), ids(lake.at()["home"].to_arrow())) == ([2, 3], [1, 2])
    assert ids(lake.at(before)["orders"].to_arrow()) == [1, 2]
    assert lake.at().sql("SELECT sum(id) AS s FROM orders").to_pylist() == [{"s": 5}]
    assert orders.ids() == [2, 3], "it is an ordinary Delta table"

    was = all_of(orders.store)
    with suppress(KeyError), lake.transaction() as tx:
        tx["orders"].append({"id": [4]})
        raise KeyError
    assert all_of(orders.store) == was, "a rollback removes in the location what was written there"

    filled(orders, pa.table({"id": pa.array([9], pa.int64())}))
    assert ids(lake.at()["orders"].to_arrow()) == [2, 3, 9], "what a plain writer commits there is found"

    made = warehouse.below("made")
    with lake.transaction() as tx:
        tx.create("made", ROWS.schema, location=made.url)
        tx["made"].append(ROWS)
    assert made.ids() == [1, 2]

    copy = tmp_path / "copy"
    Exporter(lake.catalog.lake).run(Asked(to=str(copy), mode="full"))
    assert ids(lockstep.open(str(copy)).at()["orders"].to_arrow()) == [2, 3, 9], "an export reads by the location, too"

    lake_again = opened(root, warehouse)  # another process
    assert ids(lake_again.at()["orders"].to_arrow()) == [2, 3, 9]
    vacuum(lake_again.catalog.lake, Retention.of({}))
    done = maintain(lake_again.catalog.lake, Retention.of({})).swept
    assert set(done.kept_whole) == {orders.url, made.url}
    assert all(why.startswith("it was adopted or released") for why in done.kept_whole.values()), "both logs were read"

    def let_go(tx: Any) -> None:
        release(lake_again.catalog.lake, tx, [named("orders"), named("made")])

    lake_again.catalog.run(let_go)
    assert orders.store.get(claim_path(".").removeprefix("./")) is None
    assert orders.ids() == [2, 3, 9]
    written = [*all_of(root.store).values(), *all_of(warehouse.store).values()]
    assert not [data for data in written if SECRET.encode() in data]
    assert SECRET not in caplog.text


@pytest.mark.parametrize("name", ["orders", "new"])
def test_nothing_is_adopted_or_made_elsewhere(name: str, places: tuple[Place, Place]) -> None:
    root, warehouse = places
    filled(warehouse.below("orders"))
    before = all_of(warehouse.store)
    lake = opened(root, warehouse.below("another"))
    table = warehouse.below(name)
    with pytest.raises(InvalidError, match="nor in a location that is registered") as caught:
        take_in(lake.catalog, "t", table)
    assert caught.value.message.startswith(f"cannot adopt {table.url}")
    with pytest.raises(InvalidError, match="nor in a location that is registered") as made, lake.transaction() as tx:
        tx.create("t", ROWS.schema, location=table.url)
    assert made.value.sqlstate == "42501"
    assert all_of(warehouse.store) == before


def test_who_is_told_of_no_such_location_uses_no_table_there(places: tuple[Place, Place]) -> None:
    """An entry may name any place: who may write the root is not who says where a process goes."""
    root, warehouse = places
    orders = filled(warehouse.below("orders"))
    lake = opened(root, warehouse)
    take_in(lake.catalog, "orders", orders)
    with lake.transaction() as tx:
        tx.create("home", ROWS.schema)
        tx["home"].append(ROWS)
    before, other = all_of(orders.store), opened(root)

    def append() -> None:
        with other.transaction() as tx:
            tx["orders"].append({"id": [3]})

    def read() -> None:
        with other.transaction(read_only=True) as tx:
            tx["orders"].to_arrow()

    for call in (
        lambda: other.at()["orders"],
        lambda: other.at(lake.at().version)["orders"],
        lambda: other.at().sql("SELECT * FROM orders"),
        append,
        read,
        lambda: release(other.catalog.lake, other.catalog.begin(), [named("orders")]),
    ):
        with pytest.raises(InvalidError, match=f"table default.orders at {orders.url} lies neither") as caught:
            call()
        assert caught.value.sqlstate == "42501"
    assert ids(other.at()["home"].to_arrow()) == [1, 2], "the others are used as ever"
    assert not [path for path in maintain(other.catalog.lake, Retention.of({})).swept.paths if "://" in path]
    assert all_of(orders.store) == before
    other.catalog.run(lambda tx: tx.changing().drop_table(named("orders")))
    assert all_of(orders.store) == before, "it is let go without a look"


def test_what_a_commit_wrote_out_of_reach_stops_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever ratified it died before he published it: who may not look at the table sets it aside, and it alone."""
    root, warehouse = Place(f"file://{tmp_path}/lake", None), Place(f"file://{tmp_path}/warehouse", None)
    lake, _ = written_there(root, warehouse)
    lake.catalog.lake.upkeep.settle()
    written = lake.at().version
    [commit] = (tmp_path / "warehouse/orders/_delta_log").glob("*1.json")
    published = commit.read_bytes()
    commit.unlink()
    root.store.delete(HINT)

    other = opened(root)
    assert ids(other.at()["home"].to_arrow()) == [1, 2]
    with other.transaction() as tx:
        tx["home"].append({"id": [3]})
    with pytest.raises(InvalidError, match="lies neither below the lake's root") as caught:
        other.at()["orders"]
    assert caught.value.sqlstate == "42501"
    other.catalog.run(lambda tx: tx.changing().drop_table(named("orders")))
    assert ids(other.at()["home"].to_arrow()) == [1, 2, 3]
    other.catalog.lake.upkeep.settle()
    assert other.catalog.timeline.published_through < written, "a table that is dropped does not make it published"
    assert not commit.exists()
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]

    opened(root, warehouse).at()
    assert commit.read_bytes() == published, "who may look there publishes it"


def test_verify_passes_over_what_is_out_of_reach_by_name(tmp_path: Path) -> None:
    """And `--deep` does not say of its files that they are gone, which would send somebody to a backup."""
    root, warehouse = Place(f"file://{tmp_path}/lake", None), Place(f"file://{tmp_path}/warehouse", None)
    lake, orders = written_there(root, warehouse)
    tag = TagDdl(action="create", name="eod", version=lake.at().version)
    lake.catalog.run(lambda tx: tx.changing().create_tag(tag))
    lake.catalog.lake.upkeep.settle()
    other = opened(root).catalog
    storage = other.lake.storage
    for found in (verify(storage, other.timeline).differences, verify_deep(storage, other.timeline)):
        assert {(each.problem, str(each.table), each.path) for each in found} == {
            ("out of reach", "default.orders", orders.url)
        }
    [file, *_] = orders.store.list("")
    needed = {InTable(orders.url, file), InTable(f"file://{tmp_path}/lake", "t/gone")}
    stores = Stores(storage, opener_of(storage))
    with pytest.raises(InvalidError, match="lies neither below the lake's root") as caught:
        check_there(stores, needed, Workers(1, "test"))
    assert caught.value.sqlstate == "42501"


def test_upkeep_reads_no_staged_commit_of_a_dropped_table_out_of_reach(tmp_path: Path) -> None:
    """It names no file of such a table, and goes on."""
    lake = opened(Place(f"file://{tmp_path}/lake", None)).catalog.lake
    url = f"file://{tmp_path}/elsewhere/t"
    staged = Commit(staged=f"{url}/_delta_log/_staged_commits/a.json")
    write = TableWrite(id="id", name=named("t"), location=url, from_version=-1, to_version=0, commits=[staged])
    assert _named(lake, entry(1, writes=[write]), write) is None


def test_a_promotion_reaches_each_location_by_its_own_options(servers: dict[str, Place], tmp_path: Path) -> None:
    """The keys of the origin's store go to no location that has none of its own."""
    origin = servers["theirs"].below(tmp_path.name)
    opened(origin)
    said = {origin.url: origin.options, "s3://elsewhere": {}}
    root = f"file://{tmp_path}/clone"
    clone = OutsideStorage(open_storage(root, create=True), None, registered(root, None, said, only=True))
    storage = _origin(clone, origin.url, {}).lake.storage
    [elsewhere] = locations_of(storage).places
    assert (elsewhere.url, elsewhere.options, elsewhere.is_apart) == ("s3://elsewhere", {}, True)
    assert locations_of(storage).only


def test_options_of_the_lakes_own_store_are_not_tried_in_a_location(servers: dict[str, Place], tmp_path: Path) -> None:
    """And those of a location nowhere else: without the registration the same table is refused by its own server."""
    root, warehouse = (servers[name].below(tmp_path.name) for name in ("ours", "theirs"))
    orders = filled(warehouse.below("orders"))
    take_in(opened(root, warehouse).catalog, "orders", orders)
    with pytest.raises(LockstepError):
        opened(root, only=False).at()["orders"].to_arrow()
    wrong = Place(warehouse.url, {**(warehouse.options or {}), "access_key_id": "another"})
    with pytest.raises(StoreRefusedError) as caught:
        opened(root, wrong).at()["orders"].to_arrow()
    assert SECRET not in str(caught.value)


# --- whose a table is that two lakes can reach ------------------------------------------------------------------------


def test_two_lakes_of_one_url_do_not_take_each_other_for_themselves(servers: dict[str, Place], tmp_path: Path) -> None:
    """As on two machines whose disks have a lake at the same path."""
    warehouse = servers["theirs"].below(tmp_path.name)
    orders, root = filled(warehouse.below("orders")), Place(f"file://{tmp_path}/lake", None)
    take_in(opened(root, warehouse).catalog, "orders", orders)
    claim = json.loads(orders.store.get(claim_path(".").removeprefix("./")) or b"")
    assert claim["lake"] == (root.store.get(IDENTITY) or b"").decode()

    (tmp_path / "lake").rename(tmp_path / "of another machine")
    other = opened(root, warehouse)
    with pytest.raises(InvalidError, match="which lake that is its root does not say here") as caught:
        take_in(other.catalog, "orders", orders)
    assert "delete" in caught.value.message
    assert json.loads(orders.store.get(claim_path(".").removeprefix("./")) or b"") == claim


def test_a_claim_says_what_it_always_did_where_the_root_tells(tmp_path: Path) -> None:
    warehouse, root = Place(f"file://{tmp_path}/warehouse", None), Place(f"file://{tmp_path}/lake", None)
    orders = filled(warehouse.below("orders"))
    take_in(opened(root, warehouse).catalog, "orders", orders)
    assert "lake" not in json.loads(orders.store.get(claim_path(".").removeprefix("./")) or b"")
    assert root.store.get(IDENTITY) is None
    check_reach(opened(root, warehouse).catalog.lake.storage, orders.url)
