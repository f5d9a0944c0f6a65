"""`python -m tests.bench.slow`: threads of one process that commit on a slow store, against one; in docs/benchmarks.md.

Its section stands between two comments, which `tests.bench` keeps when it writes the page anew.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from lockstep.storage import Storage, open_storage
from tests.bench.appending import Run, append, entry_files, median, side_by_side
from tests.bench.bounds import Bound, exit_if_missed
from tests.bench.page import DOCUMENT, with_section
from tests.support.faulty import FaultyStorage, Operation
from tests.support.lakes import create, open_catalog

MARK = "slow"
REQUEST_SECONDS = 0.03
WRITERS = 16
BOUND = 10
"""So many times as many commits a second as one thread, 16 threads are to make on tables of their own."""

T = TypeVar("T")


class Slow(FaultyStorage):
    """Takes so long for each request, once it is asked to; as many as one likes at a time."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.seconds = 0.0

    def _run(self, operation: Operation, path: str, call: Callable[[], T]) -> T:
        if self.seconds:
            time.sleep(self.seconds)
        return super()._run(operation, path, call)


def measure(writers: int, commits: int, *, shared: bool) -> Run:
    """Have threads commit one after the other, each as often, to a table of its own or to one that all share."""
    store = Slow(open_storage(tempfile.mkdtemp(prefix="lockstep-bench-") + "/lake", create=True))
    catalog = open_catalog(store)
    create(catalog, *(f"t{writer}" for writer in range(writers)))
    catalog.lake.upkeep.settle()
    seconds: list[float] = []
    before = entry_files(store.inner)

    def work(writer: int) -> None:
        table = f"t{0 if shared else writer}"
        seconds.extend(append(catalog, store.inner, table, f"{writer}-{number}") for number in range(commits))

    store.seconds = REQUEST_SECONDS
    total = side_by_side(writers, work)
    store.seconds = 0
    catalog.lake.upkeep.settle()
    count = writers * commits
    assert catalog.timeline.head.version == count + 1
    return Run(count / total, statistics.median(seconds) * 1000, count / (entry_files(store.inner) - before))


def report(runs: Mapping[str, Sequence[Run]]) -> tuple[str, float]:
    """Return the section's text, and how many times as many commits a second there are on tables of their own."""
    [alone, *_] = runs.values()
    rows, ratios = [], []
    for name, each in runs.items():
        paired = [run.rate / one.rate for run, one in zip(each, alone, strict=True)]
        ratios.append(statistics.median(paired))
        rows.append(
            f"| {name} | {median(each, 'rate'):.1f} | **{ratios[-1]:.1f}** | {median(each, 'commit_ms'):.0f} | "
            f"{median(each, 'per_file'):.1f} |"
        )
    text = "\n".join([
        "## Many threads on a slow store",
        "",
            "Threads of one process, each `BEGIN`, an append of one file, `COMMIT`, one after the other, on a store",
            f"that takes {REQUEST_SECONDS * 1000:.0f} ms for each request (`make bench-slow`; {len(alone)} runs in",
            f"turn, medians). The goal for tables of their own is {BOUND} times the commits of one thread",
            "([group commit](design.md#commit)); of one table, whose log takes one after the other, there is none.",
        "",
        "| | commits/s | times one thread | COMMIT, ms | commits a file of the timeline |",
        "|---|---|---|---|---|",
        *rows,
    ])  # fmt: skip
    return text, ratios[1]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.slow", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--commits", type=int, default=12)
    parser.add_argument("--no-write", action="store_true", help="print only; leave docs/benchmarks.md as it is")
    args = parser.parse_args()
    cases = {
        "one thread": (1, False),
        f"{WRITERS} threads, a table each": (WRITERS, False),
        f"{WRITERS} threads, one table": (WRITERS, True),
    }
    runs: dict[str, list[Run]] = {name: [] for name in cases}
    for _ in range(args.repeats):
        for name, (writers, shared) in cases.items():
            runs[name].append(measure(writers, max(2, args.commits // 4) if shared else args.commits, shared=shared))
            print(name, runs[name][-1], flush=True)
    text, times = report(runs)
    if not args.no_write:
        DOCUMENT.write_text(with_section(DOCUMENT.read_text(), MARK, text))
    print(text)
    exit_if_missed(
        [Bound(f"{WRITERS} threads on a slow store, times one thread's commits", times, BOUND, is_least=True)]
    )


if __name__ == "__main__":
    main()
