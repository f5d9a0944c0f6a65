"""What tests of several files share: a store that can be made to fail, and a file's own lake, seen from elsewhere."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.lake.upkeep import Upkeep
from lockstep.retention import clocks
from lockstep.spark.host.host import Host
from lockstep.storage import open_storage
from tests.support.at_once import at_once
from tests.support.client import Client
from tests.support.faulty import FaultyStorage
from tests.support.lakes import create, open_catalog


@pytest.fixture(autouse=True)
def _any_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Years pass by a test's clock, and not by that of the disk."""
    monkeypatch.setattr(clocks, "CLOCKS", timedelta(days=36_500))


@pytest.fixture
def store(tmp_path: Path) -> FaultyStorage:
    """The store of a lake whose faults are the test's to choose."""
    return FaultyStorage(open_storage(str(tmp_path / "lake"), create=True))


@pytest.fixture
def catalog(store: FaultyStorage) -> TransactionalCatalog:
    """Unless a file has its own: a lake with the tables a and b, at table version 0, each with the file p."""
    catalog = open_catalog(store)
    create(catalog, "a", "b", files=["p"])
    return catalog


@pytest.fixture
def other(catalog: TransactionalCatalog, store: FaultyStorage) -> TransactionalCatalog:
    """The same lake, as another process has it."""
    return open_catalog(store.inner)


@pytest.fixture
def host() -> Host:
    return Host("test")


@pytest.fixture
def one(host: Host, tmp_path: Path) -> Client:
    """A session on a lake with the tables a and b, at table version 0."""
    client = Client(host, tmp_path / "lake")
    create(client.lake(), "a", "b")
    return client


@pytest.fixture
def two(host: Host, one: Client, tmp_path: Path) -> Client:
    """Another session on the same lake."""
    return Client(host, tmp_path / "lake", "s2")


@pytest.fixture
def elsewhere(one: Client, tmp_path: Path) -> TransactionalCatalog:
    """The same lake in another process."""
    return TransactionalCatalog.open(str(tmp_path / "lake"))


@pytest.fixture(autouse=True)
def _upkeep(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do before the answer what is done behind it: a test sees all of a commit then, unless it is marked `behind`."""
    if request.node.get_closest_marker("behind") is None:
        monkeypatch.setattr(Upkeep, "add", at_once)
