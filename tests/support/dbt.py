"""The example of `sql/dbt`, copied, and run by dbt as its users run it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lockstep.catalog import TransactionalCatalog
from lockstep.spark.jars import session_jars
from lockstep.timeline.database import Database
from tests.support.hosts import INTERRUPTIBLE, server
from tests.support.sessions import CATALOG

DBT = os.environ.get("LOCKSTEP_TEST_DBT", "")
"""dbt's program, in an environment that has dbt-spark."""


class Project:
    """A copy of the example, its lake, and options and variables that dbt is run with."""

    def __init__(self, folder: Path, repository: Path, *options: str, **environment: str) -> None:
        shutil.copytree(repository / "sql" / "dbt", folder / "dbt")
        self.folder, self.lake = folder / "dbt" / "example", folder / "lake"
        self.environment = os.environ | {
            "LAKE": str(self.lake),
            "LOCKSTEP_SPARK_JARS": ",".join(map(str, session_jars())),
            "LOCKSTEP_PYTHON": sys.executable,
            "DBT_PROFILES_DIR": str(self.folder),
            "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
            **environment,
        }
        self._options = options
        assert self.run("deps").returncode == 0

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*INTERRUPTIBLE, DBT, "--no-use-colors", *arguments, *self._options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
            env=self.environment,
            start_new_session=True,
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=500)
        return subprocess.CompletedProcess(arguments, process.returncode, output, "")

    def database(self) -> Database:
        return TransactionalCatalog.open(str(self.lake)).database()

    def add_order(self, line: str) -> None:
        with (self.folder / "seeds" / "orders.csv").open("a", encoding="utf-8") as seed:
            print(line, file=seed)


@contextmanager
def session(folder: Path, repository: Path) -> Iterator[Project]:
    """Give the example with dbt-spark's session method."""
    yield Project(folder, repository)


@contextmanager
def thrift(folder: Path, repository: Path) -> Iterator[Project]:
    """Give the example with dbt-spark's thrift method, and a server on its lake."""
    with server(folder, folder / "lake", {"spark.sql.defaultCatalog": CATALOG}) as running:
        where = {"THRIFT_PORT": str(running.thrift), "THRIFT_AUTH": "NOSASL", "LOCKSTEP_TIMEOUT": "5"}
        yield Project(folder, repository, "--target", "server", **where)
