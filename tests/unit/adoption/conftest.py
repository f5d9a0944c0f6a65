"""A lake, and a warehouse beside it in which plain Delta writers have their tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.spark.host.host import Host
from tests.support.client import Client


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def catalog(root: Path) -> TransactionalCatalog:
    return TransactionalCatalog.open(str(root), create=True, author="ada")


@pytest.fixture
def client(host: Host, root: Path) -> Client:
    client = Client(host, root)
    client.lake()
    return client


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """Return a folder outside of the lake's root, for tables."""
    return tmp_path / "warehouse"


@pytest.fixture
def inside(root: Path, catalog: TransactionalCatalog) -> Path:
    """Return a folder below the lake's root, for tables."""
    return root / "plain"


@pytest.fixture(params=["warehouse", "inside"])
def folder(request: pytest.FixtureRequest) -> Path:
    """A folder for a new table, which is not there yet: outside of the root, or below it."""
    place: Path = request.getfixturevalue(request.param)
    return place / "orders"
