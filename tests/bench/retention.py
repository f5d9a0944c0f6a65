"""`python -m tests.bench.retention`: what vacuum costs, without Spark; in docs/benchmarks.md."""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, TypeAlias, get_args
from unittest.mock import patch

from lockstep.retention import clocks
from lockstep.retention.ages import Retention
from lockstep.retention.expiring import expire_snapshots
from lockstep.retention.upkeep import vacuum
from lockstep.storage import Found, Names, Storage, open_storage
from lockstep.timeline import fence
from tests.bench.page import DOCUMENT, with_section
from tests.support.around import Around
from tests.support.lakes import add, create, location, open_catalog, remove, stage
from tests.support.retained import Ticking

MARK = "retention"
AT_ONCE = Retention(timedelta(), 1, timedelta(), timedelta(days=7))
FILES_OF_A_COMMIT = 1_000

Row: TypeAlias = Literal["dry", "real"]
Measured: TypeAlias = "tuple[float, dict[str, int], float]"
"""Seconds, requests by kind, and MiB."""


class CountingStorage(Around):
    """Another store whose requests are counted: a listing is one, of S3 one for each thousand objects."""

    def __init__(self, inner: Storage) -> None:
        self.inner = inner
        self.counts = Counter[str]()

    def get(self, path: str) -> bytes | None:
        self.counts["get"] += 1
        return self.inner.get(path)

    def try_put(self, path: str, data: bytes) -> bool:
        self.counts["put"] += 1
        return self.inner.try_put(path, data)

    def put(self, path: str, data: bytes) -> None:
        self.counts["put"] += 1
        self.inner.put(path, data)

    def list(self, folder: str, after: str | None = None) -> Names:
        self.counts["list"] += 1
        return self.inner.list(folder, after)

    def walk(self, folder: str) -> Iterator[Found]:
        self.counts["list"] += 1
        return self.inner.walk(folder)

    def exists(self, path: str) -> bool:
        self.counts["exists"] += 1
        return self.inner.exists(path)

    def delete(self, path: str) -> None:
        self.counts["delete"] += 1
        self.inner.delete(path)

    def delete_folder(self, path: str) -> None:
        self.counts["delete"] += 1
        self.inner.delete_folder(path)


def measured(store: CountingStorage, act: Callable[[], object]) -> Measured:
    """Return what it takes to do something once: seconds, requests, and by how many MiB the process grew."""
    before = _peak()
    store.counts.clear()
    began = time.perf_counter()
    act()
    took = time.perf_counter() - began
    return took, dict(store.counts), _peak() - before


def _peak() -> float:
    """Return the most memory that this process has had until now, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _now() -> Ticking:
    """Return a clock that begins now."""
    clock = Ticking()
    clock.now = datetime.now(UTC)
    return clock


def lay(root: str, count: int) -> None:
    """Make a lake with a table of which so many files were removed, by versions that have expired."""
    catalog = open_catalog(open_storage(root), clock=_now())
    create(catalog, "t")
    place = Path(root, location(catalog, "t"))
    for begin in range(0, count, FILES_OF_A_COMMIT):
        names = [f"part-{n:08}.parquet" for n in range(begin, min(begin + FILES_OF_A_COMMIT, count))]
        for name in names:
            (place / name).write_bytes(b"")
        for actions in ([add(name) for name in names], [remove(name) for name in names]):
            tx = catalog.begin()
            with patch("tests.support.lakes.lay"):
                stage(catalog, tx, "t", *actions)
            catalog.commit(tx)
    lake = catalog.lake
    with patch.object(fence, "GRACE_SECONDS", 0.0):
        expire_snapshots(lake, older_than=lake.clock(), retain_last=1, grace=timedelta())
    lake.upkeep.settle()


def one_row(row: Row, root: str) -> None:
    """Print what one vacuum takes, in a process that has done nothing before: its memory is its own."""
    store, clock = CountingStorage(open_storage(root)), _now()
    clock.now += timedelta(days=30)
    lake = open_catalog(store, clock=clock).lake
    lake.refresh()
    with patch.object(clocks, "CLOCKS", timedelta(days=31)):  # the disk's clock stays where it is
        print(json.dumps(measured(store, lambda: vacuum(lake, AT_ONCE, dry_run=row == "dry"))))


def of_vacuum(count: int) -> list[str]:
    """Return the rows of a table of which so many files were removed: a look, and a run that deletes them."""
    root = tempfile.mkdtemp(prefix="lockstep-vacuum-")
    try:
        lay(root, count)
        dry, swept = (_in_a_process(row, root) for row in ("dry", "real"))
        if left := sum(1 for _ in Path(root).rglob("part-*")):
            raise RuntimeError(f"{left} files are left")
        return [_row(f"vacuum {count:,} files, a dry run", dry), _row(f"vacuum {count:,} files", swept)]
    finally:
        shutil.rmtree(root)


def _in_a_process(row: str, root: str) -> Measured:
    command = [sys.executable, "-m", "tests.bench.retention", "--row", row, "--root", root]
    seconds, counts, grown = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
    return seconds, counts, grown


def _row(what: str, measured: Measured) -> str:
    seconds, counts, grown = measured
    requests = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
    return f"| {what} | {seconds:.1f} | {requests} | {grown:.0f} |"


def section(files: int) -> str:
    """Return what the page says."""
    rows = "\n".join(of_vacuum(files))
    return f"""## Vacuum

On a local disk, without Spark, each once (`make bench-retention`): a table all of whose files were removed,
{FILES_OF_A_COMMIT:,} a commit, by versions that have expired. Its log is read whole. Requests are those of a store that
deletes one file at a time: S3 takes a thousand. Memory is what the process grew by, one for each row; 2 cores with
a load of {os.getloadavg()[0]:.0f}.

| | seconds | requests | MiB |
|---|---|---|---|
{rows}
"""


def main() -> None:
    """Measure, print, and write the section if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--row", choices=get_args(Row), help=argparse.SUPPRESS)
    parser.add_argument("--root", help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help="put the section into docs/benchmarks.md")
    args = parser.parse_args()
    if args.row:
        one_row(args.row, args.root)
        return
    text = section(args.files)
    print(text)
    if args.write:
        DOCUMENT.write_text(with_section(DOCUMENT.read_text(encoding="utf-8"), MARK, text), encoding="utf-8")


if __name__ == "__main__":
    main()
