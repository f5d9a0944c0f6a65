"""`python -m tests.bench.s3`: commits a second in an S3 server that is near, and farther away; in docs/benchmarks.md.

The server is versitygw, on this host, which looks at signatures and writes files, or with `--server s3proxy` that one,
which does neither; toxiproxy makes each of its answers so much later. What Spark and Delta would have written before
COMMIT is written to the server itself, and is not timed.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from lockstep.storage import open_storage
from tests.bench.appending import Run, append, entry_files, median, side_by_side
from tests.bench.page import DOCUMENT, conditions, paragraph, with_section
from tests.support import servers, toxiproxy
from tests.support.lakes import create, files, open_catalog

MARK = "s3"
DISTANCES_MS = (0, 10, 60)
THREADS = 16
CASES = {
    "one thread": (1, False),
    f"{THREADS} threads, a table each": (THREADS, False),
    f"{THREADS} threads, one table": (THREADS, True),
}
"""How many threads of one process commit, and whether all to one table."""

ROOTS = (f"run-{number}" for number in itertools.count())


def measure(server: servers.Server, endpoint: str, threads: int, commits: int, *, shared: bool) -> Run:
    """Have threads commit one after the other, each as often, and see that nothing is lost or doubled.

    Args:
        endpoint: where the server is reached by those who commit.
        shared: to one table, and not to one each.
    """
    root = server.url(next(ROOTS))
    near = open_storage(root, create=True, options=server.options)
    tables = [f"t{number}" for number in range(1 if shared else threads)]
    create(open_catalog(near), *tables)
    catalog = open_catalog(open_storage(root, options={**server.options, "endpoint": endpoint}))
    for number, table in enumerate(tables):  # opens connections, and what is opened once
        append(catalog, near, table, f"first-{number}")
    catalog.lake.upkeep.settle()
    before, seconds = entry_files(near), list[float]()

    def work(number: int) -> None:
        table = tables[number % len(tables)]
        seconds.extend(append(catalog, near, table, f"{number}-{one}") for one in range(commits))

    total = side_by_side(threads, work)
    catalog.lake.upkeep.settle()
    reader = open_catalog(near)
    there = set[str]().union(*(files(reader, table) for table in tables))
    made = {f"{number}-{one}" for number in range(threads) for one in range(commits)}
    assert there == made | {f"first-{number}" for number in range(len(tables))}
    count = threads * commits
    return Run(count / total, statistics.median(seconds) * 1000, count / (entry_files(near) - before))


SAID = {
    "versitygw": f"versitygw {servers.VERSITYGW}, which looks at signatures and keeps objects as files,",
    "s3proxy": f"s3proxy {servers.S3PROXY.revision}, which asks for no keys and keeps objects in memory,",
}
"""What each server is."""


def section(runs: Mapping[tuple[str, int], Sequence[Run]], server: str) -> str:
    """Return the section's text, given the runs of each case at each distance, and which server it was."""
    rows = []
    for (case, distance), each in runs.items():
        near, alone = runs[case, DISTANCES_MS[0]], runs[next(iter(CASES)), distance]
        rows.append(
            f"| {case} | {distance} ms | {median(each, 'rate'):.1f} | **{_ratio(each, near):.2f}** | "
            f"**{_ratio(each, alone):.1f}** | {median(each, 'commit_ms'):.0f} | {median(each, 'per_file'):.1f} |"
        )
    rounds = len(next(iter(runs.values())))
    said = f"""
        Threads of one process, each `BEGIN`, an append of one file, `COMMIT`, one after the other, on a lake in
        {SAID[server]} on the same host; toxiproxy makes its answers so much later (`make bench-s3`; {rounds} rounds,
        all cases in turn, medians, {conditions()}). What Spark and Delta would have written before is not timed. At
        0 ms this measures the server and the cores more than Lockstep; at 60 ms, about what a conditional write to S3
        takes, a commit is [the requests that follow one another](requests.md).
    """
    return "\n".join([
        "## Commits in an S3 server",
        "",
        paragraph(said),
        "",
        "| | answers later by | commits/s | times at 0 ms | times one thread | COMMIT, ms | commits a timeline file |",
        "|---|---|---|---|---|---|---|",
        *rows,
    ])  # fmt: skip


def _ratio(runs: Sequence[Run], others: Sequence[Run]) -> float:
    """Return the median of the paired ratios of commits a second."""
    return statistics.median(run.rate / other.rate for run, other in zip(runs, others, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.s3", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--commits", type=int, default=8, help="of each thread; a fourth of it to one table")
    parser.add_argument("--no-write", action="store_true", help="print only; leave docs/benchmarks.md as it is")
    parser.add_argument("--server", choices=servers.S3_SERVERS, default="versitygw")
    args = parser.parse_args()
    runs: dict[tuple[str, int], list[Run]] = {(case, ms): [] for case in CASES for ms in DISTANCES_MS}
    with ExitStack() as stack:
        server = stack.enter_context(servers.started(args.server))
        endpoints = {
            ms: stack.enter_context(toxiproxy.passing(server.options["endpoint"], toxiproxy.slow(ms)))
            for ms in DISTANCES_MS
        }
        for _ in range(args.rounds):
            for (case, ms), each in runs.items():
                threads, shared = CASES[case]
                commits = max(2, args.commits // 4) if shared else args.commits
                each.append(measure(server, endpoints[ms], threads, commits, shared=shared))
                print(case, ms, "ms", each[-1], flush=True)
    text = section(runs, args.server)
    print(text)
    if not args.no_write:
        DOCUMENT.write_text(with_section(DOCUMENT.read_text(encoding="utf-8"), MARK, text), encoding="utf-8")


if __name__ == "__main__":
    main()
