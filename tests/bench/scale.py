"""`python -m tests.bench.scale`: what a long timeline and a large catalog cost, without Spark; in docs/benchmarks.md.

"From all entries" is the same lake without its checkpoints, as Lockstep opened every lake before it had any.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from immutables import Map

from lockstep.storage import Storage, open_storage
from lockstep.timeline.checkpoint import Checkpoints
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Entry
from lockstep.timeline.files import File, encode, entry_path
from lockstep.timeline.fold import apply
from lockstep.timeline.hint import Hint, write_hint
from lockstep.timeline.log import Timeline
from lockstep.timeline.manifest import FOLDER, KINDS
from lockstep.timeline.parts import NewPart, cut
from lockstep.timeline.state import State, maps_of
from tests.bench.page import DOCUMENT, with_section
from tests.support.entries import entry
from tests.support.histories import create, name, write

MARK = "scale"
SINCE = 50
"""Entries since the newest checkpoint, which is half of the interval's hundred."""

STRIDE = 7_919
"""A prime: tables are written in turn, and the next one is far away in the order of names."""


def make(store: Storage, tables: int, count: int) -> None:
    """Write a lake: version 1 makes the tables, each later one writes one; checkpoints near the middle and the end."""
    root = Path(store.url.removeprefix("file://"))
    (root / entry_path(0)).parent.mkdir(parents=True)
    database: Database | None = None
    for version in range(count + 1):
        made = _entry(version, tables)
        data = encode(made)
        (root / entry_path(version)).write_bytes(data)  # not flushed: a hundred thousand flushes take an hour
        database = apply(database, made)
        if version in (max(1, count - SINCE), max(1, count // 2 - SINCE)):
            Checkpoints(store).write(State(database, Map()), File(version, data, [made]))
    write_hint(store, Hint(version=count, published_through=count, checkpoint=max(1, count - SINCE)))


def _entry(version: int, tables: int) -> Entry:
    if version == 0:
        return entry(0)
    if version == 1:
        names = [f"t{n}" for n in range(tables)]
        return entry(
            1,
            tables=[create(each, f"id-{each}") for each in names],
            writes=[write(-1, 0, each, f"id-{each}") for each in names],
        )
    number, before = (version - 2) * STRIDE % tables, (version - 2) // tables
    return entry(version, writes=[write(before, before + 1, f"t{number}", f"id-t{number}")])


def seconds(act: Callable[[], object], repeats: int) -> float:
    """Return the median of some runs."""
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        act()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def sizes(state: State) -> list[int]:
    """Return the bytes of each part that a first checkpoint would have."""
    maps = maps_of(state)
    found = (part for name, kind in KINDS.items() for part in cut(kind, maps[name], lambda *_: False))
    return [len(part.data) for part in found if isinstance(part, NewPart)]


def open_and_load(store: Storage) -> Timeline:
    """Open a lake and look one table up."""
    timeline = Timeline.open(store)
    timeline.head.tables[name("t42")]
    return timeline


def traced(act: Callable[[], object]) -> int:
    """Return the bytes that are in use while what is made lives."""
    tracemalloc.start()
    try:
        made = act()
        used, _ = tracemalloc.get_traced_memory()
        del made
    finally:
        tracemalloc.stop()
    return used


def measured(tables: int, count: int, repeats: int) -> str:
    """Return the row of a lake."""
    root = tempfile.mkdtemp(prefix="lockstep-scale-")
    try:
        store = open_storage(root)
        make(store, tables, count)
        opened = seconds(lambda: open_and_load(store), repeats)
        memory = traced(lambda: open_and_load(store))
        timeline = Timeline.open(store)
        older = seconds(lambda: Timeline.open(store).at(count // 2), 1)
        head, after = timeline.head, _entry(count + 1, tables)
        commit = seconds(lambda: apply(head, after), 101)
        parts = sizes(State(head, Map()))
        shutil.rmtree(Path(root, FOLDER))
        write_hint(store, Hint(version=count, published_through=count))
        without = seconds(lambda: Timeline.open(store), 1)
    finally:
        shutil.rmtree(root)
    return (
        f"| {count:,} | {tables:,} | **{opened * 1e3:.0f}** | {memory / 2**20:.1f} | {without * 1e3:.0f} "
        f"| {older * 1e3:.0f} | {commit * 1e6:.0f} | {len(parts)}, {sum(parts) / 2**20:.2f} |"
    )


def section(repeats: int, lakes: list[tuple[int, int]]) -> str:
    """Return what the page says."""
    rows = "\n".join(measured(tables, count, repeats) for count, tables in lakes)
    return f"""## A long timeline, a large catalog

The metadata path alone, on a local disk, without Spark (`make bench-scale`). *Open* opens the lake, from a
checkpoint and {SINCE} entries since, each of which wrote another table, far from the one before, and looks one table
up; *memory* is what Python has in use then. *From all entries* is the same lake without its checkpoints, opened;
*half-way* opens the lake and reads the version in the middle, {SINCE} entries after another checkpoint. *Apply* is what
a commit to one table does to the database in memory. The first and the last time are medians, the others single runs;
2 cores with a load of {os.getloadavg()[0]:.0f}.

| versions | tables | open, ms | memory, MiB | from all entries, ms | half-way, ms | apply, µs | checkpoint parts, MiB |
|---|---|---|---|---|---|---|---|
{rows}"""


def main() -> None:
    """Measure, print, and write the section if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--small", action="store_true", help="only the smallest lake of each kind")
    parser.add_argument("--write", action="store_true", help="put the section into docs/benchmarks.md")
    args = parser.parse_args()
    lakes = [(1_000, 100), (10_000, 100), (100_000, 100), (1_000, 10_000), (1_000, 100_000)]
    text = section(args.repeats, lakes[:1] if args.small else lakes)
    print(text)
    if args.write:
        DOCUMENT.write_text(with_section(DOCUMENT.read_text(encoding="utf-8"), MARK, text), encoding="utf-8")


if __name__ == "__main__":
    main()
