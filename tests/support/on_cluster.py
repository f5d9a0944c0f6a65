"""Tests in a pytest of their own, whose Spark has separate executor processes: a JVM has one SparkContext."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def check_on_cluster(repository: Path, tests: Sequence[str]) -> None:
    """Run tests with a driver and two executors, and see that each has passed.

    Args:
        tests: by their ids, such as `tests/spark/test_contract.py::test_contract[begin_commit.test]`.
    """
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=repository,
        env={**os.environ, "LOCKSTEP_TEST_MASTER": "local-cluster[2,1,1024]"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert f"{len(tests)} passed" in done.stdout
