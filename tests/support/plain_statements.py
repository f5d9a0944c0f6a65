"""The cases of docs/statements.md on plain Delta, in a process that never loads Lockstep.

    python -m tests.support.plain_statements SETTINGS

A request is the number of a case, an answer what was found.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

from tests.support.child import Child, Parent
from tests.support.matrix import NAMESPACE, Case, Found, Places, with_settings
from tests.support.plain import check_plain, plain_settings, plain_spark
from tests.support.sessions import INTERPRETED, SMALL
from tests.support.statement_cases import CASES


class PlainStatements:
    """That process, as the tests see it."""

    def __init__(self, folder: Path) -> None:
        settings = {
            **SMALL,
            **INTERPRETED,
            **plain_settings(folder),
            "spark.master": "local[2]",
            "spark.default.parallelism": "1",  # as pytest-spark has it: it makes the number of files
        }
        self._process = Child("tests.support.plain_statements", json.dumps(settings))

    def attempt(self, case: Case) -> Found:
        """Run a case, and return what was found."""
        return Found(**self._process.ask(CASES.index(case)))

    def close(self) -> None:
        """End it."""
        self._process.close()


def main(settings: str) -> None:
    """Run cases until the input ends."""
    parent = Parent()
    session = plain_spark(json.loads(settings))
    session.sql(f"CREATE NAMESPACE {NAMESPACE}")
    places = Places(session)
    for number in parent.requests():
        case = CASES[number]
        with with_settings(session, case):
            found = places.of(case, "spark_catalog").attempt(case)
        check_plain()
        parent.say(dataclasses.asdict(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
