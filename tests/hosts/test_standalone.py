"""A standalone cluster with two workers, to which a job is submitted: executors load what a user's executors load.

Run by `make test-hosts`: a master, two workers, a driver and executors take a minute to start, and every run has
executors of their own in `tests/spark/test_cluster.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.spark.jars import session_jars
from tests.hosts.job import ROWS
from tests.support.hosts import WHOLE, on, run_program, settings
from tests.support.lakes import named
from tests.support.sessions import CATALOG

pytestmark = [
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.skipif(not WHOLE, reason="takes minutes: make test-hosts"),
]


JOB = Path(__file__).with_name("job.py")


def submitted(folder: Path, conf: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Submit the job, and return what was said once it has succeeded."""
    done = run_program(folder, "spark-submit", conf, *arguments, timeout_seconds=500)
    assert done.returncode == 0, done.stderr
    return done


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
    done = submitted(tmp_path, said, str(JOB), str(tmp_path), what)
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
    done = submitted(tmp_path, said, *program, str(JOB), "", str(tmp_path), "plain")
    assert "is FINISHED" in done.stderr, "it was not the cluster that ran it"
    database = TransactionalCatalog.open(str(tmp_path / CATALOG)).database()
    assert [database.tables[named(f"n.{name}")].version for name in "ab"] == [1, 1]
