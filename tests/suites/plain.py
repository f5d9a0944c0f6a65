"""Runs the suites on plain Delta, in a process that never loads Lockstep.

    python -m tests.suites.plain FOLDERS ONLY SETTINGS      JSON: folders by suite, a part of names, Spark's settings

A line of its standard output is an outcome.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.suites import adapter
from tests.suites.expected import Outcome
from tests.support.sessions import SMALL


def outcomes(folders: Mapping[str, Path], only: str, folder: Path) -> Iterator[Outcome]:
    """Start such a process, and yield what becomes of each case there."""
    from tests.support.plain import plain_settings

    settings = {
        **SMALL,
        **plain_settings(folder / "plain"),
        "spark.master": "local[1]",
        "spark.app.name": "suites on plain Delta",
    }
    arguments = [json.dumps({suite: str(where) for suite, where in folders.items()}), only, json.dumps(settings)]
    command = [sys.executable, "-m", "tests.suites.plain", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield Outcome(**json.loads(line))
    if process.returncode != 0:
        sys.exit(f"suites: the process of plain Delta ended with {process.returncode}; what it said stands above")


def main(folders: str, only: str, settings: str) -> None:
    """Run the cases, and say what became of each."""
    from pyspark.sql import SparkSession

    said = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what cases print must not stand between outcomes
    os.environ["DELTA_TESTING"] = "1"  # Delta has features for its tests alone
    builder = SparkSession.builder
    for key, value in json.loads(settings).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for suite, where in json.loads(folders).items():
        for outcome in adapter.run(spark, suite, Path(where), ["plain"], lambda name: only in name):
            assert "lockstep" not in sys.modules, "plain Delta is measured without Lockstep"
            said.write(json.dumps(dataclasses.asdict(outcome)) + "\n")
            said.flush()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
