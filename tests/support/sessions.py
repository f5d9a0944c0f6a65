"""What tests with Spark know about their sessions."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.runner import Failure, Result

CATALOG = "lake"
"""What every session calls its test's lake."""

ROOTS = os.environ.get("LOCKSTEP_TEST_ROOTS", "")
"""Below which URL each test's lake lies, where it is no local folder: see `tests.support.on_s3`."""

DIRECT = os.environ.get("LOCKSTEP_TEST_DIRECT", "")
"""The address of the S3 server itself, where `AWS_ENDPOINT_URL` may be that of a proxy which breaks connections."""

PLAIN_JAVA = " ".join(
    [
        "-XX:TieredStopAtLevel=1",  # the first compiler alone: tests end before most of what the second makes is used
        "-XX:+UseSerialGC",
        "-XX:+UnlockDiagnosticVMOptions",
        "-XX:-BytecodeVerificationRemote",  # of some 20,000 classes, each time a Spark starts
        "-XX:ReservedCodeCacheSize=240m",  # 48 MB are soon full; code is then compiled again and again
    ]
)
"""Options of a Java that ends soon, and has no archive of classes."""

_ARCHIVE = Path(os.environ.get("LOCKSTEP_TEST_CLASSES", ""))

JAVA = PLAIN_JAVA
"""Options of a Java that ends soon."""

if _ARCHIVE.is_file() and _ARCHIVE.stat().st_size:
    JAVA += (
        f" -XX:SharedArchiveFile={_ARCHIVE} -Xlog:disable -Xlog:all=error:stderr"  # nor is it said that it is not used
    )

LASTING_JAVA = f"{JAVA} -XX:TieredStopAtLevel=4"
"""Options of a Java that runs for a quarter of an hour: what the second compiler makes is used then."""

SMALL = {
    "spark.driver.extraJavaOptions": JAVA,
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    # Delta lists files, for VACUUM say, in as many tasks; 10,000 otherwise.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    "spark.ui.enabled": "false",
    "spark.sql.ui.explainMode": "simple",  # each plan is printed for the user interface, on or off
    "spark.ui.showConsoleProgress": "false",
}
"""Settings of a Spark for a few rows."""

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Settings of a Spark for many queries of a few rows each: to compile one takes longer than to run it."""


@dataclass(frozen=True, slots=True)
class SparkConnection:
    """A session of this process; it runs records of the contract."""

    session: Any

    def run(self, sql: str) -> Result | Failure:
        from py4j.protocol import Py4JError, Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            result = self.session.sql(sql)
            return Result(result.columns, [tuple(row) for row in result.collect()])
        except PySparkException as error:
            return Failure(error.getSqlState(), str(error))
        except Py4JJavaError as error:  # PySpark leaves some of Spark's exceptions, of jobs for one, to Py4J
            try:
                state = error.java_exception.getSqlState()
            except Py4JError:  # an exception that is not Spark's has no such method
                state = None
            return Failure(state, str(error))


def new_session(spark: Any, root: Path | str, *, arbiter: str | None = None, **settings: str) -> Any:
    """Open a session of its own on a lake; `lake` is its current catalog, with these settings, `_` for `-`."""
    session = spark.newSession()
    # Spark loads a catalog when it is first named, so another root for each session is early enough here.
    session.conf.set(f"spark.sql.catalog.{CATALOG}.root", str(root))
    if arbiter is not None:
        session.conf.set(f"spark.sql.catalog.{CATALOG}.arbiter", arbiter)
    for name, value in settings.items():
        session.conf.set(f"spark.sql.catalog.{CATALOG}.{name.replace('_', '-')}", value)
    session.sql(f"USE {CATALOG}")
    return session
