"""A standalone cluster with two workers, to which a job is submitted: executors load what a user's executors load.

Run by `make test-hosts`: a master, two workers, a driver and executors take a minute to start, and every run has
executors of their own in `tests/spark/test_cluster.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.spark.jars import session_jars
from tests.hosts.job import ROWS
from tests.support.hosts import WHOLE, command, environment, on, settings
from tests.support.lakes import named
from tests.support.sessions import CATALOG

pytestmark = [
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.skipif(not WHOLE, reason="takes minutes: make test-hosts"),
]


@pytest.mark.parametrize("what", ["plain", "kill", "speculate"])
def test_a_transaction_has_each_row_once_whatever_becomes_of_its_tasks(master: str, what: str, tmp_path: Path) -> None:
    """Speculation runs a task twice at a time; a killed executor's tasks run again elsewhere."""
    said = (
        settings(tmp_path, tmp_path / CATALOG)
        | on(master)
        | {
            "spark.pyspark.python": sys.executable,
            "spark.speculation": str(what == "speculate").lower(),
            "spark.speculation.interval": "100ms",
            "spark.speculation.quantile": "0.5",
            "spark.speculation.minTaskRuntime": "1s",
        }
    )
    job = Path(__file__).with_name("job.py")
    done = subprocess.run(
        command("spark-submit", said, str(job), str(tmp_path), what),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    attempts = len([*tmp_path.glob("attempt-*")])
    assert attempts >= (1 if what == "plain" else 2)
    database = TransactionalCatalog.open(str(tmp_path / CATALOG)).database()
    assert f"committed {database.version} {ROWS} {ROWS // 2}" in done.stdout
    assert [database.tables[named(f"n.{name}")].version for name in "ab"] == [1, 1]


def test_a_driver_that_the_cluster_starts_commits(master: str, tmp_path: Path) -> None:
    """Cluster mode. Spark's own master refuses Python programs in it, but not the JVM program that runs one."""
    said = settings(tmp_path, tmp_path / CATALOG) | on(master)
    said |= {
        "spark.pyspark.python": sys.executable,
        "spark.driver.extraClassPath": os.pathsep.join(map(str, session_jars())),
        "spark.standalone.submit.waitAppCompletion": "true",
    }
    program = ("--deploy-mode", "cluster", "--class", "org.apache.spark.deploy.PythonRunner", str(session_jars()[0]))
    job = Path(__file__).with_name("job.py")
    done = subprocess.run(
        command("spark-submit", said, *program, str(job), "", str(tmp_path), "plain"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    assert "is FINISHED" in done.stderr, "it was not the cluster that ran it"
    database = TransactionalCatalog.open(str(tmp_path / CATALOG)).database()
    assert [database.tables[named(f"n.{name}")].version for name in "ab"] == [1, 1]
