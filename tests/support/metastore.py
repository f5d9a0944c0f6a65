"""A Hive metastore that is a process of its own, on a Derby: what several Sparks can share, as in a warehouse."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.support.gate import wait_until
from tests.support.hosts import answers, environment, spark_home
from tests.support.ports import free_port

START_SECONDS = 120

SERVICE = "org.apache.hadoop.hive.metastore.HiveMetaStore"


@contextmanager
def metastore(folder: Path) -> Iterator[dict[str, str]]:
    """Start one whose files lie in a folder; yield what a Spark is told to use it, and leave nothing running."""
    port, log = free_port(), folder / "metastore.log"
    said = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder / 'metastore_db'};create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.async.log.enabled": "false",  # what it takes is not among the jars of Spark
        "hive.metastore.warehouse.dir": str(folder / "warehouse"),
    }
    words = [word for key, value in said.items() for word in ("--hiveconf", f"{key}={value}")]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(spark_home() / "bin" / "spark-class"), SERVICE, "-p", str(port), *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment(),
        )
    try:
        wait_until(partial(answers, port, process, log), f"no metastore; see {log}", START_SECONDS)
        yield {
            "spark.sql.catalogImplementation": "hive",
            "spark.hadoop.hive.metastore.uris": f"thrift://127.0.0.1:{port}",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        }
    finally:
        process.kill()
        process.wait()
