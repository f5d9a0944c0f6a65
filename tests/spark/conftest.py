"""One Spark for all tests here, from pytest-spark; for each test a lake and sessions of its own.

`LOCKSTEP_TEST_MASTER` starts it elsewhere than in one process: `test_cluster.py` does so.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_spark.config import SparkConfigBuilder  # type: ignore[import-untyped]

import lockstep
from tests.support.sessions import CATALOG, is_open

MASTER = os.environ.get("LOCKSTEP_TEST_MASTER", "local[2]")

_folder = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    """Say how pytest-spark starts Spark; the first test that needs it does."""
    folder = Path(tempfile.mkdtemp(prefix="lockstep-tests-"))
    config.stash[_folder] = folder
    settings = {
        **lockstep.conf(root=str(folder / "unused"), catalog=CATALOG),
        "spark.master": MASTER,
        "spark.app.name": "lockstep tests",
        "spark.sql.catalogImplementation": "in-memory",  # pytest-spark's default is Hive, which takes seconds to start
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.executor.memory": "1g",
        "spark.driver.host": "127.0.0.1",
    }
    SparkConfigBuilder.initialize([f"{key}: {value}" for key, value in settings.items()])


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash[_folder], ignore_errors=True)


@pytest.fixture(scope="session")
def spark_session(spark_session: Any) -> Any:
    """pytest-spark's session, in which Lockstep decides."""
    lockstep.attach(spark_session)
    return spark_session


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return where the test's own lake lies, or will lie."""
    return tmp_path / CATALOG


@pytest.fixture
def connect(spark_session: Any, root: Path) -> Iterator[Callable[[], Any]]:
    """Return a function that opens a session of its own on the test's lake; `lake` is its current catalog."""
    sessions = []

    def opened() -> Any:
        session = spark_session.newSession()
        # Spark loads a catalog when it is first named, so another root for each session is early enough here.
        session.conf.set(f"spark.sql.catalog.{CATALOG}.root", str(root))
        session.sql(f"USE {CATALOG}")
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
