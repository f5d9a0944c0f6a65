"""`python -m tests.bench.exports`: what exports of a lake of many tables cost, without Spark; in docs/benchmarks.md."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

from lockstep.catalog import TransactionalCatalog
from lockstep.exports.export import Asked, Exporter
from lockstep.storage import Storage, open_storage
from lockstep.timeline.entry import ExportMode
from tests.bench.page import DOCUMENT, with_section
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, open_catalog, stage_new

MARK = "exports"
MODES: tuple[ExportMode, ...] = ("minimal", "partial", "full")


def make(root: Path, tables: int, files: int, size: int) -> TransactionalCatalog:
    """Make a lake of tables with so many files each, of so many random bytes."""
    catalog = open_catalog(FaultyStorage(open_storage(str(root), create=True)))
    tx = catalog.begin()
    for n in range(tables):
        paths = [f"part-{each:05d}.parquet" for each in range(files)]
        stage_new(catalog, tx, f"t{n}", *(add(path, size=size) for path in paths), data=os.urandom(size))
    catalog.commit(tx)
    return catalog


def measured(catalog: TransactionalCatalog, folder: Path, mode: ExportMode, tables: int) -> str:
    """Return the row of a mode."""
    source = catalog.lake.storage
    assert isinstance(source, FaultyStorage)
    targets: list[FaultyStorage] = []

    def opened(url: str, create: bool) -> Storage:
        targets.append(FaultyStorage(open_storage(url, create=create)))
        return targets[-1]

    asked = Asked(to=str(folder / mode), mode=mode)
    source.calls.clear()
    began = time.perf_counter()
    done = Exporter(catalog.lake, opened).run(asked)
    seconds = time.perf_counter() - began
    assert done.size is not None
    assert done.tables == tables
    reads, writes = len(source.calls), sum(len(each.calls) for each in targets)
    rate = f"{done.size / 2**20 / seconds:.0f}" if mode == "full" else ""
    return f"| {mode} | **{seconds:.1f}** | {reads:,} | {writes:,} | {rate} |"


def section(tables: int, files: int, size: int) -> str:
    """Return what the page says."""
    folder = Path(tempfile.mkdtemp(prefix="lockstep-exports-"))
    try:
        catalog = make(folder / "lake", tables, files, size)
        rows = "\n".join(measured(catalog, folder, mode, tables) for mode in MODES)
    finally:
        shutil.rmtree(folder)
    return f"""## Exports

A lake of {tables} tables, each with {files} files of {size // 1024} KiB, on a local disk, without Spark
(`make bench-exports`); single runs, 2 cores with a load of {os.getloadavg()[0]:.0f}. *Requests* are calls of the store:
of the lake, and of the target. A full export reads each file, writes and flushes its copy, and reads that back.

| mode | seconds | requests of the lake | of the target | MiB a second |
|---|---|---|---|---|
{rows}
"""


def main() -> None:
    """Measure, print, and write the section if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--files", type=int, default=100, help="of each table")
    parser.add_argument("--kib", type=int, default=16, help="of each file")
    parser.add_argument("--write", action="store_true", help="put the section into docs/benchmarks.md")
    args = parser.parse_args()
    text = section(args.tables, args.files, args.kib * 1024)
    print(text)
    if args.write:
        DOCUMENT.write_text(with_section(DOCUMENT.read_text(encoding="utf-8"), MARK, text), encoding="utf-8")


if __name__ == "__main__":
    main()
