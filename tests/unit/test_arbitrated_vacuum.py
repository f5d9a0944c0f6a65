"""What is deleted where an arbiter decides: an entry that was decided, and not copied yet, needs files, too."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lockstep import catalog as catalogs
from lockstep.catalog import new_id
from lockstep.errors import CommitUnknownError, ReadOnlyError
from lockstep.lake.deletions import FOLDER
from lockstep.lake.lake import Lake
from lockstep.retention.ages import Retention
from lockstep.retention.deleting import carry_out
from lockstep.retention.expiring import expire_snapshots
from lockstep.retention.files import Doomed
from lockstep.retention.planning import Plan
from lockstep.retention.upkeep import maintain
from lockstep.retention.versions import Readable
from lockstep.spark.host.host import Host
from lockstep.storage import Storage, open_storage
from lockstep.timeline.clock import utc_now
from lockstep.timeline.files import entry_path
from lockstep.timeline.log import Timeline
from tests.support.arbitrated import make_namespace
from tests.support.client import Client
from tests.support.faulty import FaultyStorage
from tests.support.lakes import create, location, open_catalog, tree
from tests.support.recorded import Recorded, Server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """The arbiter of whoever opens a lake and names one."""
    server = Server()
    monkeypatch.setattr(catalogs, "arbiter_of", lambda text, _: Recorded(server) if text else None)
    return server


def of(client: Client) -> dict[str, Any]:
    house = client.house()
    uri = house.uris.head(location(house.catalog, "t"))
    return {"uri": uri, "catalogs": {"lake": client.options}}


def test_vacuum_is_told_what_is_kept_by_what_was_decided_and_not_copied(server: Server, tmp_path: Path) -> None:
    client = Client(Host("test"), tmp_path / "lake")
    client.options["arbiter"] = "valkey://host"
    create(client.lake(), "t", files=["p"])
    request = of(client)
    store = FaultyStorage(open_storage(str(tmp_path / "lake")))
    killed = open_catalog(store, arbiter=Recorded(server))
    version = killed.timeline.head.version + 1
    store.fail("put_if_absent", path=entry_path(version), times=100)
    with pytest.raises(CommitUnknownError):
        make_namespace(killed, "decided")
    assert client.lake().timeline.head.version == version - 1
    client.ok("kept_versions", **request)
    assert ("decided",) in client.lake().timeline.head.namespaces


def test_vacuum_without_the_lakes_arbiter_is_refused(server: Server, tmp_path: Path) -> None:
    client = Client(Host("test"), tmp_path / "lake")
    client.options["arbiter"] = "valkey://host"
    create(client.lake(), "t", files=["p"])
    reader = Client(Host("test"), tmp_path / "lake")
    state, _, message = reader.refused("kept_versions", **of(reader))
    assert state == "0A000"
    assert "is told to use none" in message


def test_vacuum_of_a_lake_without_an_arbiter_writes_nothing(tmp_path: Path) -> None:
    client = Client(Host("test"), tmp_path / "lake")
    create(client.lake(), "t", files=["p"])
    before = client.lake().timeline.head.version
    client.ok("kept_versions", **of(client))
    assert client.lake().timeline.head.version == before


def test_who_has_not_the_lakes_arbiter_deletes_nothing_and_begins_nothing(server: Server, tmp_path: Path) -> None:
    """What is begun to be deleted keeps others from committing what needs it, until somebody ends it."""
    storage = open_storage(str(tmp_path / "lake"), create=True)
    open_catalog(storage, arbiter=Recorded(server))
    litter = Doomed("t/part-1.parquet", "litter", 1, datetime(2000, 1, 1, tzinfo=UTC))
    storage.put(litter.path, b"x")
    reader = open_lake(storage)
    found = Plan(0, Readable(0, 0), [litter])
    assert carry_out(reader, found, grace=timedelta(), dry_run=True).doomed == [litter]
    with pytest.raises(ReadOnlyError, match="is told to use none"):
        carry_out(reader, found, grace=timedelta())
    assert not storage.list(FOLDER)
    assert storage.exists(litter.path)


def open_lake(storage: Storage) -> Lake:
    return Lake(storage, Timeline.open(storage), clock=utc_now, new_id=new_id)


def expiring(lake: Lake) -> None:
    expire_snapshots(lake, older_than=lake.clock(), retain_last=1, grace=timedelta())


def maintaining(lake: Lake) -> None:
    maintain(lake, Retention(age=timedelta(), last=1, grace=timedelta(), orphan_age=timedelta(hours=1)))


@pytest.mark.parametrize("look_after", [expiring, maintaining])
def test_who_has_not_the_lakes_arbiter_lets_nothing_expire_and_writes_nothing(
    server: Server, tmp_path: Path, look_after: Callable[[Lake], None]
) -> None:
    storage = open_storage(str(tmp_path / "lake"), create=True)
    create(open_catalog(storage, arbiter=Recorded(server)), "t", files=["p"])
    reader = open_lake(storage)
    before = tree(storage)
    with pytest.raises(ReadOnlyError, match="is told to use none"):
        look_after(reader)
    assert tree(storage) == before
