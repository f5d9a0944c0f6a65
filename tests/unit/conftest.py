"""What the tests of the host share: the lake of `one`, which each file makes as it needs it, seen from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.spark.host import Host
from tests.support.client import Client


@pytest.fixture
def host() -> Host:
    return Host("test")


@pytest.fixture
def two(host: Host, one: Client, tmp_path: Path) -> Client:
    """Another session on the same lake."""
    return Client(host, tmp_path / "lake", "s2")


@pytest.fixture
def elsewhere(one: Client, tmp_path: Path) -> TransactionalCatalog:
    """The same lake in another process."""
    return TransactionalCatalog.open(str(tmp_path / "lake"))
