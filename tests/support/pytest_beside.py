"""Runs pytest beside a store that is started for it, for `on_azure`, `on_hdfs` and `on_s3`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager


def run(told: AbstractContextManager[dict[str, str]], arguments: Iterable[str]) -> int:
    """Run pytest with these arguments, and return its exit status.

    Args:
        told: has the store run, and gives the variables that tell other processes where it is.
    """
    with told as variables:
        command = [sys.executable, "-m", "pytest", *arguments]
        return subprocess.run(command, env={**os.environ, **variables}, check=False).returncode
