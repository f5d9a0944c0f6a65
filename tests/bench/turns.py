"""`python -m tests.bench.turns`: how many commits a second several processes of one host make; in docs/benchmarks.md.

    TURNS=1 python -m tests.bench.turns ROOT NAME COMMITS TABLE
    python -m tests.bench.turns ROOT NAME COMMITS                      of the disk alone

is one of the processes: it says "ready", waits for a request, commits, and reports. With turns and without, to one
table that all share and to one each, come after one another in each round: what else the machine does meets all alike.
With `--against FOLDER` the core of another checkout and this one do so in turn, and what is printed compares the two.

What the disk alone would take is measured in each round, too: as many processes that write and sync the very files of
a commit, under one lock, and do nothing else (`disk`). No lake is removed before the last round has ended: ext4 makes
new files dearer for minutes after many were deleted, and nobody deletes a lake beside the commits of another.
"""

from __future__ import annotations

import argparse
import fcntl
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
DISK = "the disk alone"
FILE = b"x" * 1_500
"""As large as the entry of a commit of one file."""


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


def disk(root: str, name: str, commits: int) -> Report:
    """Write what so many commits of one file write, as `lockstep.storage.local` does: the entry, the table's commit."""
    storage = open_storage(root)
    parent = Parent()
    parent.say("ready")
    next(parent.requests())
    seconds = []
    began, processor = time.perf_counter(), time.process_time()
    with Path(root, "turn.lock").open("ab") as lock:
        for number in range(commits):
            one = time.perf_counter()
            fcntl.flock(lock, fcntl.LOCK_EX)
            for folder in ("entries", "table/_delta_log"):
                storage.put_if_absent(f"{folder}/{name}-{number}.json", FILE)
            fcntl.flock(lock, fcntl.LOCK_UN)
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


def measure(folder: Path, writers: int, commits: int, *, shared: bool, turns: bool, core: Path | None = None) -> Run:
    """Have processes commit together, and see that nothing is lost or doubled.

    Args:
        folder: a new one, for the lake.
        core: the checkout whose `lockstep` they import; this one's, if None.
    """
    environment = {"TURNS": str(int(turns))} | ({} if core is None else {"PYTHONPATH": str(core / "python")})
    root = str(folder / "lake")
    tables = [f"t{n}" for n in range(1 if shared else writers)]
    catalog = open_catalog(open_storage(root, create=True))
    create(catalog, *tables)
    catalog.lake.upkeep.settle()
    run = _together(
        [[root, f"w{n}", str(commits), tables[n % len(tables)]] for n in range(writers)], environment=environment
    )
    there = set[str]().union(*(files(open_catalog(open_storage(root)), table) for table in tables))
    assert there == {f"w{n}-{number}" for n in range(writers) for number in range(commits)}
    return run


def measure_disk(folder: Path, writers: int, commits: int) -> Run:
    """Have processes do what the disk does of it, and nothing else."""
    return _together([[str(folder), f"w{n}", str(commits)] for n in range(writers)])


def _together(processes: Sequence[Sequence[str]], *, environment: Mapping[str, str] | None = None) -> Run:
    """Run processes, by their arguments, which begin together."""
    with ExitStack() as running:
        each = [
            running.enter_context(Child("tests.bench.turns", *arguments, environment=environment))
            for arguments in processes
        ]
        assert [child.answer() for child in each] == ["ready"] * len(each)
        for child in each:
            child.tell("go")
        reports = [Report(**child.answer()) for child in each]
    seconds = [one for report in reports for one in report.seconds]
    return Run(
        rate=len(seconds) / max(report.whole_seconds for report in reports),
        processor_ms=1000 * sum(report.processor_seconds for report in reports) / len(seconds),
        median_ms=1000 * statistics.median(seconds),
        max_ms=1000 * max(seconds),
    )


def section(runs: Mapping[tuple[str, bool], Sequence[Run]], on_disk: Sequence[Run], writers: int, commits: int) -> str:
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
    rounds = len(on_disk)
    rows.append(
        f"| {DISK} | a lock | {_median(on_disk, 'rate'):.0f} | | | {_median(on_disk, 'processor_ms'):.1f} | "
        f"{_median(on_disk, 'median_ms'):.0f} | {max(run.max_ms for run in on_disk):.0f} |"
    )
    return "\n".join([
        "## Many processes on one host",
        "",
        f"{writers} processes, each {commits} times `BEGIN`, an append of one file, `COMMIT`, one right after the",
        f"other, on a local disk and {conditions()}",
        f"(`make bench-turns`; {rounds} rounds, all cases in turn, medians). At least {GOAL} commits a second are",
        "promised. *Turns* are [an advisory lock](design.md#commit), *none* is the race alone. Processor time is of",
        "all that a process does, from `BEGIN` to what comes behind the answer: two cores have 2,000 ms a second of",
        f"it. *{DISK.capitalize()}* is as many processes that only make and sync the two files of a commit, and sync",
        "their folders, under one lock.",
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


def compare(core: Path, folder: Path, rounds: int, commits: int) -> str:
    """Have another core and this one commit, in turn, and return the table; their lakes lie below a folder."""
    runs: dict[str, list[tuple[Run, Run]]] = {}
    for round_ in range(rounds):
        for tables in TABLES:
            found = {}
            for each in (core, None) if round_ % 2 == 0 else (None, core):
                lake = _below(folder)
                found[each] = measure(lake, WRITERS, commits, shared=tables == TABLES[0], turns=True, core=each)
                print(tables, each or "this core", found[each], flush=True)
            runs.setdefault(tables, []).append((found[core], found[None]))
    return comparison(runs)


def _below(folder: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=folder))


def _median(each: Sequence[Run], field: str) -> float:
    return statistics.median(getattr(run, field) for run in each)


def _rounds(folder: Path, rounds: int, commits: int) -> tuple[dict[tuple[str, bool], list[Run]], list[Run]]:
    """Return the runs of each case, and those of the disk alone."""
    runs: dict[tuple[str, bool], list[Run]] = {(tables, turns): [] for tables in TABLES for turns in (False, True)}
    on_disk: list[Run] = []
    for _ in range(rounds):
        for (tables, turns), each in runs.items():
            each.append(measure(_below(folder), WRITERS, commits, shared=tables == TABLES[0], turns=turns))
            print(tables, "turns" if turns else "none", each[-1], flush=True)
        on_disk.append(measure_disk(_below(folder), WRITERS, commits))
        print(DISK, on_disk[-1], flush=True)
    return runs, on_disk


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.turns", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commits", type=int, default=60)
    parser.add_argument("--no-write", action="store_true", help="print only; leave docs/benchmarks.md as it is")
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="another checkout: print only how we compare")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lockstep-turns-") as name:
        folder = Path(name)
        if args.against is not None:
            print(compare(args.against.resolve(), folder, args.rounds, args.commits))
            return
        runs, on_disk = _rounds(folder, args.rounds, args.commits)
    text = section(runs, on_disk, WRITERS, args.commits)
    print(text)
    if not args.no_write:
        DOCUMENT.write_text(with_section(DOCUMENT.read_text(encoding="utf-8"), MARK, text), encoding="utf-8")
    exit_if_missed(bound(tables, each) for (tables, turns), each in runs.items() if turns)


if __name__ == "__main__":
    match sys.argv[1:]:
        case [root, name, commits, table] if not root.startswith("-"):
            work(root, name, int(commits), table)
        case [root, name, commits] if not root.startswith("-"):
            disk(root, name, int(commits))
        case _:
            main()
