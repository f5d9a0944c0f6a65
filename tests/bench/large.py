"""`make bench-large`: tables of thousands of small files, against plain Delta; in docs/benchmarks.md.

    python -m tests.bench.large SIDE FOLDER LAID SETTINGS

is one of the processes that take turns: plain Delta, Lockstep, and Lockstep that keeps the state of larger tables in
the driver (`lockstep.driver_state_files`). Each table is laid as one commit of plain Delta, of files of four rows.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from tests.support.child import Child, Parent

MARK = "large"
TABLES = ("inserted", "updated", "merged")
ROWS = 4
"""Rows of each file."""

ADDS = "adds"
"""The file beside the data files that has the lines of their commit."""

WORKS = {
    "transaction": "BEGIN, INSERT + UPDATE + MERGE over three tables, COMMIT",
    "update after": "autocommitted UPDATE of a table just written by a transaction",
    "point": "one row, found by its id",
}
SIDES = {"plain": 0, "lockstep": None, "lockstep-kept": 100_000}
"""The processes, and what each sets `lockstep.driver_state_files` to; None: nothing."""


# --- one side ---------------------------------------------------------------------------------------------------------


def lay_files(folder: Path, files: int) -> None:
    """Write the data files of a table, file n with the ids from n * ROWS on, and what its commit says of them."""
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir(parents=True)
    lines = []
    for number in range(files):
        first, name = number * ROWS, f"part-{number:05}-{number:032x}-c000.snappy.parquet"
        ids = pa.array(range(first, first + ROWS), pa.int64())
        parquet.write_table(pa.table({"id": ids, "text": ["x"] * ROWS}), folder / name)
        bounds = {"minValues": {"id": first}, "maxValues": {"id": first + ROWS - 1}}
        stats = json.dumps({"numRecords": ROWS, **bounds, "nullCount": {"id": 0, "text": 0}})
        size = (folder / name).stat().st_size
        about = {"path": name, "size": size, "partitionValues": {}, "modificationTime": 0, "dataChange": True}
        lines.append(json.dumps({"add": {**about, "stats": stats}}) + "\n")
    (folder / ADDS).write_text("".join(lines))


def lay_table(folder: Path, laid: Path) -> None:
    """Make a table of such files, which are never written again, as one commit of plain Delta."""
    shutil.copytree(laid, folder, copy_function=os.link, ignore=shutil.ignore_patterns(ADDS))
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in (("id", "long"), ("text", "string"))]
    schema = json.dumps({"type": "struct", "fields": fields})
    described = {"id": folder.name, "format": {"provider": "parquet", "options": {}}, "schemaString": schema}
    lines = [
        {"commitInfo": {"timestamp": 0, "operation": "WRITE", "operationParameters": {}}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {**described, "partitionColumns": [], "configuration": {}, "createdTime": 0}},
    ]
    head = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "_delta_log").mkdir()
    (folder / "_delta_log" / f"{0:020d}.json").write_text(head + (laid / ADDS).read_text())


class Workload:
    """The same statements on all sides; where plain Delta has no transaction, its statements alone."""

    def __init__(self, spark: Any, side: str, folder: Path, laid: Path) -> None:
        self._spark, self._is_lockstep = spark, side != "plain"
        self._rows = ROWS * sum(1 for _ in laid.glob("part-*"))
        self._round = 0
        folder.mkdir()
        for table in TABLES:
            lay_table(folder / table, laid)
            if self._is_lockstep:
                self._sql(f"CALL lake.system.adopt(table => '{table}', location => '{folder / table}')")
            else:
                self._sql(f"CREATE TABLE {table} USING delta LOCATION '{folder / table}'")
        self.works: dict[str, Callable[[], None]] = {
            "transaction": self._transaction,
            "update after": lambda: self._update("updated"),
            "point": lambda: self._sql(f"SELECT text FROM merged WHERE id = {self._id()}"),
        }

    def _sql(self, text: str) -> None:
        self._spark.sql(text).collect()

    def _id(self) -> int:
        self._round += 1
        return (self._round * 997) % self._rows

    def _update(self, table: str) -> None:
        self._sql(f"UPDATE {table} SET text = 'u{self._round}' WHERE id = {self._id()}")

    def _transaction(self) -> None:
        if self._is_lockstep:
            self._sql("BEGIN")
        self._sql(f"INSERT INTO inserted VALUES ({self._rows + self._id()}, 'new')")
        self._update("updated")
        self._sql(
            f"MERGE INTO merged t USING (SELECT {self._id()}L AS id) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET text = 'm' WHEN NOT MATCHED THEN INSERT (id, text) VALUES (s.id, 'm')"
        )
        if self._is_lockstep:
            self._sql("COMMIT")


def work(side: str, folder: str, laid: str, settings: dict[str, str]) -> None:
    """Do what is asked for until the input ends, and say how many milliseconds it took."""
    from tests.bench.side import start
    from tests.support.plain import check_plain

    parent = Parent()
    spark = start("plain" if side == "plain" else "lockstep", folder, settings)
    if side != "plain":
        spark.sql("USE lake")
        if (limit := SIDES[side]) is not None:
            spark.sql(f"SET lockstep.driver_state_files = {limit}")
    workload = Workload(spark, side, Path(folder) / "tables", Path(laid))
    parent.say("ready")
    for name in parent.requests():
        began = time.perf_counter()
        workload.works[name]()
        spent_ms = (time.perf_counter() - began) * 1000
        if side == "plain":
            check_plain()
        parent.say(spent_ms)


# --- all of them ------------------------------------------------------------------------------------------------------


def measure(folder: Path, files: int, repeats: int) -> dict[str, dict[str, list[float]]]:
    """Let the sides take turns, after two rounds that do not count; milliseconds by work and side."""
    from tests.bench.__main__ import ALWAYS, SETTINGS
    from tests.support.plain import plain_settings

    found: dict[str, dict[str, list[float]]] = {name: {side: [] for side in SIDES} for name in WORKS}
    lay_files(folder / "laid", files)
    with ExitStack() as running:
        children = {}
        for side in SIDES:
            (folder / side).mkdir(parents=True)
            said = {**ALWAYS, **SETTINGS["Delta's and Spark's defaults"]}
            said |= plain_settings(folder / side) if side == "plain" else {}
            child = Child("tests.bench.large", side, str(folder / side), str(folder / "laid"), json.dumps(said))
            children[side] = running.enter_context(closing(child))
            assert child.answer() == "ready"
        for number in range(-2, repeats):
            for name, times in found.items():
                order = list(children.items())
                for side, child in order if number % 2 else reversed(order):
                    spent = child.ask(name)
                    if number >= 0:
                        times[side].append(spent)
    return found


def section(found: Mapping[int, Mapping[str, Mapping[str, Sequence[float]]]], repeats: int) -> str:
    """Return the section's text, given what was measured with how many files."""
    from tests.bench.page import conditions, paragraph

    rows = []
    for files, works in found.items():
        for name, of in works.items():
            plain, ours, kept = (of[side] for side in SIDES)
            cells = [f"{statistics.median(each):.0f}" for each in (ours, kept, plain)]
            rows.append(
                f"| {files:,} | {WORKS[name]} | {' | '.join(cells)} | {_ratio(ours, plain)} | {_ratio(kept, plain)} |"
            )
    return "\n".join([
        "## Tables of many files",
        "",
        paragraph(f"""
            Tables of so many files of {ROWS} rows each, a process for each column, in turn, on a local disk with
            Delta's and Spark's defaults (`make bench-large`, `local[2]`; {repeats} repeats, medians, and
            those of the paired ratios with quartiles; {conditions()}). By default the driver keeps no state of a table
            that has more than 10,000 files and tombstones; *kept* has
            `lockstep.driver_state_files = {SIDES["lockstep-kept"]}`.
        """),
        "",
        "| files | | Lockstep, ms | … kept | plain Delta, ms | Lockstep / plain | kept / plain |",
        "|---|---|---|---|---|---|---|",
        *rows,
    ])  # fmt: skip


def _ratio(some: Sequence[float], others: Sequence[float]) -> str:
    low, middle, high = statistics.quantiles((a / b for a, b in zip(some, others, strict=True)), n=4)
    return f"**{middle:.2f}** ({low:.2f}-{high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.large", description=__doc__)
    parser.add_argument("--files", type=int, nargs="+", default=[5_000, 20_000])
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--no-write", action="store_true", help="print only; leave docs/benchmarks.md as it is")
    args = parser.parse_args()
    from tests.bench.page import DOCUMENT, with_section

    folder = Path(tempfile.mkdtemp(prefix="lockstep-bench-"))
    try:
        found = {}
        for files in args.files:
            found[files] = measure(folder / str(files), files, args.repeats)
            print(section(found, args.repeats), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not args.no_write:
        text = section(found, args.repeats)
        DOCUMENT.write_text(with_section(DOCUMENT.read_text(encoding="utf-8"), MARK, text), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) == 5 and not sys.argv[1].startswith("-"):
        work(sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4]))
    else:
        main()
