"""`python -m tests.bench.adopt`: what it costs to adopt a warehouse, without Spark; in docs/benchmarks.md."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from deltalake import DeltaTable

from lockstep.adoption.adopt import adopt, look
from lockstep.adoption.finding import tables_below
from lockstep.adoption.release import release
from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import render
from lockstep.storage.outside import open_reaching
from tests.bench.page import DOCUMENT, with_section
from tests.support.faulty import FaultyStorage
from tests.support.lakes import PROTOCOL, add, metadata, open_catalog

MARK = "adopt"
COMMITS = 10
"""Of each table, with a checkpoint at the last but one."""


def make(folder: Path, tables: int, files: int) -> None:
    """Make the logs of tables with so many files each, and the files, which are empty."""
    for n in range(tables):
        table = folder / f"schema{n % 10}.db" / f"t{n}"
        log = table / "_delta_log"
        log.mkdir(parents=True)
        for version in range(COMMITS):
            paths = [f"part-{version:02d}-{each:05d}.parquet" for each in range(files // COMMITS)]
            first = [PROTOCOL, metadata()] if version == 0 else []
            actions = [{"commitInfo": {"operation": "WRITE"}}, *first, *map(add, paths)]
            (log / f"{version:020d}.json").write_bytes(render(actions))
            for path in paths:
                (table / path).touch()
            if version == COMMITS - 2:
                DeltaTable(str(table)).create_checkpoint()


def measured(catalog: TransactionalCatalog, what: str, work: Callable[[], object]) -> str:
    """Return the row of a step."""
    storage = catalog.lake.storage
    assert isinstance(storage, FaultyStorage)
    storage.calls.clear()
    began = time.perf_counter()
    work()
    return f"| {what} | **{time.perf_counter() - began:.2f}** | {len(storage.calls):,} |"


def steps(warehouse: Path, root: Path, tables: int) -> list[str]:
    """Return the rows of what it costs to have a new lake adopt all tables below a folder, and give them back."""
    catalog = open_catalog(FaultyStorage(open_reaching(str(root), create=True)))
    lake = catalog.lake

    def take_in() -> None:
        tx = catalog.begin()
        found = look(lake, tx.names, tables_below(lake.storage, str(warehouse)))
        assert len(found) == tables
        adopt(lake, tx, found, make_namespaces=True)
        catalog.commit(tx)

    def let_go() -> None:
        tx = catalog.begin()
        release(lake, tx, sorted(tx.names.tables))
        catalog.commit(tx)

    def read_all() -> None:
        catalog.database(lake.timeline.head.tables)

    rows = [
        measured(catalog, "find them, look at each, adopt all in one transaction", take_in),
        measured(catalog, "first look at all for plain writers' commits", read_all),
        measured(catalog, "the same look again", read_all),
        measured(catalog, "release all in one transaction", let_go),
    ]
    lake.upkeep.settle()
    return rows


def first_touches(folder: Path, files: int, times: int = 200) -> list[str]:
    """Return the rows of what it costs a statement to see what plain writers have done to a table meanwhile."""
    make(folder / "warehouse", 1, files)
    catalog = open_catalog(FaultyStorage(open_reaching(str(folder / "lake"), create=True)))
    [wanted] = tables_below(catalog.lake.storage, str(folder / "warehouse"))
    tx = catalog.begin()
    adopt(catalog.lake, tx, look(catalog.lake, tx.names, [wanted]), make_namespaces=True)
    catalog.commit(tx)
    log = next((folder / "warehouse").glob("*/*/_delta_log"))

    def touch(foreign: int, *, again: bool) -> tuple[float, int]:
        storage, newest = catalog.lake.storage, int(max(path.stem for path in log.glob("*.json")))
        assert isinstance(storage, FaultyStorage)
        for version in range(newest + 1, newest + 1 + foreign):
            actions = [{"commitInfo": {"operation": "WRITE"}}, add(f"foreign-{version}.parquet")]
            (log / f"{version:020d}.json").write_bytes(render(actions))
        tx = catalog.begin()
        if again:
            catalog.table(tx, wanted.name)
        storage.calls.clear()
        began = time.perf_counter()
        found = catalog.table(tx, wanted.name)
        taken = time.perf_counter() - began
        assert found.version == newest + foreign
        calls = len(storage.calls)
        catalog.rollback(tx)
        return taken, calls

    rows = []
    cases = (("no foreign commit", 0, False), ("none, and the transaction has used the table before", 0, True))
    for what, foreign, again in (*cases, ("one foreign commit", 1, False), ("ten foreign commits", 10, False)):
        touches = [touch(foreign, again=again) for _ in range(times)]
        microseconds, calls = median(each[0] for each in touches) * 1e6, median(each[1] for each in touches)
        rows.append(f"| {what} | **{microseconds:,.0f}** | {calls:.0f} |")
    return rows


def section(tables: int, files: int) -> str:
    """Return what the page says."""
    folder = Path(tempfile.mkdtemp(prefix="lockstep-adopt-"))
    try:
        make(folder / "warehouse", tables, files)
        rows = steps(folder / "warehouse", folder / "lake", tables)
        touches = first_touches(folder / "touched", files)
    finally:
        shutil.rmtree(folder)
    table, touched = "\n".join(rows), "\n".join(touches)
    return f"""## Adopting a warehouse

{tables} tables outside of the root, with {tables * files:,} files in all, {COMMITS} commits each, a checkpoint,
on a local disk, without Spark (`make bench-adopt`); single runs, 2 cores with a load of {os.getloadavg()[0]:.0f}.
*Requests* are calls of the store.
To find tables below a folder is one listing of all that is in it, on S3 a request for each thousand files; to adopt by
name needs none. No data file is read.

| step | seconds | requests |
|---|---|---|
{table}

### What it costs a statement to see plain writers' commits

The cost of detection, per statement: what the first use of a table in a transaction asks the store, so that commits of
plain Delta writers are seen. The table has {files:,} files (`make bench-adopt`, too; medians of 200). Where there is
such a commit, a new database version is made for it, and none of the table's data is read. A statement that is a
transaction of its own has such a first use of each of its tables.

| first use of a table, since the last one | microseconds | requests |
|---|---|---|
{touched}
"""


def main() -> None:
    """Measure, print, and write the section if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--files", type=int, default=1000, help="of each table")
    parser.add_argument("--write", action="store_true", help="put the section into docs/benchmarks.md")
    args = parser.parse_args()
    text = section(args.tables, args.files)
    print(text)
    if args.write:
        DOCUMENT.write_text(with_section(DOCUMENT.read_text(encoding="utf-8"), MARK, text), encoding="utf-8")


if __name__ == "__main__":
    main()
