"""A standalone cluster with two workers, to which a job is submitted: executors load what a user's executors load.

Run by `make test-hosts`: a master, two workers, a driver and executors take a minute to start, and every run has
executors of their own in `tests/spark/test_cluster.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from tests.hosts.job import ROWS
from tests.support.gate import wait_until
from tests.support.hosts import answers, command, environment, free_port, settings, spark_home
from tests.support.lakes import named
from tests.support.sessions import CATALOG

pytestmark = [
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.skipif(os.environ.get("LOCKSTEP_TEST_HOSTS") != "all", reason="takes minutes: make test-hosts"),
]


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a master and two workers of one core each; return the master's URL."""
    folder = tmp_path_factory.mktemp("cluster")
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    programs = [
        ("Master", ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]),
        *[("Worker", ["--cores", "1", "--memory", "1g", "--webui-port", "0", "-d", str(folder), url])] * 2,
    ]
    with ExitStack() as stack:
        for number, (program, arguments) in enumerate(programs):
            log = folder / f"{number}.log"
            main = f"org.apache.spark.deploy.{program.lower()}.{program}"
            process = subprocess.Popen(
                [str(spark_home() / "bin" / "spark-class"), main, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=stack.enter_context(log.open("wb")),
                stderr=subprocess.STDOUT,
                env=environment() | {"SPARK_LOCAL_IP": "127.0.0.1"},
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            if program == "Master":
                wait_until(partial(answers, port, process, log), f"no master; see {log}", 120)
        yield url


@pytest.mark.parametrize("what", ["plain", "kill", "speculate"])
def test_a_transaction_has_each_row_once_whatever_becomes_of_its_tasks(master: str, what: str, tmp_path: Path) -> None:
    """Speculation runs a task twice at a time; a killed executor's tasks run again elsewhere."""
    said = settings(tmp_path, tmp_path / CATALOG) | {
        "spark.master": master,
        "spark.executor.memory": "512m",
        "spark.pyspark.python": sys.executable,
        "spark.speculation": str(what == "speculate").lower(),
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "1s",
    }
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
