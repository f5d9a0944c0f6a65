"""Run Delta's, PySpark's and dbt-spark's own tests on a catalog of Lockstep's, and compare with the list of failures.

    make suites DELTA_TESTS=/src/delta/python/delta/tests SPARK_TESTS=/src/spark/python/pyspark/sql/tests
    make suites DBT_TESTS=/src/dbt-spark/tests/functional

The sources are theirs, of the versions that Lockstep is for (Delta 4.4.0, Spark 4.2.0, dbt-spark 1.11.0), and not in
this repository.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from tests.suites import adapter, dbt, plain
from tests.suites.expected import SETTINGS, Outcome, disagreements, numbers, parse, summary
from tests.support.sessions import CATALOG, SMALL

LIST = Path(__file__).with_name("expected.txt")

MISSING = """\
suites: nothing to run. The suites' sources are their authors', and not in this repository. Get them, and say where:
  make suites DELTA_TESTS=<delta-io/delta, tag v4.4.0>/python/delta/tests
  make suites SPARK_TESTS=<apache/spark, tag v4.2.0>/python/pyspark/sql/tests
  make suites DBT_TESTS=<dbt-spark 1.11.0's source distribution>/tests/functional"""


def main() -> int:
    """Return the exit code: 0 if the run agrees with the list, 1 if not, 2 if it could not run."""
    parser = argparse.ArgumentParser(
        prog="make suites", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--delta", type=Path, help="delta-io/delta's python/delta/tests")
    parser.add_argument("--spark", type=Path, help="apache/spark's python/pyspark/sql/tests")
    parser.add_argument("--dbt", type=Path, help="dbt-spark's tests/functional")
    parser.add_argument("--setting", action="append", choices=SETTINGS, help="all, if not given")
    parser.add_argument("--only", default="", help="run cases that have this in their name")
    parser.add_argument("--verbose", action="store_true", help="print failures in full")
    asked = parser.parse_args()
    folders = {suite: folder.resolve() for suite in adapter.SUITES if (folder := getattr(asked, suite)) is not None}
    if not folders and not asked.dbt:
        print(MISSING, file=sys.stderr)
        return 2
    wrong = [
        str(folder / module.path)
        for suite, folder in folders.items()
        for module in adapter.SUITES[suite]
        if not (folder / module.path).is_file()
    ]
    if wrong:
        print(f"suites: there is no {wrong[0]}\n{MISSING}", file=sys.stderr)
        return 2
    return report(list(outcomes(folders, asked)), complete=not asked.only)


def outcomes(folders: dict[str, Path], asked: argparse.Namespace) -> list[Outcome]:
    """Run what is asked for, and print a line for each case."""
    found = []
    for outcome in chain(of_python(folders, asked) if folders else (), of_dbt(asked) if asked.dbt else ()):
        found.append(outcome)
        state = "failed" if outcome.failure is not None else "skipped" if outcome.skipped else "passed"
        why = outcome.failure if asked.verbose else summary(outcome.failure or outcome.skipped)
        print(f"{state:8}{outcome.seconds:6.1f} s  {outcome.setting:12}{outcome.case}  {why or ''}", flush=True)
    return found


def of_python(folders: dict[str, Path], asked: argparse.Namespace) -> Iterator[Outcome]:
    """Run the suites that are Python's unittest: in a Spark of this process, and on plain Delta in one of its own."""
    settings = asked.setting or SETTINGS
    with tempfile.TemporaryDirectory(prefix="lockstep-suites-") as folder:
        if ours := [setting for setting in settings if setting != "plain"]:
            spark = session(Path(folder))
            for suite, source in folders.items():
                yield from adapter.run(spark, suite, source, ours, lambda name: asked.only in name)
            spark.stop()
        if "plain" in settings:
            yield from plain.outcomes(folders, asked.only, Path(folder))


def of_dbt(asked: argparse.Namespace) -> Iterator[Outcome]:
    """Run dbt-spark's suite; none of its runs is one transaction."""
    for setting in asked.setting or SETTINGS:
        if setting != "transaction":
            yield from dbt.run(asked.dbt.resolve(), setting, asked.only)


def session(folder: Path) -> Any:
    """Start a Spark whose default catalog is a lake."""
    from pyspark.sql import SparkSession

    import lockstep

    os.environ["DELTA_TESTING"] = "1"  # Delta has features for its tests alone
    builder = lockstep.configure(SparkSession.builder.master("local[1]"), root=str(folder / "unused"), catalog=CATALOG)
    settings = {
        "spark.app.name": "suites",
        **SMALL,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def report(found: Sequence[Outcome], *, complete: bool) -> int:
    """Print the numbers and in what they differ from the list; return the exit code."""
    count = numbers(found)
    settings = [setting for setting in SETTINGS if any(setting == ran for _, ran in count)]
    print(f"\npass:\n| file | cases | {' | '.join(settings)} |\n|---|---|{'---|' * len(settings)}")
    for module in dict.fromkeys(module for module, _ in count):
        of_module = [count[module, setting] for setting in settings]
        print(f"| {module} | {of_module[0].total()} | {' | '.join(str(one['passed']) for one in of_module)} |")
    suites = {outcome.case.partition(".")[0] for outcome in found}
    expected = [line for line in parse(LIST.read_text(encoding="utf-8")) if line.case.partition(".")[0] in suites]
    wrong = disagreements(found, expected, complete=complete)
    print("\nsuites: " + (f"{len(wrong)} differences from {LIST.name}" if wrong else f"as {LIST.name} says"))
    for line in wrong:
        print(f"  {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
