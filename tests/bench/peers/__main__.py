"""`make bench-peers`: commits a second beside DuckLake and Nessie, in one run, the systems in turn.

Eight writers of each system, processes of their own, commit one transaction after the other for some seconds: an append
of one row, or of one file, to a table that all share, to a table each, to two tables that all share. In each round each
system has its turn; the page has medians of the rounds.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from project import render_docs
from tests.bench.bounds import Bound, exit_if_missed
from tests.bench.page import DOCUMENT, paragraph, with_section
from tests.bench.peers.systems import OURS, Servers, System, systems
from tests.bench.turns import GOAL
from tests.support.child import Child
from tests.support.maven import MissingError

MARK = "peers"
WRITERS = 8
WORKS = ("one table", "a table each", "two tables")
PROMISED = ("one table", "a table each")
"""In these works our core makes `GOAL` commits a second, or more."""

Latencies = list[float]


@dataclass(frozen=True)
class Run:
    """What eight writers did in one turn: commits a second, what each took, and how many were refused."""

    rate: float
    latencies: Latencies
    failed: int


def tables_of(work: str, round_: int, writer: int) -> list[str]:
    """Return the tables that a writer's transactions append to; each round has its own."""
    names = {"one table": ["shared"], "a table each": [f"own{writer}"], "two tables": ["left_", "right_"]}[work]
    return [f"{name}_{round_}" for name in names]


def turn(system: System, round_: int, seconds: float) -> dict[str, Run]:
    """Make a new lake of a system, and let its writers do all works, one after the other."""
    tables = sorted({t for work in WORKS for writer in range(WRITERS) for t in tables_of(work, round_, writer)})
    folder = Path(tempfile.mkdtemp(prefix="lockstep-peers-"))
    try:
        with ExitStack() as running:
            start = running.enter_context(system.made(folder, tables))
            writers = [running.enter_context(closing(start(f"w{n}"))) for n in range(system.processes)]
            for writer in writers:
                assert writer.answer() == "ready"
            ask(writers, "a table each", round_, min(1, seconds))  # nobody's first second counts
            return {work: ask(writers, work, round_, seconds) for work in WORKS}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def ask(writers: Sequence[Child], work: str, round_: int, seconds: float) -> Run:
    """Have all writers work for so long."""
    threads = WRITERS // len(writers)
    for number, writer in enumerate(writers):
        each = [tables_of(work, round_, number * threads + thread) for thread in range(threads)]
        writer.tell({"each": each, "seconds": seconds})
    answers = [writer.answer() for writer in writers]
    latencies = [each for answer in answers for each in answer["latencies"]]
    return Run(len(latencies) / seconds, latencies, sum(answer["failed"] for answer in answers))


def cell(runs: Sequence[Run]) -> str:
    """Return commits a second, and the median and the 99th percentile of what they took, in milliseconds."""
    latencies = sorted(1000 * each for run in runs for each in run.latencies)
    if not latencies:
        return "**0** (-)"
    p99 = latencies[min(len(latencies) - 1, int(0.99 * len(latencies)))]
    return f"**{statistics.median(run.rate for run in runs):.0f}** ({statistics.median(latencies):.0f}, {p99:.0f})"


def bounds(works: Mapping[str, Sequence[Run]] | str) -> list[Bound]:
    """Return what is promised of our core; it is not kept where that could not be measured, and why is given."""

    def rate(work: str) -> float:
        return math.nan if isinstance(works, str) else statistics.median(run.rate for run in works[work])

    return [Bound(f"commits a second, {work}", rate(work), GOAL, is_least=True) for work in PROMISED]


def report(found: Mapping[str, dict[str, list[Run]] | str], durable: Mapping[str, str], seconds: float) -> str:
    """Return the section's text.

    Args:
        found: by system, what it did in each work, or why it could not be had.
        durable: by system, what has reached the disk when a commit is answered.
    """
    rows = []
    for name, works in found.items():
        if isinstance(works, str):
            rows.append(f"| {name} | not measured: {works} | | | | |")
        else:
            failed = sum(run.failed for runs in works.values() for run in runs)
            cells = " | ".join(cell(works[work]) for work in WORKS)
            rows.append(f"| {name} | {cells} | {failed} | {durable[name]} |")
    kept = " and ".join(bound.verdict for bound in bounds(found[OURS])) if OURS in found else ""
    said = f" (kept: {kept})" if kept else ""
    rounds = max(len(runs) for works in found.values() if not isinstance(works, str) for runs in works.values())
    return "\n".join([
        "## Beside other systems",
        "",
        paragraph(f"""
            Commits a second (in brackets the median and the 99th percentile of one, ms): {WRITERS} writers, each a
            process of its own unless it says otherwise, one transaction right after the other, an append of one row or
            one file to each table, on a local disk; `make bench-peers`, {rounds} rounds of {seconds:g} s for each cell,
            the systems in turn; {os.cpu_count()} cores with a load of {os.getloadavg()[1]:.0f}. *Refused* are
            transactions that failed by a conflict or a lock, and were run again by their writers. DuckLake is 1.5.5,
            asked to retry 1,000 times (it gives up after 10 by default), and its SQLite writes a log ahead (WAL;
            without it nearly every commit beside others fails with "database is locked"). Nessie is 0.99.0 with
            RocksDB, and commits contents alone: Iceberg would write a metadata file for each table and commit besides.
            Lockstep's core writes what Spark and Delta would have staged; no Spark runs on any side. It promises {GOAL}
            a second of one table, and of a table each{said}. What is durable when a commit is answered is not the same:
        """),
        "",
        "| | one table | a table each | two tables | refused | durable at the answer |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
        "![Commits a second of each system](images/peers.svg)",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.peers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--no-write", action="store_true", help="print only; leave docs/benchmarks.md as it is")
    args = parser.parse_args()
    found: dict[str, dict[str, list[Run]] | str] = {}
    with Servers() as servers:
        compared = systems(servers)
        for round_ in range(args.rounds):
            for system in compared if round_ % 2 == 0 else reversed(compared):
                runs = found.setdefault(system.name, {work: [] for work in WORKS})
                if isinstance(runs, str):
                    continue
                try:
                    for work, run in turn(system, round_, args.seconds).items():
                        runs[work].append(run)
                        print(f"{system.name}, {work}: {cell([run])}, refused {run.failed}", flush=True)
                except (MissingError, subprocess.CalledProcessError) as error:
                    found[system.name] = str(error)
                    print(f"{system.name}: not measured: {error}", flush=True)
    text = report(found, {system.name: system.durable for system in compared}, args.seconds)
    print(text)
    if not args.no_write:
        DOCUMENT.write_text(with_section(DOCUMENT.read_text(encoding="utf-8"), MARK, text), encoding="utf-8")
        render_docs.write()
    exit_if_missed(bounds(found[OURS]))


if __name__ == "__main__":
    main()
