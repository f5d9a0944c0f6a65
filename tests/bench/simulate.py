"""`make bench-simulated`: up to 1,000 writers of a lake in an object store, simulated; the tables of docs/scale.md.

No clock is looked at and nothing is drawn but by a seed: whoever runs it gets the same page.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from math import ceil
from pathlib import Path

from project import render_docs
from project.render_docs import between
from tests.bench.simulation import Result, Setting, Store, simulate

DOCUMENT = Path(__file__).parents[2] / "docs" / "scale.md"

SPREAD = 0.35
"""Assumed: one request in a hundred takes 2.3 times the median."""

S3 = Store("S3", get=0.025, put=0.063, spread=SPREAD)
EXPRESS = Store("S3 Express", get=0.006, put=0.020, spread=SPREAD)
GCS = Store("GCS", get=0.040, put=0.600, spread=SPREAD)
"""The puts are the middle of what is published, see docs/scale.md; the gets are assumed."""

THINK_SECONDS = 10
CPU_SECONDS = 0.011
"""Of a transaction: what is left of one thread's cycle of `make bench-slow` when its five requests are taken off."""

WRITERS = (10, 30, 100, 300, 1000)
THREADS = 20
ROWS = 1000


def arranged(store: Store, writers: int, threads: int) -> Setting:
    """Return writers in as few processes as there can be with so many threads at most."""
    processes = ceil(writers / threads)
    return Setting(store, processes, writers // processes, think=THINK_SECONDS, cpu=CPU_SECONDS)


def row(name: str, result: Result, offered: float) -> str:
    """Return a line: what was offered and what came of it."""
    ended = result.commits + result.conflicts + result.exhausted
    refused = f"{result.conflicts / ended:.0%}" if ended else "-"
    attempts = f"{result.attempts / ended:.1f}" if ended else "-"
    return (
        f"| {name} | {offered:.0f} | **{result.rate:.1f}** | {_seconds(result, 0.5)} | {_seconds(result, 0.99)} | "
        f"{attempts} | {refused} | {result.exhausted} |"
    )


def _seconds(result: Result, share: float) -> str:
    return f"{result.latency(share):.1f}" if result.latencies else "-"


HEAD = (
    "| {} | offered, /s | commits/s | COMMIT, s: median | p99 | puts each | refused | given up |\n"
    "|---|---|---|---|---|---|---|---|"
)

Run = Callable[[Setting], Result]


def writers(run: Run) -> str:
    """Return the table of how commits grow with writers."""
    lines = [HEAD.format("writers")]
    for store in (S3, EXPRESS):
        for threads in (1, THREADS):
            for number in WRITERS:
                where = "a process each" if threads == 1 else f"{threads} a process"
                result = run(arranged(store, number, threads))
                lines.append(row(f"{store.name}, {where}: {number:,}", result, number / THINK_SECONDS))
    return "\n".join(lines)


def variants(run: Run) -> str:
    """Return the table of what 1,000 writers meet in different lakes."""
    many = arranged(S3, 1000, THREADS)
    cases = {
        "tables of their own": many,
        "… without group commit": replace(many, max_group=1),
        "… if what others committed were read side by side": replace(many, reads_ahead=True),
        "one table, appended to": replace(many, tables=1),
        f"one table, each rewrites one of {ROWS:,} files": replace(many, tables=1, rows=ROWS),
        "tables of their own, S3 Express": replace(many, store=EXPRESS),
        "tables of their own, GCS": replace(many, store=GCS),
        "all in one process": arranged(S3, 1000, 1000),
        "one of 10 lakes, 100 writers": arranged(S3, 100, THREADS),
        "one of 50 lakes, 20 writers in one process": arranged(S3, 20, THREADS),
    }
    lines = [HEAD.format("1,000 writers")]
    for name, setting in cases.items():
        lines.append(row(name, run(setting), setting.processes * setting.threads / THINK_SECONDS))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.simulate", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120, help="simulated, of each case, after as many to warm up")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-write", action="store_true", help="print only; leave docs/scale.md as it is")
    args = parser.parse_args()

    def run(setting: Setting) -> Result:
        result = simulate(setting, seconds=args.seconds, warm_up=args.seconds, seed=args.seed)
        print(row(f"{setting.store.name} {setting.processes} x {setting.threads}", result, 0), flush=True)
        return result

    tables = {"writers": writers(run), "variants": variants(run)}
    if not args.no_write:
        page = DOCUMENT.read_text(encoding="utf-8")
        for name, table in tables.items():
            page = between(page, name, table)
        DOCUMENT.write_text(page, encoding="utf-8")
        render_docs.write()


if __name__ == "__main__":
    main()
