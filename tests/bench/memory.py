"""`python -m tests.bench.memory`: what a process that lives for long has in memory; in docs/benchmarks.md.

Each line is a process of its own: one writer and one reader, each with the lake opened once, as two drivers would have
it. The reader reads the newest version after each commit, and now and then an older one and the history. The lake is
in memory (tmpfs) where there is one: what counts is the process alone.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa

import lockstep
from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import Action
from lockstep.storage import open_storage
from tests.bench.page import DOCUMENT, with_section
from tests.support.lakes import add, create, named, open_catalog, stage

MARK = "memory"
AT = (0.1, 0.25, 0.5, 0.75, 1.0)
"""When it is measured, as a share of the transactions."""


@dataclass(frozen=True)
class Case:
    """A process: so many transactions, in turn over so many tables, each of so many files with such statistics."""

    says: str
    transactions: int
    tables: int
    files: int = 1
    statistics: int = 500


GROWTH, NOISE_MIB = 1.1, 16
"""By so much a process may grow from half of its transactions on."""

CASES = {
    "many": Case("small commits to 100 tables", 50_000, 100),
    "catalog": Case("each of 10,000 tables written and read", 20_000, 10_000),
    "large": Case("commits of 200 files with 4 kB of statistics each", 2_000, 10, files=200, statistics=4_000),
    "python": Case("`with lake.transaction()`: append, read, and every fifth one rolled back", 2_000, 10),
}


def resident() -> float:
    """Return the MiB of this process that are in memory, garbage not counted."""
    gc.collect()
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None, "Linux says it"
    return int(found[1]) / 1024


def commits(case: Case, root: str) -> Iterator[None]:
    """Commit without end, and read what was committed; one transaction for each step."""
    store = open_storage(root, create=True)
    writer = open_catalog(store)
    for begin in range(0, case.tables, 500):
        create(writer, *(f"t{number}" for number in range(begin, min(begin + 500, case.tables))))
    reader = open_catalog(store)
    number = 0
    while True:
        name = f"t{number * 7_919 % case.tables}"
        tx = writer.begin()
        stage(writer, tx, name, *files(case, number))
        writer.commit(tx)
        read(reader, name, number)
        number += 1
        yield


def files(case: Case, number: int) -> list[Action]:
    """Return the files that a transaction adds."""
    stats = '{"numRecords":1,"minValues":{"text":"%s"}}'
    return [
        add(f"{number:08d}-{each:04d}.parquet", stats=stats % f"{number}-{each}-".ljust(case.statistics, "x"))
        for each in range(case.files)
    ]


def read(reader: TransactionalCatalog, name: str, number: int) -> None:
    """Read as somebody does who looks at what is new, and now and then at what was."""
    table = reader.database([named(name)]).tables[named(name)]
    newest = reader.timeline.head.version
    reader.lake.past.of(reader.timeline.entries(newest - 1)[0])
    if number % 50 == 0:
        reader.timeline.at(newest * (number % 7) // 7)
        for _ in islice(reader.timeline.past(through=newest * (number % 11) // 11), 100):
            pass
    assert table.version > 0


def python(case: Case, root: str) -> Iterator[None]:
    """Write and read tables without Spark; every fifth transaction is rolled back."""
    lake = lockstep.open(root, create=True)
    with lake.transaction() as tx:
        for number in range(case.tables):
            tx.create(f"t{number}", pa.schema([("id", pa.int64()), ("text", pa.string())]))
    number = 0
    while True:
        try:
            with lake.transaction() as tx:
                table = tx[f"t{number % case.tables}"]
                table.append({"id": [number], "text": ["x" * case.statistics]})
                if number % 5 == 0:
                    raise LookupError
        except LookupError:
            pass
        if number % 10 == 0:
            lake.at()[f"t{number % case.tables}"].to_arrow()
        number += 1
        yield


def run(name: str, scale: float) -> None:
    """Run a case, and print its line.

    Raises:
        AssertionError: it has not levelled off after half of the transactions.
    """
    case = CASES[name]
    count = max(10, round(case.transactions * scale))
    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    root = tempfile.mkdtemp(prefix="lockstep-memory-", dir=parent)
    work: Callable[[Case, str], Iterator[None]] = python if name == "python" else commits
    try:
        steps, done, began = work(case, root), 0, time.monotonic()
        found: list[float] = []
        for share in AT:
            upto = round(count * share)
            for _ in islice(steps, upto - done):
                pass
            done = upto
            found.append(resident())
            print(
                f"{name}: {done:,} of {count:,}: {found[-1]:.0f} MiB, {time.monotonic() - began:.0f} s", file=sys.stderr
            )
        print(f"| {case.says} | {count:,} | {' | '.join(f'{each:.0f}' for each in found)} |")
        half = found[AT.index(0.5)]
        assert found[-1] <= GROWTH * half + NOISE_MIB, f"{name} does not level off: {found}"
    finally:
        shutil.rmtree(root)


def section(names: list[str], scale: float) -> str:
    """Return what the page says."""
    command = [sys.executable, "-m", "tests.bench.memory", "--scale", str(scale), "--run"]
    rows = "".join(
        subprocess.run([*command, name], check=True, stdout=subprocess.PIPE, text=True).stdout for name in names
    )
    shares = " | ".join(f"{share:.0%}" for share in AT)
    return f"""## A process that lives for long

What a process has in memory (resident, MiB) after a part of its transactions, without Spark (`make bench-memory`): one
writer and one reader of a lake, each opened once, in one process, as two drivers would be. The reader reads each
commit, and now and then an older version and the history. What is kept is [bounded](design.md#what-is-kept-in-memory),
so growth ends: behind half of the transactions it is at most {GROWTH - 1:.0%} and {NOISE_MIB} MiB, or this fails.

| each transaction | transactions | {shares} |
|---|---|{"---|" * len(AT)}
{rows.rstrip()}"""


def main() -> None:
    """Measure, print, and write the section if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--scale", type=float, default=1, help="so many times the transactions")
    parser.add_argument("--run", help="one case, in this process")
    parser.add_argument("--write", action="store_true", help="put the section into docs/benchmarks.md")
    args = parser.parse_args()
    if args.run:
        run(args.run, args.scale)
        return
    text = section(args.cases, args.scale)
    print(text)
    if args.write:
        DOCUMENT.write_text(with_section(DOCUMENT.read_text(encoding="utf-8"), MARK, text), encoding="utf-8")


if __name__ == "__main__":
    main()
