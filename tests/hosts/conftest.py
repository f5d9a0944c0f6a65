"""One server for all tests here, and connections to it: each test has a lake of its own.

With all of the contract, the server's executors are those of a standalone cluster, which `test_standalone.py` uses too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.hosts import WHOLE, ConnectConnection, Server, ThriftConnection, cluster, on, server
from tests.support.sessions import CATALOG

KINDS = {"thrift": ThriftConnection, "connect": ConnectConnection}


@pytest.fixture(scope="session")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a standalone cluster's master."""
    with cluster(tmp_path_factory.mktemp("cluster")) as url:
        yield url


@pytest.fixture(scope="session")
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    with server(folder, folder / "unused", on(request.getfixturevalue("master")) if WHOLE else {}) as started:
        yield started


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / CATALOG


@pytest.fixture(params=KINDS)
def connect(request: pytest.FixtureRequest, running: Server, root: Path) -> Iterator[Callable[[], Any]]:
    """Return a function that opens a session of its own on the test's lake, at each kind of server."""
    opened: list[Any] = []

    def connection(**user: str) -> Any:
        port = running.thrift if request.param == "thrift" else running.connect
        opened.append(KINDS[request.param](port, root, **user))
        return opened[-1]

    yield connection
    for each in opened:
        each.close()
