"""`python -m tests.bench.recovery`: what it costs to restore, undrop, tag and compare; in docs/benchmarks.md.

The restores run in Spark, in a process for Lockstep and one for plain Delta, which has never loaded Lockstep, and in
one more in which Lockstep's requests are counted. The rest
is metadata alone, and needs no Spark: there requests to the store are counted.

    python -m tests.bench.recovery --side {lockstep | plain | counted} --table FOLDER --settings …     one of them
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from tests.support.plain import check_plain, plain_spark

MARK = "recovery"
FILES = 10_000
VERSIONS = 1_000

Measured: TypeAlias = "dict[str, tuple[float, Counter[str], float]]"
"""The median seconds, the requests, and the MiB of memory, of each kind of work."""

Restored: TypeAlias = "dict[str, tuple[list[float], float, Counter[str]]]"
"""The seconds of each restore, the MiB that the driver had at most, and Lockstep's requests, of each side.

Requests are counted in a run of their own, `counted`, since the host has to be in the same process for that.
"""


# --- in Spark ---------------------------------------------------------------------------------------------------------


def lay_table(folder: Path, files: int) -> None:
    """Write a table of so many files of one row, all of the same content, as one commit of plain Delta."""
    import pyarrow as pa
    from pyarrow import parquet

    from lockstep.delta.actions import render
    from lockstep.delta.log import LOG
    from tests.support.lakes import NEW_TABLE, add

    (folder / LOG).mkdir(parents=True)
    parquet.write_table(pa.table({"id": pa.array([1], pa.int64())}), folder / "template")
    data = (folder / "template").read_bytes()
    (folder / "template").unlink()
    names = [f"part-{number:05}-{number:032x}-c000.snappy.parquet" for number in range(files)]
    for name in names:
        (folder / name).write_bytes(data)
    adds = [add(name, size=len(data)) for name in names]
    (folder / LOG / f"{0:020d}.json").write_bytes(render([{"commitInfo": {"operation": "WRITE"}}, *NEW_TABLE, *adds]))


def side(which: str, settings: dict[str, str], table: str, files: int, repeats: int) -> None:
    """Print how long each restore took of a table whose files all were removed, the driver's memory, and requests."""
    stores = _counting() if which == "counted" else []
    if which == "plain":
        spark = plain_spark(settings)
    else:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder
        for key, value in settings.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        if which == "counted":
            import lockstep

            lockstep.attach(spark)
        spark.sql("USE lake")
    if which == "plain":
        spark.sql(f"CREATE TABLE many USING delta LOCATION '{table}'")
    else:
        spark.sql(f"CALL lake.system.adopt(table => 'many', location => '{table}')")
    seconds, requests = [], Counter[str]()
    for number in range(repeats):
        spark.sql("DELETE FROM many").collect()
        version = 2 * number if which == "plain" else 1 + 2 * number
        for store in stores:
            store.calls.clear()
        began = time.perf_counter()
        if which == "plain":
            spark.sql(f"RESTORE TABLE many TO VERSION AS OF {version}").collect()
        else:
            spark.sql(f"RESTORE DATABASE lake TO VERSION {version}").collect()
        seconds.append(time.perf_counter() - began)
        requests = Counter(operation for store in stores for operation, _ in store.calls)
        assert spark.table("many").count() == files
    if which == "plain":
        check_plain()
    status = Path(f"/proc/{spark._jvm.java.lang.ProcessHandle.current().pid()}/status").read_text()
    peak = next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))
    print(json.dumps([seconds, peak, requests]), flush=True)
    spark.stop()


def _counting() -> list[Any]:
    """Have all stores that are opened from now on say what was asked of them, and return those that were."""
    from unittest.mock import patch

    from lockstep.storage import open_storage
    from tests.support.faulty import FaultyStorage

    stores: list[FaultyStorage] = []

    def opened(*arguments: Any, **options: Any) -> FaultyStorage:
        stores.append(FaultyStorage(open_storage(*arguments, **options)))
        return stores[-1]

    patch("lockstep.catalog.open_storage", opened).start()
    return stores


def restores(which: str, files: int, repeats: int) -> tuple[list[float], float, Counter[str]]:
    """Run one side in a process of its own."""
    import lockstep
    from tests.support.plain import plain_settings

    folder = Path(tempfile.mkdtemp(prefix="lockstep-bench-"))
    lay_table(folder / "many", files)
    ours = plain_settings(folder) if which == "plain" else lockstep.conf(root=str(folder / "lake"))
    ours["spark.lockstep.python"] = sys.executable
    settings = {**ours, "spark.master": "local[2]", "spark.driver.memory": "3g", "spark.ui.enabled": "false"}
    command = [sys.executable, "-m", "tests.bench.recovery", "--side", which, "--files", str(files)]
    command += ["--table", str(folder / "many"), "--repeats", str(repeats), "--settings", json.dumps(settings)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    seconds, peak, requests = json.loads(done.stdout.splitlines()[-1])
    shutil.rmtree(folder)
    return seconds, peak, Counter(requests)


# --- without Spark ----------------------------------------------------------------------------------------------------


class Metadata:
    """A lake of many versions, asked by a process that has just opened it."""

    def __init__(self, versions: int) -> None:
        from lockstep.storage import open_storage
        from tests.support.lakes import append, create, named, open_catalog

        self._root = tempfile.mkdtemp(prefix="lockstep-bench-") + "/lake"
        self.catalog = open_catalog(open_storage(self._root, create=True))
        create(self.catalog, *(f"t{number}" for number in range(10)), files=["p"])
        for number in range(versions - 2):
            append(self.catalog, f"t{number % 9}", f"f{number}")
        self.catalog.run(lambda tx: tx.changing().drop_table(named("t9")))
        self.catalog.lake.upkeep.settle()
        self.version = self.catalog.timeline.head.version

    def measure(self, work: Callable[[Any], object], *, memory: bool = False) -> tuple[float, Counter[str], float]:
        """Return the seconds, the requests and the MiB of something, the opening of the lake not among them.

        Args:
            memory: whether to count what Python's objects took at most, which takes time; else it is 0.
        """
        from lockstep.storage import open_storage
        from tests.support.faulty import FaultyStorage
        from tests.support.lakes import open_catalog

        store = FaultyStorage(open_storage(self._root))
        catalog = open_catalog(store)
        catalog.database()
        before = Counter(operation for operation, _ in store.calls)
        if memory:
            tracemalloc.start()
        began = time.perf_counter()
        work(catalog)
        seconds = time.perf_counter() - began
        peak = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        return seconds, Counter(operation for operation, _ in store.calls) - before, peak


def metadata(versions: int, repeats: int) -> Measured:
    """Measure what needs no Spark."""
    from lockstep.recovery.changes import undrop
    from lockstep.recovery.diff import diff
    from lockstep.recovery.row_changes import VersionRange, commits_between
    from lockstep.recovery.tags import new_tag
    from tests.support.lakes import named

    lake = Metadata(versions)
    table = lake.catalog.database().tables[named("t0")].id
    names = iter(range(1_000_000))

    def tag(catalog: Any) -> None:
        ddl = new_tag(f"tag{next(names)}", version=None, days=None, comment="", now=catalog.lake.clock())
        catalog.run(lambda tx: tx.changing().create_tag(ddl))

    def bring_back(catalog: Any) -> None:
        catalog.run(lambda tx: undrop(catalog.lake, tx, named("t9")))
        lake.catalog.database()

    def drop() -> None:
        lake.catalog.run(lambda tx: tx.changing().drop_table(named("t9")))

    works: dict[str, Callable[[Any], object]] = {
        f"`diff` over {versions:,} versions": lambda catalog: diff(catalog.timeline, 0, lake.version),
        f"which commits of a table, of {versions:,} versions": lambda catalog: commits_between(
            catalog.timeline, table, VersionRange(0, lake.version)
        ),
        "`CREATE TAG`": tag,
        "`UNDROP TABLE`": bring_back,
    }
    measured: Measured = {}
    for name, work in works.items():
        runs = []
        for number in range(repeats + 1):
            runs.append(lake.measure(work, memory=number == repeats))
            if work is bring_back:
                drop()
        seconds = statistics.median(each[0] for each in runs[:-1])
        measured[name] = (seconds, runs[-2][1], runs[-1][2])
    return measured


def report(files: int, times: Restored, measured: Measured) -> str:
    """Return the section's text; without times of restores, that of the rest alone."""
    rows = [
        f"| {name} | {seconds * 1000:.0f} | {mib:.1f} | {_counted(requests)} |"
        for name, (seconds, requests, mib) in measured.items()
    ]
    return "\n".join([
        "## What was, brought back",
        "",
        *(_restores(files, times) if times else []),
        "Metadata alone, in a process that has just opened the lake, without Spark, on a local disk",
        "(`make bench-recovery`; medians of a few runs, the requests of one, and what Python's objects took at most):",
        "",
        "| | ms | MiB | requests to the store |",
        "|---|---|---|---|",
        *rows,
    ])  # fmt: skip


def _counted(requests: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(requests.items()))


def _restores(files: int, times: Restored) -> list[str]:
    ours, plain = (statistics.median(times[which][0]) for which in ("lockstep", "plain"))
    runs, load, requests = len(times["plain"][0]), os.getloadavg()[1], _counted(times["counted"][2])
    return [
        f"A table of {files:,} files, all of which a `DELETE` removed, comes back ({runs} times in one driver of",
        f"each, the two after each other, medians; {os.cpu_count()} cores with a load of {load:.0f}). Both look for",
        "every file. Memory is what the driver's process had at most; its heap may have 3 GB. Requests are those that",
        "Lockstep itself makes, in a run of its own; Delta's own come on top on both sides.",
        "",
        "| | seconds | MiB | requests to the store |",
        "|---|---|---|---|",
        f"| `RESTORE DATABASE`, Lockstep | {ours:.1f} | {times['lockstep'][1]:,.0f} | {requests} |",
        f"| `RESTORE TABLE`, plain Delta | {plain:.1f} | {times['plain'][1]:,.0f} | |",
        f"| ratio | **{ours / plain:.2f}** | | |",
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.recovery", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--versions", type=int, default=VERSIONS)
    parser.add_argument("--no-spark", action="store_true", help="leave the restores out")
    parser.add_argument("--no-write", action="store_true", help="print only; leave docs/benchmarks.md as it is")
    parser.add_argument("--table", help=argparse.SUPPRESS)
    parser.add_argument("--side", choices=["lockstep", "plain", "counted"], help=argparse.SUPPRESS)
    parser.add_argument("--settings", type=json.loads, default={}, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        side(args.side, args.settings, args.table, args.files, args.repeats)
        return
    measured = metadata(args.versions, args.repeats)
    print(measured, flush=True)
    repeats = {} if args.no_spark else {"lockstep": args.repeats, "plain": args.repeats, "counted": 1}
    times = {which: restores(which, args.files, times) for which, times in repeats.items()}
    print(times, flush=True)
    text = report(args.files, times, measured)
    if not args.no_write:
        from tests.bench.page import DOCUMENT, with_section

        DOCUMENT.write_text(with_section(DOCUMENT.read_text(), MARK, text))
    print(text)


if __name__ == "__main__":
    main()
