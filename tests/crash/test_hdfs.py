"""Spark drivers on a lake in HDFS: one that is killed, one without Python, and executors that are processes.

Two drivers at the same moment are in `test_race.py`. `make test-hdfs` runs these.
"""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from tests.crash.test_kill import AFTER, SET_UP, TRANSACTION
from tests.support import on_hdfs
from tests.support.driver import Driver
from tests.support.gate import wait_until
from tests.support.hosts import ThriftConnection, command, environment, hosts_of, run_program, server, settings
from tests.support.lakes import named
from tests.support.on_cluster import check_on_cluster
from tests.support.runner import Result
from tests.support.sessions import CATALOG, ROOTS

# Slow: each starts a Spark of its own.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not on_hdfs.IS_WANTED, reason="needs HDFS: make test-hdfs"),
]


@pytest.fixture
def root(tmp_path: Path) -> str:
    on_hdfs.connected()
    return f"{ROOTS}/{tmp_path.parent.name}-{tmp_path.name}"


def files_of(root: str, *, below: str = "", ending: str = ".json") -> list[str]:
    """Return the paths of a lake's files, those of the timeline left out."""
    found = TransactionalCatalog.open(root).lake.storage.walk(below)
    return [each.path for each in found if each.path.endswith(ending) and not each.path.startswith("_lockstep")]


def test_a_driver_killed_between_ratifying_and_publishing(root: str) -> None:
    """The next process publishes what was ratified, and another driver reads it, in all tables."""
    TransactionalCatalog.open(root, create=True)
    with Driver(root) as driver:
        driver.sql(*SET_UP, *TRANSACTION)
        assert driver.ask({"stop": "after-ratify"}) == {"armed": "after-ratify"}
        assert driver.ask({"sql": "COMMIT"}) == {"stopped": "after-ratify"}
        driver.kill()
    versions = {name: table.version for name, table in TransactionalCatalog.open(root).database().tables.items()}
    assert versions == {named("a"): 2, named("b"): 2, named("c"): 0}
    assert len([path for path in files_of(root) if "/_delta_log/0" in path]) == 7
    with Driver(root) as driver:
        for name, rows in AFTER.items():
            assert driver.sql(f"SELECT * FROM {name} ORDER BY id") == rows


SCRIPT = f"""USE {CATALOG};
CREATE TABLE a (id INT) USING delta; CREATE TABLE b (id INT) USING delta;
BEGIN TRANSACTION COMMENT 'by pipes';
INSERT INTO a SELECT id FROM range(1000);
INSERT INTO b SELECT id + 1 FROM a;
COMMIT;
BEGIN;
INSERT INTO a VALUES (3);
SELECT 'seen', count(*) FROM a;
"""


def said(tmp_path: Path, root: str) -> dict[str, str]:
    """Return the settings of a program of Spark's that is told of no Python but that of Lockstep's host."""
    return settings(tmp_path, Path()) | {
        f"spark.sql.catalog.{CATALOG}.root": root,
        "spark.sql.catalogImplementation": "in-memory",
        **on_hdfs.SOONER,
    }


def test_a_driver_without_python_commits_and_rolls_back(tmp_path: Path, root: str) -> None:
    """Its host asks HDFS back through the driver, by the pipes that it is asked by."""
    script = tmp_path / "script.sql"
    script.write_text(SCRIPT)
    done = run_program(tmp_path, "spark-sql", said(tmp_path, root), "-f", str(script))
    assert done.returncode == 0, done.stderr
    assert "seen\t1001" in done.stdout
    lake = TransactionalCatalog.open(root)
    assert [lake.database().tables[named(name)].version for name in "ab"] == [1, 1]
    assert lake.timeline.entries(1)[-1].transaction.message == "by pipes"
    assert "was open when Spark stopped, and was rolled back" in done.stderr
    assert not [path for path in files_of(root) if "/_delta_log/_lockstep/" in path]


def test_the_host_of_a_driver_that_is_killed_ends_too(tmp_path: Path, root: str) -> None:
    """It cannot roll back, for only the driver reached HDFS; nothing of the transaction is in any table."""
    conf = said(tmp_path, root)
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(
            command("spark-sql", conf), stdin=subprocess.PIPE, stdout=out, stderr=out, env=environment(), cwd=tmp_path
        )
    assert process.stdin is not None
    process.stdin.write(SCRIPT.encode())
    process.stdin.flush()
    wait_until(lambda: "seen\t1001" in (tmp_path / "out").read_text(), "no answer of spark-sql", 180)
    [host] = hosts_of(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdin.close()
    wait_until(lambda: not Path(f"/proc/{host}").exists(), "the host goes on without its driver", 30)
    assert TransactionalCatalog.open(root).database().tables[named("a")].version == 1


def test_a_thrift_server_that_acts_as_its_clients_asks_hdfs_as_itself(tmp_path: Path, root: str) -> None:
    """Not as the client whose statement started the host, whose logout would take the others' way to HDFS along."""
    jvm = on_hdfs.gateway().jvm
    path = jvm.org.apache.hadoop.fs.Path(root)
    hadoop = path.getFileSystem(jvm.org.apache.hadoop.conf.Configuration())
    hadoop.mkdirs(path)
    hadoop.setPermission(path, jvm.org.apache.hadoop.fs.permission.FsPermission("777"))
    runs = hadoop.getFileStatus(path).getOwner()
    more = {"spark.hadoop.hive.server2.enable.doAs": "true", "spark.hadoop.fs.permissions.umask-mode": "000"}
    with server(tmp_path, Path(), said(tmp_path, root) | more) as thrift:
        for user in ("alice", "bob"):
            client = ThriftConnection(thrift.thrift, root, user)
            create, insert = f"CREATE TABLE {user} (id INT) USING delta", f"INSERT INTO {user} VALUES (1)"
            for sql in (create, "BEGIN", insert, "COMMIT"):
                assert isinstance(found := client.run(sql), Result), found
            client.close()

    def owners(pattern: str) -> set[str]:
        return {each.getOwner() for each in hadoop.globStatus(jvm.org.apache.hadoop.fs.Path(f"{root}/{pattern}"))}

    assert owners("_lockstep/timeline/*") == {runs}
    assert owners("default/*/_delta_log") == {"alice", "bob"}, "what Delta makes is the clients'"


CLUSTER_CASES = ("merge_forms", "rfc73_three_tables")


def test_the_contract_holds_with_separate_executors_on_hdfs(repository: Path) -> None:
    """They read a transaction's log by its URI alone, and write its files."""
    tests = [f"tests/spark/test_contract.py::test_contract[{name}.test]" for name in CLUSTER_CASES]
    check_on_cluster(repository, tests)
