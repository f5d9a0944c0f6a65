"""`make bench-long-transaction`: does a transaction read as fast behind 200 commits of others as at first?

A table that a transaction has read is read by it at the same version until it ends, whatever others commit: neither may
its state be computed again, nor may the others' commits be looked through for it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tests.bench.__main__ import ALWAYS, SETTINGS
from tests.bench.bounds import Bound, exit_if_missed
from tests.bench.page import DOCUMENT, paragraph, with_section
from tests.bench.side import ROWS
from tests.support.child import Child

MARK = "transaction"
BOUND = 1.1
COLD = 5
"""Reads that do not count: Java compiles what they run."""


@dataclass(frozen=True)
class Reads:
    """What reads took, in milliseconds, and how many of Spark's jobs the last of them ran."""

    milliseconds: list[float]
    jobs: int

    @property
    def median(self) -> float:
        return statistics.median(self.milliseconds)


def measure(commits: int, reads: int) -> tuple[Reads, Reads]:
    """Return the warm reads of a transaction before commits of others, and those after them.

    Between the commits it reads, too: once for every ten of them.
    """
    folder = Path(tempfile.mkdtemp(prefix="lockstep-long-transaction-"))
    try:
        settings = json.dumps({**ALWAYS, **SETTINGS["few partitions"]})
        with closing(Child("tests.bench.long_transaction_side", str(folder), settings)) as driver:
            assert driver.answer() == "ready"
            for _ in range(COLD):
                driver.ask("commit of another")
            driver.ask("begin")
            for _ in range(COLD):
                driver.ask("read")
            first = _read(driver, reads)
            for number in range(commits):
                driver.ask("commit of another")
                if number % 10 == 9:
                    print(number + 1, driver.ask("read"), flush=True)
            return first, _read(driver, reads)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read(driver: Child, reads: int) -> Reads:
    answers = [driver.ask("read") for _ in range(reads)]
    return Reads([spent for spent, _ in answers], answers[-1][1])


def report(first: Reads, last: Reads, commits: int) -> tuple[str, list[Bound]]:
    """Return the section's text, and its bounds."""
    time = Bound(f"a transaction's read behind {commits} commits of others", last.median / first.median, BOUND)
    jobs = Bound("Spark's jobs of that read, beside the first one's", last.jobs / first.jobs, 1)
    text = "\n".join([
        "## A long transaction beside commits of others",
        "",
        paragraph(f"""
            A query over a table of {ROWS:,} rows, in one transaction: when it is warm, and again behind {commits}
            commits of another session to the same table (`make bench-long-transaction`; medians of
            {len(first.milliseconds)} reads each, few partitions as above; {os.cpu_count()} cores with a load of
            {os.getloadavg()[1]:.0f}). As many jobs: no state of the table is computed again.
        """),
        "",
        "| | at first | behind them | ratio | bound | kept |",
        "|---|---|---|---|---|---|",
        f"| a read, ms | {first.median:.0f} | {last.median:.0f} | **{time.value:.2f}** | {BOUND} | {time.verdict} |",
        f"| its Spark jobs | {first.jobs} | {last.jobs} | **{jobs.value:.2f}** | 1.00 | {jobs.verdict} |",
    ])  # fmt: skip
    return text, [time, jobs]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.long_transaction", description=__doc__)
    parser.add_argument("--commits", type=int, default=200)
    parser.add_argument("--reads", type=int, default=30)
    parser.add_argument("--no-write", action="store_true", help="print only; leave docs/benchmarks.md as it is")
    args = parser.parse_args()
    first, last = measure(args.commits, args.reads)
    text, bounds = report(first, last, args.commits)
    print(text)
    if not args.no_write:
        DOCUMENT.write_text(with_section(DOCUMENT.read_text(encoding="utf-8"), MARK, text), encoding="utf-8")
    exit_if_missed(bounds)


if __name__ == "__main__":
    main()
