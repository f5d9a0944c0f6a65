"""`python -m tests.bench.fsync`: what COMMIT takes with `fsync-data` and without, side by side; in docs/benchmarks.md.

A transaction writes files into each of three tables, and only its COMMIT is timed. Between transactions all disks are
synced, so that nobody pays for the one before. Without Spark, which would write the same files.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from lockstep.catalog import TransactionalCatalog
from lockstep.storage.local import LocalStorage
from tests.support.lakes import add, create, location, named, open_catalog, stage

TABLES = ("t0", "t1", "t2")
SIZES = ((1, 10_000), (10, 10_000), (10, 1_000_000), (10, 10_000_000))
"""Files of each table, and bytes of each file."""


def commit_ms(catalog: TransactionalCatalog, number: int, files: int, size: int) -> float:
    """Write a transaction's files, which nobody syncs, and return how long its COMMIT took."""
    tx = catalog.begin()
    root = Path(catalog.lake.storage.url.removeprefix("file://"))
    for name in TABLES:
        actions = [add(f"f{number}-{each}.parquet") for each in range(files)]
        for action in actions:
            (root / location(catalog, name) / action["add"]["path"]).write_bytes(os.urandom(size))
        assert catalog.table(tx, named(name)).version == number
        stage(catalog, tx, name, *actions)
    start = time.perf_counter()
    catalog.commit(tx)
    return (time.perf_counter() - start) * 1000


def measured(folder: Path, files: int, size: int, rounds: int) -> dict[bool, list[float]]:
    """Return the milliseconds of each round without and with `fsync-data`, which take turns."""
    catalogs = {}
    for syncs in (False, True):
        root = folder / str(syncs)
        root.mkdir()
        catalogs[syncs] = open_catalog(LocalStorage(root, fsync_data=syncs))
        create(catalogs[syncs], *TABLES)
    times: dict[bool, list[float]] = {False: [], True: []}
    for number in range(rounds + 1):
        for syncs in (False, True) if number % 2 else (True, False):
            os.sync()
            times[syncs].append(commit_ms(catalogs[syncs], number, files, size))
    return {syncs: each[1:] for syncs, each in times.items()}  # the first one makes files of its own


def main() -> None:
    """Print the table of the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--folder", help="on the disk to measure; a temporary one by default")
    options = parser.parse_args()
    print("| files in each of three tables | COMMIT, ms | with `fsync-data` |\n|---|---|---|")
    for files, size in SIZES:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            times = measured(Path(folder), files, size, options.rounds)
        cells = [f"{statistics.median(t):.1f} ({min(t):.1f} to {max(t):.1f})" for t in (times[False], times[True])]
        print(f"| {files} of {size / 1e6:g} MB | {cells[0]} | {cells[1]} |", flush=True)


if __name__ == "__main__":
    main()
