"""Runs the demo on a lake in a store that it starts: `python -m tests.support.demo s3`, or `hdfs`; its options follow.

The store lives as long as the demo, which is the very one of `make demo`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from tests.support import on_hdfs, on_s3
from tests.support.child import REPOSITORY

STORES: Mapping[str, Callable[[], AbstractContextManager[dict[str, str]]]] = {"s3": on_s3.told, "hdfs": on_hdfs.told}


def settings(store: str) -> dict[str, str]:
    """Return what Spark must be told besides, to use such a store at its best."""
    return on_hdfs.SOONER if store == "hdfs" else {"spark.jars": ",".join(map(str, on_s3.s3a_jars()))}


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
