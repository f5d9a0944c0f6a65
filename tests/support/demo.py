"""Runs the demo on a lake in a store that it starts: `python -m tests.support.demo s3`, or `hdfs`, or `azure`.

The store lives as long as the demo, which is the very one of `make demo`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from tests.support import on_azure, on_hdfs, on_s3
from tests.support.child import REPOSITORY

STORES: Mapping[str, Callable[[], AbstractContextManager[dict[str, str]]]] = {
    "azure": on_azure.told,
    "hdfs": on_hdfs.told,
    "s3": on_s3.told,
}


def settings(store: str) -> dict[str, str]:
    """Return what Spark must be told besides, to use such a store at its best."""
    if store == "hdfs":
        return on_hdfs.SOONER
    jars = on_azure.abfs_jars() if store == "azure" else on_s3.s3a_jars()
    found = {"spark.jars": ",".join(map(str, jars))}
    if store == "azure":
        found |= {f"spark.sql.catalog.lake.store.{name}": value for name, value in on_azure.OPTIONS.items()}
        found |= on_azure.WITHOUT_TLS
    return found


def main(store: str, *arguments: str) -> int:
    """Run the demo beside a store, and return its exit status."""
    said = [part for key, value in settings(store).items() for part in ("--conf", f"{key}={value}")]
    with STORES[store]() as variables:
        lake = f"{variables['LOCKSTEP_TEST_ROOTS']}/demo"
        command = [sys.executable, str(REPOSITORY / "sql/demo/run.py"), "--lake", lake, *said, *arguments]
        status = subprocess.run(command, env={**os.environ, **variables}, check=False).returncode
    print(f"{lake} has ended with the store that was started for it")
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
