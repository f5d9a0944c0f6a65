"""`python -m tests.bench.turns`: how many commits a second several processes of one host make; in docs/benchmarks.md.

    TURNS=1 python -m tests.bench.turns ROOT NAME COMMITS TABLE

is one of the processes: it says "ready", waits for a request, commits, and reports. With turns and without, to one
table that all share and to one each, come after one another in each round: what else the machine does meets all alike.
With `--against FOLDER` the core of another checkout and this one do so in turn, and what is printed compares the two.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import render
from lockstep.delta.log import staged_path
from lockstep.storage import open_storage
from lockstep.transactions.transaction import Transaction
from tests.bench.bounds import Bound, exit_if_missed
from tests.bench.page import DOCUMENT, conditions, with_section
from tests.support.child import Child, Parent
from tests.support.lakes import add, create, files, named, open_catalog

MARK = "turns"
WRITERS = 8
TABLES = ("one that all share", "one each")
GOAL = 400
"""Commits a second, at least, with turns."""


@dataclass(frozen=True, slots=True)
class Report:
    """What one process met: the seconds of each transaction, all of them, and the processor's time of all of them."""

    seconds: list[float]
    whole_seconds: float
    processor_seconds: float


@dataclass(frozen=True, slots=True)
class Run:
    """Commits a second of all processes, processor time of one commit, and how long transactions took."""

    rate: float
    processor_ms: float
    median_ms: float
    max_ms: float


def work(root: str, name: str, commits: int, table: str) -> Report:
    """Commit so many transactions, one right after the other, each of which appends a file."""
    catalog = open_catalog(open_storage(root), turns=os.environ["TURNS"] == "1")
    catalog.database()
    parent = Parent()
    parent.say("ready")
    next(parent.requests())
    seconds = []
    began, processor = time.perf_counter(), time.process_time()
    for number in range(commits):
        one = time.perf_counter()
        _commit(catalog, Path(root), table, f"{name}-{number}")
        seconds.append(time.perf_counter() - one)
    report = Report(seconds, time.perf_counter() - began, time.process_time() - processor)
    parent.say(asdict(report))
    return report


def _commit(catalog: TransactionalCatalog, root: Path, table: str, file: str) -> None:
    """Append a file in a transaction of its own."""
    tx = catalog.begin()
    stage_append(catalog, root, tx, table, file)
    catalog.commit(tx)


def stage_append(catalog: TransactionalCatalog, root: Path, tx: Transaction, table: str, file: str) -> None:
    """Write what Spark and Delta write before COMMIT for an append of one file, which is not flushed, as theirs."""
    there = catalog.table(tx, named(table))
    (root / there.location / file).write_bytes(b"rows")
    data = render([{"commitInfo": {"operation": "WRITE", "isBlindAppend": True}}, add(file)])
    staged = root / staged_path(there.location, tx.id, there.version + 1)
    staged.parent.mkdir(parents=True)
    staged.write_bytes(data)
    catalog.stage(tx, there.location, there.version + 1, data.decode())


def measure(writers: int, commits: int, *, shared: bool, turns: bool, core: Path | None = None) -> Run:
    """Have processes commit together, and see that nothing is lost or doubled.

    Args:
        core: the checkout whose `lockstep` they import; this one's, if None.
    """
    environment = {"TURNS": str(int(turns))} | ({} if core is None else {"PYTHONPATH": str(core / "python")})
    with tempfile.TemporaryDirectory(prefix="lockstep-turns-") as folder:
        root = f"{folder}/lake"
        tables = [f"t{n}" for n in range(1 if shared else writers)]
        catalog = open_catalog(open_storage(root, create=True))
        create(catalog, *tables)
        catalog.lake.upkeep.settle()
        with ExitStack() as running:
            each = [
                running.enter_context(
                    Child(
                        "tests.bench.turns",
                        root,
                        f"w{n}",
                        str(commits),
                        tables[n % len(tables)],
                        environment=environment,
                    )
                )
                for n in range(writers)
            ]
            assert [child.answer() for child in each] == ["ready"] * writers
            for child in each:
                child.tell("go")
            reports = [Report(**child.answer()) for child in each]
        there = set[str]().union(*(files(open_catalog(open_storage(root)), table) for table in tables))
        assert there == {f"w{n}-{number}" for n in range(writers) for number in range(commits)}
    seconds = [one for report in reports for one in report.seconds]
    return Run(
        rate=len(seconds) / max(report.whole_seconds for report in reports),
        processor_ms=1000 * sum(report.processor_seconds for report in reports) / len(seconds),
        median_ms=1000 * statistics.median(seconds),
        max_ms=1000 * max(seconds),
    )


def section(runs: Mapping[tuple[str, bool], Sequence[Run]], writers: int, commits: int) -> str:
    """Return the section's text, given the runs of each case: which tables, and whether with turns."""
    rows = []
    for (tables, turns), each in runs.items():
        paired = [run.rate / other.rate for run, other in zip(each, runs[tables, False], strict=True)]
        kept = bound(tables, each).verdict if turns else ""
        rows.append(
            f"| {tables} | {'turns' if turns else 'none'} | {_median(each, 'rate'):.0f} | {kept} | "
            f"**{statistics.median(paired):.2f}** | {_median(each, 'processor_ms'):.1f} | "
            f"{_median(each, 'median_ms'):.0f} | {max(run.max_ms for run in each):.0f} |"
        )
    rounds = len(next(iter(runs.values())))
    return "\n".join([
        "## Many processes on one host",
        "",
        f"{writers} processes, each {commits} times `BEGIN`, an append of one file, `COMMIT`, one right after the",
        f"other, on a local disk and {conditions()}",
        f"(`make bench-turns`; {rounds} rounds, all cases in turn, medians). At least {GOAL} commits a second are",
        "promised. *Turns* are [an advisory lock](design.md#commit), *none* is the race alone. Processor time is of",
        "all that a process does, from `BEGIN` to what comes behind the answer: two cores have 2,000 ms a second of",
        "it.",
        "",
        "| tables | turns | commits/s | kept | times none | processor, ms a commit | transaction, ms: median | max |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
    ])  # fmt: skip


def bound(tables: str, each: Sequence[Run]) -> Bound:
    """Return what is promised of the runs with turns."""
    return Bound(f"commits a second of {WRITERS} processes, {tables}", _median(each, "rate"), GOAL, is_least=True)


def comparison(runs: Mapping[str, Sequence[tuple[Run, Run]]]) -> str:
    """Return the table of this core against another one, given by tables the runs of each round: the other's, and ours.

    Medians, and those of the paired ratios.
    """
    rows = []
    for tables, pairs in runs.items():
        cells = []
        for field, digits in (("rate", 0), ("processor_ms", 1), ("median_ms", 0)):
            before, after = (statistics.median(getattr(pair[which], field) for pair in pairs) for which in (0, 1))
            ratio = statistics.median(getattr(ours, field) / getattr(other, field) for other, ours in pairs)
            cells.append(f"{before:.{digits}f} → {after:.{digits}f} (**{ratio:.2f}**)")
        rows.append(f"| {tables} | {' | '.join(cells)} |")
    return "\n".join([
        "| tables, with turns | commits/s | processor, ms a commit | transaction, ms: median |",
        "|---|---|---|---|",
        *rows,
    ])  # fmt: skip


def compare(core: Path, rounds: int, commits: int) -> str:
    """Have another core and this one commit, in turn, and return the table."""
    runs: dict[str, list[tuple[Run, Run]]] = {}
    for round_ in range(rounds):
        for tables in TABLES:
            found = {}
            for each in (core, None) if round_ % 2 == 0 else (None, core):
                found[each] = measure(WRITERS, commits, shared=tables == TABLES[0], turns=True, core=each)
                print(tables, each or "this core", found[each], flush=True)
            runs.setdefault(tables, []).append((found[core], found[None]))
    return comparison(runs)


def _median(each: Sequence[Run], field: str) -> float:
    return statistics.median(getattr(run, field) for run in each)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.turns", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commits", type=int, default=60)
    parser.add_argument("--no-write", action="store_true", help="print only; leave docs/benchmarks.md as it is")
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="another checkout: print only how we compare")
    args = parser.parse_args()
    if args.against is not None:
        print(compare(args.against.resolve(), args.rounds, args.commits))
        return
    cases = [(tables, turns) for tables in TABLES for turns in (False, True)]
    runs: dict[tuple[str, bool], list[Run]] = {case: [] for case in cases}
    for _ in range(args.rounds):
        for tables, turns in cases:
            run = measure(WRITERS, args.commits, shared=tables == TABLES[0], turns=turns)
            runs[tables, turns].append(run)
            print(tables, "turns" if turns else "none", run, flush=True)
    text = section(runs, WRITERS, args.commits)
    print(text)
    if not args.no_write:
        DOCUMENT.write_text(with_section(DOCUMENT.read_text(encoding="utf-8"), MARK, text), encoding="utf-8")
    exit_if_missed(bound(tables, each) for (tables, turns), each in runs.items() if turns)


if __name__ == "__main__":
    if len(sys.argv) == 5 and not sys.argv[1].startswith("-"):
        work(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        main()
