"""Servers of arbiters, real ones, and what a setting calls each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import servers
from tests.support.arbiters import dynamodb, make_table, remove_table
from tests.support.s3 import moto, serving
from tests.support.valkey import Server, running

FETCHED = pytest.mark.skipif(not servers.ARE_WANTED, reason="make test-stores")
ARBITERS = (
    "valkey",
    "dynamodb of moto",
    pytest.param("redis", marks=FETCHED),
    pytest.param("DynamoDB Local", marks=FETCHED),
)


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Valkey server that is as it has to be; what a test does to it, it undoes."""
    with running(tmp_path_factory.mktemp("valkey")) as running_server:
        yield running_server


@pytest.fixture(scope="package")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Redis server of version 7, Debian's."""
    with running(tmp_path_factory.mktemp("redis"), command=servers.redis_command()) as running_server:
        assert running_server.client.info("server")["redis_version"].startswith("7.")
        yield running_server


@pytest.fixture(scope="package")
def emulated() -> Iterator[str]:
    """The endpoint of moto's DynamoDB. All of moto's in a process have one memory, so the table goes when this ends."""
    with serving(moto()) as endpoint:
        make_table(endpoint)
        yield endpoint
        remove_table(endpoint)


@pytest.fixture(scope="package")
def dynamodb_local() -> Iterator[str]:
    """The endpoint of DynamoDB Local."""
    with servers.dynamodb_local() as endpoint:
        make_table(endpoint)
        yield endpoint


@pytest.fixture(scope="package", autouse=True)
def credentials() -> Iterator[None]:
    """Those that an emulator takes; also for the fixtures here."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        yield


@pytest.fixture(params=ARBITERS)
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """What a setting calls an arbiter that works."""
    match request.param:
        case "valkey":
            yield request.getfixturevalue("server").address()
        case "redis":
            yield request.getfixturevalue("redis_server").address().replace("valkey:", "redis:")
        case "dynamodb of moto":
            yield dynamodb(request.getfixturevalue("emulated"))
        case _:
            yield dynamodb(request.getfixturevalue("dynamodb_local"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake"
