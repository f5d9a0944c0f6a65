"""What it costs a whole `dbt build` to be one transaction: `make bench-dbt`.

Each round builds the example of `sql/dbt` three times, each in a new lake and a new driver, as its users do: as one
transaction, without (each statement commits on its own), and in Spark's own catalog with plain Delta. What is timed is
all that a user waits for, Spark's start with it.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.bench.page import DOCUMENT, with_section
from tests.support.dbt import Project

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


WAYS: dict[str, Callable[[Project], None]] = {
    "one transaction": atomic,
    "statement by statement": statement_by_statement,
    "plain Delta": plain_delta,
}


def build_seconds(change: Callable[[Project], None]) -> float:
    """Return how long a build takes in a new lake."""
    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder), REPOSITORY)
        change(project)
        start = time.perf_counter()
        done = project.run("build")
        spent = time.perf_counter() - start
        assert done.returncode == 0, done.stdout
        return spent


def measure(rounds: int) -> dict[str, list[float]]:
    """Return each way's seconds, one a round."""
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, change in WAYS.items():
            found[way].append(build_seconds(change))
            print(f"{way}: {found[way][-1]:.1f} s", flush=True)
    return found


def rendered(found: Mapping[str, list[float]], rounds: int) -> str:
    first = found["one transaction"]
    lines = [f"| one transaction | {statistics.median(first):.1f} | |"]
    for way in list(WAYS)[1:]:
        ratio = statistics.median(a / b for a, b in zip(first, found[way], strict=True))
        lines.append(f"| {way} | {statistics.median(found[way]):.1f} | **{ratio:.2f}** |")
    return f"""## A dbt build as one transaction

`dbt build` of [the example](../sql/dbt/README.md) in a new lake, from the start of the program to its end;
`make bench-dbt`, {rounds} rounds of the three after each other. Medians; the ratio is the median of the rounds' ratios,
the transaction to the other way.

| | seconds | one transaction, against it |
|---|---|---|
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
