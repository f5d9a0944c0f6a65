"""Sparks that are not this process's: the Thrift server and Spark Connect, started as their users start them.

Both are one JVM, which has a spawned host. A client of either is a `Connection` that runs records of the contract.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lockstep.spark.jars import session_jars, spark_jars_folder
from tests.support.gate import wait_until
from tests.support.ports import free_port
from tests.support.runner import Failure, Result
from tests.support.sessions import CATALOG, INTERPRETED, JAVA, SMALL, SparkConnection

START_SECONDS = 180

WHOLE = os.environ.get("LOCKSTEP_TEST_HOSTS") == "all"
"""Whether every file of the contract is to be run on every host: `make test-hosts`."""

INTERRUPTIBLE = ("env", "--default-signal=INT")
"""Stands before a command that is to be interrupted: what a process in the background starts ignores interrupts."""

THRIFT_SERVER = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"


def spark_home() -> Path:
    return spark_jars_folder().parent


def settings(folder: Path, root: Path) -> dict[str, str]:
    """Return all that a user has to say of Lockstep, and what makes a small Spark of a test's."""
    return SMALL | {
        "spark.sql.extensions": "lockstep.spark.Extensions",
        f"spark.sql.catalog.{CATALOG}": "lockstep.spark.LockstepCatalog",
        f"spark.sql.catalog.{CATALOG}.root": str(root),
        f"spark.sql.catalog.{CATALOG}.create": "true",
        "spark.lockstep.python": sys.executable,
        "spark.master": "local[2]",
        "spark.driver.extraJavaOptions": f"{JAVA} -Dderby.system.home={folder}",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }


def command(program: str, conf: Mapping[str, str], *arguments: str, jars: Iterable[Path] = ()) -> list[str]:
    """Return how to start one of Spark's programs with Lockstep's jars, or with others."""
    said = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    added = ",".join(map(str, jars or session_jars()))
    return [str(spark_home() / "bin" / program), "--jars", added, *said, *arguments]


def environment() -> dict[str, str]:
    """Return what Spark's programs are to know, which is not what a PySpark of this process knows."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK", "SPARK"))}
    return kept | {"SPARK_HOME": str(spark_home())}


def run_program(
    folder: Path,
    program: str,
    conf: Mapping[str, str],
    *arguments: str,
    jars: Iterable[Path] = (),
    typed: str = "",
    timeout_seconds: int = 300,
) -> subprocess.CompletedProcess[str]:
    """Run one of Spark's programs in a folder to its end, with what is typed into it; return what it said."""
    return subprocess.run(
        command(program, conf, *arguments, jars=jars),
        input=typed,
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(),
        check=False,
        timeout=timeout_seconds,
    )


@dataclass(frozen=True, slots=True)
class Server:
    """A Thrift server that serves Spark Connect too."""

    thrift: int
    connect: int
    process: subprocess.Popen[bytes]

    def host(self) -> int | None:
        """Return the process id of the host that it spawned, None if there is none now."""
        return next(iter(hosts_of(self.process.pid)), None)


def hosts_of(driver: int) -> list[int]:
    """Return the process ids of the hosts that a driver has spawned, those that have ended left out."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it ended while it was looked at
            continue
        if b"lockstep.spark.spawned" in words and parent == driver:
            found.append(int(process.name))
    return found


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Start a standalone cluster, a master and two workers of two cores each; yield the master's URL."""
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    programs = [
        ("Master", ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]),
        *[("Worker", ["--cores", "2", "--memory", "2g", "--webui-port", "0", "-d", str(folder), url])] * 2,
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


def on(master: str) -> dict[str, str]:
    """Return the settings of a driver that uses a core of each of a cluster's workers."""
    return {
        "spark.master": master,
        "spark.cores.max": "2",
        "spark.executor.memory": "512m",
    }


@contextmanager
def server(folder: Path, root: Path, more: Mapping[str, str] = MappingProxyType({})) -> Iterator[Server]:
    """Start a server, with more settings, wait until both of its ports answer, and stop it in the end."""
    thrift, connect = free_port(), free_port()
    conf = {
        **settings(folder, root),
        **INTERPRETED,
        # A Thrift server unloads what `--jars` brought when its first session ends.
        "spark.driver.extraClassPath": os.pathsep.join(map(str, session_jars())),
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(connect),
        "spark.hadoop.hive.server2.thrift.port": str(thrift),
        "spark.hadoop.hive.server2.thrift.bind.host": "127.0.0.1",
        "spark.hadoop.hive.server2.authentication": "NOSASL",
        **more,
    }
    log = folder / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command("spark-submit", conf, "--class", THRIFT_SERVER, "spark-internal"),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment(),
        )
    try:
        for port in (connect, thrift):
            wait_until(partial(answers, port, process, log), f"nothing listens at {port}; see {log}", START_SECONDS)
        yield Server(thrift, connect, process)
    finally:
        process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def answers(port: int, process: subprocess.Popen[bytes], log: Path) -> bool:
    """Tell whether a port takes connections yet."""
    assert process.poll() is None, log.read_text()
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class ThriftConnection:
    """A session of the Thrift server, by PyHive."""

    def __init__(self, port: int, root: Path | str, user: str = "somebody") -> None:
        from pyhive import hive

        self.connection = hive.connect("127.0.0.1", port, auth="NOSASL", username=user)
        # Spark loads a catalog when it is first named, so another root for each session is early enough here.
        for sql in (f"SET spark.sql.catalog.{CATALOG}.root={root}", f"USE {CATALOG}"):
            found = self.run(sql)
            assert isinstance(found, Result), found

    def run(self, sql: str) -> Result | Failure:
        from pyhive.exc import OperationalError

        with self.connection.cursor() as cursor:
            try:
                cursor.execute(sql)
                columns = [column[0] for column in cursor.description or ()]
                return Result(columns, cursor.fetchall() if columns else [])
            except OperationalError as error:
                status = error.args[0].status
                # The message is the outermost exception's; causes are where a Java client looks for them.
                return Failure(status.sqlState, "\n".join([status.errorMessage, *(status.infoMessages or [])]))

    def close(self) -> None:
        from thrift.transport.TTransport import TTransportException

        with suppress(TTransportException):  # it was closed already
            self.connection.close()


class ConnectConnection:
    """A session of Spark Connect, by PySpark's client."""

    def __init__(self, port: int, root: Path, user: str = "somebody") -> None:
        from pyspark.sql.connect.session import SparkSession

        self.session: Any = SparkSession.builder.remote(f"sc://127.0.0.1:{port}/;user_id={user}").create()
        self.session.conf.set(f"spark.sql.catalog.{CATALOG}.root", str(root))
        self.session.sql(f"USE {CATALOG}")

    def run(self, sql: str) -> Result | Failure:
        return SparkConnection(self.session).run(sql)

    def close(self) -> None:
        self.session.stop()
