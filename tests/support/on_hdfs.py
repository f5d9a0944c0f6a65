"""Runs tests whose lakes lie in HDFS: `python -m tests.support.on_hdfs tests/storage/test_contract.py …`.

It starts a name node and a data node (Hadoop's own MiniDFSCluster), and says by a variable of the environment where
they are.
"""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from lockstep.spark import jars
from lockstep.spark.files import OverPy4J
from lockstep.storage.hadoop import Transport, connect
from tests.support import pytest_beside
from tests.support.sessions import JAVA, ROOTS

IS_WANTED = ROOTS.startswith("hdfs://")
"""Whether tests may use HDFS."""

_SHA256 = {
    "3.4.1": "5b90be54a39d856f237a4530e25f62aea4b67c180c73b5cfb1aff35c502b2d29",
    "3.4.2": "ae2406c544825b7734b8aad4f87eff60d9ec422284f0b16c2856032083b63c77",
    "3.5.0": "06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c",
}
"""Of the cluster's jar, by the version of the Hadoop client that Spark brings: the two go together."""

SOONER = {
    "spark.hadoop.dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "5",
    "spark.hadoop.dfs.client.block.write.locateFollowingBlock.retries": "12",
}
"""Settings by which Spark's own writes end sooner: see docs/storage.md."""

START_SECONDS = 60
COUNTED_SECONDS = 1
"""So old the cluster's counters may be that are asked for."""


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Run HDFS for as long as the block; the URL of its root."""
    details = folder / "details.json"
    options = ("-datanodes", "1", "-format", "-nnport", "0", f"-Dhdfs.minidfs.basedir={folder / 'base'}")
    counted = "-Ddfs.datanode.fileio.profiling.sampling.percentage=100"  # what it syncs, files and directories
    main = ("org.apache.hadoop.test.MiniDFSClusterManager", *options, counted, "-writeDetails", str(details))
    (folder / "hadoop-metrics2.properties").write_text(f"*.period={COUNTED_SECONDS}\n")
    classes = f"{folder}:{cluster_jar()}:{jars.spark_jars_folder()}/*"
    command = [jars.java(), "-Xmx512m", *JAVA.split(), "-cp", classes, *main]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        end = time.monotonic() + START_SECONDS
        while not details.exists() or not details.read_text().endswith("}"):
            said = (folder / "log").read_text(errors="replace")[-2000:]
            assert process.poll() is None, f"HDFS ended with {process.returncode}: {said}"
            assert time.monotonic() < end, f"HDFS does not answer: {said}"
            time.sleep(0.05)
        yield f"hdfs://127.0.0.1:{json.loads(details.read_text())['namenode_port']}"
    finally:
        process.kill()  # it has nothing to keep
        process.wait()


def cluster_jar() -> Path:
    """Return the jar of Hadoop's small cluster, fetched if need be."""
    spark = jars.spark_jars_folder()
    [client] = spark.glob("hadoop-client-api-*.jar")
    version = client.stem.removeprefix("hadoop-client-api-")
    artifact = jars.Artifact("org.apache.hadoop", "hadoop-client-minicluster", version, _SHA256[version])
    [jar] = jars.cached_files([artifact], jars.cache_folder(), jars.ivy_jar(spark))
    return jar


@cache
def gateway() -> Any:
    """Return the way to a JVM of this process without a Spark in it, which has Lockstep's jar and Hadoop's client."""
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf(loadDefaults=False)
    conf.set("spark.driver.extraClassPath", str(jars.shim_jar())).set("spark.driver.memory", "512m")
    found = launch_gateway(conf)
    atexit.register(_end, found)
    return found


def _end(gateway: Any) -> None:
    gateway.shutdown()
    gateway.proc.stdin.close()  # that is what it ends by
    gateway.proc.wait()


def transport() -> Transport:
    """Return a way to HDFS of a process that has no Spark driver."""
    return OverPy4J(gateway(), gateway().jvm.org.apache.hadoop.conf.Configuration)


def connected() -> None:
    """Have this process reach HDFS, if tests are run on it, without a Spark driver."""
    if IS_WANTED:
        connect(transport())


@contextmanager
def told() -> Iterator[dict[str, str]]:
    """Run a cluster for as long as the block; the variables that tell other processes where it is."""
    with tempfile.TemporaryDirectory(prefix="lockstep-hdfs-") as folder, cluster(Path(folder)) as root:
        yield {"LOCKSTEP_TEST_ROOTS": root}


if __name__ == "__main__":
    sys.exit(pytest_beside.run(told(), sys.argv[1:]))
