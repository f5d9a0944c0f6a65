"""`python -m tests.bench.tables`: what writing without Spark costs, beside deltalake's own; in docs/benchmarks.md."""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

import lockstep
from tests.bench.page import DOCUMENT, conditions, with_section

MARK = "tables"
BOUND_MS = 50
"""A transaction that appends 1,000 rows to each of two tables takes no longer, in the middle."""
BOUND_RATIO = 0.8
"""An append of 1,000,000 rows is no slower than this, of deltalake's own speed, by the time of the cores."""


def rows(count: int) -> pa.Table:
    """Return rows of some types: a key, a text of many values and one of few, a number, a day, a time."""
    numbers = pa.arange(0, count)
    return pa.table(
        {
            "id": numbers,
            "name": pc.binary_join_element_wise("customer", numbers.cast(pa.string()), "-"),
            "kind": pa.array(["small", "large", "odd"]).take(
                pc.subtract(numbers, pc.multiply(pc.divide(numbers, 3), 3))
            ),
            "amount": pc.multiply(numbers.cast(pa.float64()), 1.25),
            "day": pc.add(pc.divide(numbers, 1000), 19000).cast(pa.int32()).cast(pa.date32()),
            "at": pc.multiply(numbers, 1_000_003).cast(pa.timestamp("us", "UTC")),
        }
    )


@contextmanager
def folder() -> Iterator[Path]:
    """Return a folder that goes with the block."""
    path = Path(tempfile.mkdtemp(prefix="lockstep-tables-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


class Took(NamedTuple):
    """What something takes: seconds of the clock, and of all the processor's cores."""

    clock: float
    cpu: float


def took(act: Callable[[], object]) -> Took:
    """Return what something takes."""
    began = Took(time.perf_counter(), time.process_time())
    act()
    return Took(time.perf_counter() - began.clock, time.process_time() - began.cpu)


def two_tables(repeats: int) -> list[float]:
    """Return the seconds of transactions that append 1,000 rows to each of two tables, the first ones left out."""
    data = rows(1000)
    with folder() as root:
        lake = lockstep.open(str(root), create=True)
        with lake.transaction() as tx:
            for name in ("a", "b"):
                tx.create(name, data.schema)

        def append() -> None:
            with lake.transaction() as tx:
                tx["a"].append(data)
                tx["b"].append(data)

        seconds = [took(append).clock for _ in range(repeats + 3)][3:]
        lake.catalog.lake.upkeep.settle()
        return seconds


def side_by_side(repeats: int) -> list[tuple[Took, Took]]:
    """Return what appends of 1,000,000 rows take, ours and deltalake's, in turn; the first pair left out."""
    data = rows(1_000_000)
    pairs = []
    with folder() as root:
        lake = lockstep.open(str(root / "lake"), create=True)
        with lake.transaction() as tx:
            tx.create("t", data.schema)
        plain = str(root / "plain")
        write_deltalake(plain, data.schema.empty_table())

        def ours() -> None:
            with lake.transaction() as tx:
                tx["t"].append(data)

        for number in range(repeats + 1):
            acts: list[Callable[[], object]] = [ours, lambda: write_deltalake(plain, data, mode="append")]
            seconds = [took(act) for act in (acts if number % 2 else acts[::-1])]
            pairs.append((seconds[0], seconds[1]) if number % 2 else (seconds[1], seconds[0]))
        lake.catalog.lake.upkeep.settle()
    return pairs[1:]


MERGED_ROWS = 10_000
"""So many rows are merged into 1,000,000: half of them change a row, half are new."""


def merged_rows(number: int, there: int) -> pa.Table:
    """Return rows to merge: of keys that lie all over the table, and of new ones behind them.

    Args:
        number: which merge it is, from 0.
        there: how many rows the table had at first.
    """
    half = MERGED_ROWS // 2
    old = pc.add(pc.multiply(pa.arange(0, half), there // half), number)
    new = pa.arange(there + number * half, there + (number + 1) * half)
    data = rows(MERGED_ROWS)
    return data.set_column(0, "id", pa.concat_arrays([old, new]))


def merges(repeats: int, count: int = 1_000_000) -> dict[str, list[Took]]:
    """Return what merges of `MERGED_ROWS` take, each into a table of its own: ours by vectors and without, deltalake's.

    All three take turns, and merge the same rows; the first of each is left out.
    """
    data = rows(count)
    seconds: dict[str, list[Took]] = {}
    with folder() as root:
        lake = lockstep.open(str(root / "lake"), create=True)
        with lake.transaction() as tx:
            tx.create("vectors", data.schema, properties={"delta.enableDeletionVectors": "true"}).append(data)
            tx.create("files", data.schema).append(data)
        plain = str(root / "plain")
        write_deltalake(plain, data)

        def ours(name: str, source: pa.Table) -> None:
            with lake.transaction() as tx:
                merge = tx[name].merge(source, on="id")
                merge.when_matched_update_all().when_not_matched_insert_all().execute()

        def theirs(source: pa.Table) -> None:
            merge = DeltaTable(plain).merge(source, "target.id = source.id", "source", "target")
            merge.when_matched_update_all().when_not_matched_insert_all().execute()

        for number in range(repeats + 1):
            source = merged_rows(number, count)
            acts: dict[str, Callable[[], object]] = {
                "vectors": partial(ours, "vectors", source),
                "files": partial(ours, "files", source),
                "deltalake": partial(theirs, source),
            }
            for name in (*acts,) if number % 2 else (*acts,)[::-1]:
                seconds.setdefault(name, []).append(took(acts[name]))
        lake.catalog.lake.upkeep.settle()
        expected = count + (repeats + 1) * (MERGED_ROWS // 2)
        counted = [lake.at()["vectors"].to_arrow(["id"]), lake.at()["files"].to_arrow(["id"])]
        counted.append(pa.table(DeltaTable(plain).scan(columns=["id"])))
        if any(each.num_rows != expected for each in counted):
            raise SystemExit(f"the merges came to {[each.num_rows for each in counted]} rows, not to {expected}")
    return {name: each[1:] for name, each in seconds.items()}


def quartiles(values: Sequence[float]) -> str:
    """Return the median and the quartiles."""
    low, middle, high = quantiles(values, n=4)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def both(values: Sequence[Took], unit: str = "") -> str:
    """Return what was measured by the clock, and by the cores."""
    by_clock, by_cores = quartiles([each.clock for each in values]), quartiles([each.cpu for each in values])
    return f"{by_clock}{unit}; of cores {by_cores}{unit}"


def section(small: Sequence[float], large: Sequence[tuple[Took, Took]], merged: Mapping[str, Sequence[Took]]) -> str:
    """Return what the page says."""
    ours, theirs = ([pair[side] for pair in large] for side in (0, 1))
    speeds = [Took(other.clock / mine.clock, other.cpu / mine.cpu) for mine, other in large]
    return f"""## Tables without Spark

On a local disk, medians with quartiles (`make bench-python`), {conditions()}. Rows have a key, two texts, a number, a
day and a time. Lockstep's files are on the disk when a transaction commits; deltalake leaves that to the system. Both
take turns in one process, and the bound is for the time of the cores, which does not tell how busy they were.

| | |
|---|---|
| a transaction that appends 1,000 rows to each of two tables | {quartiles([each * 1000 for each in small])} ms |
| append of 1,000,000 rows, Lockstep | {both(ours, " s")} |
| append of 1,000,000 rows, deltalake's `write_deltalake` | {both(theirs, " s")} |
| Lockstep's speed as a part of deltalake's, pair by pair | {both(speeds)} |
| MERGE of 10,000 rows into 1,000,000, half of them new, Lockstep by vectors | {both(merged["vectors"], " s")} |
| the same, Lockstep without vectors: files anew | {both(merged["files"], " s")} |
| the same, deltalake's `merge`: files anew | {both(merged["deltalake"], " s")} |
"""


def main() -> None:
    """Measure, print, and write the section if asked; a bound that is not kept is an error in the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--write", action="store_true", help="put the section into docs/benchmarks.md")
    args = parser.parse_args()
    small, large = two_tables(args.repeats * 3), side_by_side(args.repeats)
    text = section(small, large, merges(args.repeats))
    print(text)
    if args.write:
        DOCUMENT.write_text(with_section(DOCUMENT.read_text(encoding="utf-8"), MARK, text), encoding="utf-8")
    speed = median(theirs.cpu / ours.cpu for ours, theirs in large)
    if median(small) * 1000 > BOUND_MS or speed < BOUND_RATIO:
        raise SystemExit(f"bounds: {BOUND_MS} ms for two tables, and {BOUND_RATIO} of deltalake's speed")


if __name__ == "__main__":
    main()
