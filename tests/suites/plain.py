"""Runs the suites on plain Delta, in a process that never loads Lockstep.

    python -m tests.suites.plain FOLDERS ONLY SETTINGS      JSON: folders by suite, a part of names, Spark's settings

Each answer is an outcome; there are no requests.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.suites import adapter
from tests.suites.expected import Outcome
from tests.support.child import Child, Parent
from tests.support.plain import check_plain, plain_settings, plain_spark
from tests.support.sessions import SMALL


def outcomes(folders: Mapping[str, Path], only: str, folder: Path) -> Iterator[Outcome]:
    """Start such a process, and yield what becomes of each case there."""
    settings = {
        **SMALL,
        **plain_settings(folder / "plain"),
        "spark.master": "local[1]",
        "spark.app.name": "suites on plain Delta",
    }
    arguments = [json.dumps({suite: str(where) for suite, where in folders.items()}), only, json.dumps(settings)]
    with Child("tests.suites.plain", *arguments) as child:
        yield from (Outcome(**each) for each in child.rest())


def main(folders: str, only: str, settings: str) -> None:
    """Run the cases, and say what became of each."""
    parent = Parent()
    os.environ["DELTA_TESTING"] = "1"  # Delta has features for its tests alone
    spark = plain_spark(json.loads(settings))
    for suite, where in json.loads(folders).items():
        for outcome in adapter.run(spark, suite, Path(where), ["plain"], lambda name: only in name):
            check_plain()
            parent.say(dataclasses.asdict(outcome))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
