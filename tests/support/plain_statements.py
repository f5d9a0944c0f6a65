"""The cases of docs/statements.md on plain Delta, in a process that never loads Lockstep.

    python -m tests.support.plain_statements SETTINGS

A line in is the number of a case, a line out what was found.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.matrix import NAMESPACE, Case, Found, Places, with_settings
from tests.support.sessions import INTERPRETED, SMALL
from tests.support.statement_cases import CASES

REPOSITORY = Path(__file__).parents[2]


class PlainStatements:
    """That process, as the tests see it."""

    def __init__(self, folder: Path) -> None:
        from tests.support.plain import plain_settings

        settings = {
            **SMALL,
            **INTERPRETED,
            **plain_settings(folder),
            "spark.master": "local[2]",
            "spark.default.parallelism": "1",  # as pytest-spark has it: it makes the number of files
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.plain_statements", json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )

    def attempt(self, case: Case) -> Found:
        """Run a case, and return what was found."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(CASES.index(case), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, "the process of plain Delta has ended; what it said stands above"
        return Found(**json.loads(line))

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=60)


def main(settings: str) -> None:
    """Run cases until the input ends."""
    from pyspark.sql import SparkSession

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Spark prints must not stand between answers
    builder = SparkSession.builder
    for key, value in json.loads(settings).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sql(f"CREATE NAMESPACE {NAMESPACE}")
    places = Places(session)
    for line in sys.stdin:
        case = CASES[int(line)]
        with with_settings(session, case):
            found = places.of(case, "spark_catalog").attempt(case)
        assert "lockstep" not in sys.modules, "plain Delta is measured without Lockstep"
        answers.write(json.dumps(dataclasses.asdict(found)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
