"""What it costs a whole `dbt build` to be one transaction: `make bench-dbt`.

Each round builds the example of `sql/dbt` in every way, each in a new lake and a new driver: as one transaction,
without (each statement commits on its own), and in Spark's own catalog with plain Delta; with dbt-spark's session
method, and the first two with its thrift method. What is timed is all that a user waits for: with the session method
Spark's start too, with the other a server that is there.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from tests.bench.page import DOCUMENT, with_section
from tests.support.dbt import Project, session, thrift

REPOSITORY = Path(__file__).parents[2]


def atomic(project: Project) -> None:
    """Leave the example as it is."""


def statement_by_statement(project: Project) -> None:
    """Leave the transaction out."""
    _edit(project, "dbt_project.yml", {r"on-run-(start|end):.*\n": ""})


def plain_delta(project: Project) -> None:
    """Leave Lockstep out."""
    statement_by_statement(project)
    _edit(
        project,
        "profiles.yml",
        {
            r"lockstep\.spark\.Extensions": "io.delta.sql.DeltaSparkSessionExtension",
            r".*spark\.sql\.catalog\.lake\..*\n": "",
            r"catalog\.lake: .*": "catalog.spark_catalog: org.apache.spark.sql.delta.catalog.DeltaCatalog",
            r"spark\.sql\.defaultCatalog: lake": "spark.sql.warehouse.dir: \"{{ env_var('LAKE') }}\"",
        },
    )


def _edit(project: Project, name: str, changes: Mapping[str, str]) -> None:
    file = project.folder / name
    text = file.read_text(encoding="utf-8")
    for pattern, by in changes.items():
        text, count = re.subn(pattern, by, text)
        assert count, f"{name} has nothing like {pattern}"
    file.write_text(text, encoding="utf-8")


class Way(NamedTuple):
    """A method of dbt-spark's, and how the example is built with it."""

    method: Callable[[Path, Path], AbstractContextManager[Project]]
    name: str
    change: Callable[[Project], None]

    def __str__(self) -> str:
        return f"{self.name}, {self.method.__name__}"


WAYS = (
    Way(session, "one transaction", atomic),
    Way(session, "statement by statement", statement_by_statement),
    Way(session, "plain Delta", plain_delta),
    Way(thrift, "one transaction", atomic),
    Way(thrift, "statement by statement", statement_by_statement),
)


def build_seconds(way: Way) -> float:
    """Return how long a build takes in a new lake."""
    with tempfile.TemporaryDirectory() as folder, way.method(Path(folder), REPOSITORY) as project:
        way.change(project)
        start = time.perf_counter()
        done = project.run("build")
        spent = time.perf_counter() - start
        assert done.returncode == 0, done.stdout
        return spent


def measure(rounds: int) -> dict[Way, list[float]]:
    """Return each way's seconds, one a round."""
    found: dict[Way, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            found[way].append(build_seconds(way))
            print(f"{way}: {found[way][-1]:.1f} s", flush=True)
    return found


def rendered(found: Mapping[Way, list[float]], rounds: int) -> str:
    lines = []
    for way, seconds in found.items():
        first = next(found[each] for each in WAYS if each.method == way.method)
        ratio = statistics.median(a / b for a, b in zip(first, seconds, strict=True))
        against = "" if seconds is first else f"**{ratio:.2f}**"
        lines.append(f"| {way.method.__name__} | {way.name} | {statistics.median(seconds):.1f} | {against} |")
    return f"""## A dbt build as one transaction

`dbt build` of [the example](../sql/dbt/README.md) in a new lake, from the start of the program to its end;
`make bench-dbt`, {rounds} rounds of all after each other. Medians; the ratio is the median of the rounds' ratios, the
transaction to the other way of the same method. With the session method dbt starts Spark, with thrift it runs already.

| method | | seconds | one transaction, against it |
|---|---|---|---|
""" + "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    text = rendered(measure(asked.rounds), asked.rounds)
    DOCUMENT.write_text(with_section(DOCUMENT.read_text(encoding="utf-8"), "dbt", text), encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
