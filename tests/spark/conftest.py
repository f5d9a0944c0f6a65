"""One Spark for all tests here, made as `tests/conftest.py` says; for each test a lake and sessions of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lockstep
from lockstep.spark.bridge import is_open
from tests.support.interposed import host_of
from tests.support.sessions import CATALOG, ROOTS, new_session


@pytest.fixture(scope="session")
def spark_session(spark_session: Any) -> Any:
    """pytest-spark's session, in which Lockstep decides."""
    lockstep.attach(spark_session)
    return spark_session


@pytest.fixture(autouse=True)
def forgotten_logs(spark_session: Any) -> Iterator[None]:
    """Have Delta forget the test's tables, which it would keep for an hour, the sessions that read them with them."""
    yield
    spark_session._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


@pytest.fixture
def root(tmp_path: Path) -> Path | str:
    """Return where the test's own lake lies, or will lie: a folder, or a URL if tests are run on a store."""
    return f"{ROOTS}/{tmp_path.parent.name}-{tmp_path.name}" if ROOTS else tmp_path / CATALOG


@pytest.fixture
def arbiter() -> str | None:
    """Return what sessions are told of the lake's arbiter, if it has one."""
    return None


@pytest.fixture
def connect(spark_session: Any, root: Path | str, arbiter: str | None) -> Iterator[Callable[..., Any]]:
    """Return a function that opens a session of its own on the test's lake; `lake` is its current catalog.

    It takes settings of the catalog.
    """
    sessions = []

    def opened(**settings: str) -> Any:
        session = new_session(spark_session, root, arbiter=arbiter, **settings)
        sessions.append(session)
        return session

    yield opened
    for session in sessions:
        if is_open(session):
            session.sql("ROLLBACK")


@pytest.fixture
def spark(connect: Callable[[], Any]) -> Any:
    """Return a session on the test's lake."""
    return connect()


@pytest.fixture
def other(connect: Callable[[], Any]) -> Any:
    """Return a second session on the same lake."""
    return connect()


@pytest.fixture
def asked(spark_session: Any, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the list that each request to the host is put into."""
    requests: list[dict[str, Any]] = []
    host = host_of(spark_session)
    answer = host.call

    def call(request: str) -> str:
        requests.append(json.loads(request))
        return answer(request)

    monkeypatch.setattr(host, "call", call)
    return requests
