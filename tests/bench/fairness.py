"""`python -m tests.bench.fairness`: do all of 16 writers of one table come to their turn? Writes docs/benchmarks.md.

Its section stands between two comments, which `tests.bench` keeps when it writes the page anew.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import Counter

from tests.bench.page import DOCUMENT, conditions, with_section
from tests.support.writers import POLICIES, Report, run_writers

MARK = "fairness"
BUCKETS = (1, 2, 4, 8, 16, 32)
"""Upper ends of the histogram of attempts; what is more goes into the last, open one."""


def fairness(runs: dict[str, list[list[Report]]]) -> str:
    """Return the section's text, given by policy what each writer met in each of the runs."""
    [ours, *_] = runs.values()
    first = ours[0]
    attempts = Counter(_bucket(n) for reports in ours for report in reports for n in report.attempts)
    labels = [f"≤ {end}" for end in BUCKETS] + [f"> {BUCKETS[-1]}"]
    writers = [
        f"| {n} | {report.whole_seconds:.2f} | {_latencies(report.seconds)} | "
        f"{statistics.mean(report.attempts):.1f} | {max(report.attempts)} |"
        for n, report in enumerate(first, 1)
    ]
    return "\n".join([
        "## Fairness",
        "",
        f"{len(first)} processes, each {len(first[0].seconds)} appends to one table, one transaction right after the",
        f"other, on a local disk and {conditions()}; `python -m tests.bench.fairness`; {len(ours)} runs of",
        "each policy, in turn. Latency is from `BEGIN` to the answer of `COMMIT`; an attempt is a race for the next",
        "database version; the spread is the slowest writer's mean latency over the fastest's. *Turns* is what",
        "Lockstep does on one host, *losers first* ([`retry.py`](../python/lockstep/retry.py)) the same without them,",
        "as on several, *doubling* the usual exponential backoff. No append failed.",
        "",
        "| policy | run | commits/s | latency, ms: min | median | p99 | max | spread | most attempts |",
        "|---" * 9 + "|",
        *(_row(policy, n, reports) for policy, each in runs.items() for n, reports in enumerate(each, 1)),
        "",
        f"Appends by attempts, {next(iter(runs))}, all runs:",
        "",
        f"| attempts | {' | '.join(labels)} |",
        "|---" * (len(labels) + 1) + "|",
        f"| appends | {' | '.join(str(attempts[n]) for n in range(len(labels)))} |",
        "",
        f"Each writer, {next(iter(runs))}, first run:",
        "",
        "| writer | done after, s | min, ms | median | p99 | max | mean attempts | most |",
        "|---" * 8 + "|",
        *writers,
    ])  # fmt: skip


def _row(policy: str, run: int, reports: list[Report]) -> str:
    every = [seconds for report in reports for seconds in report.seconds]
    rate = len(every) / max(report.whole_seconds for report in reports)
    most = max(n for report in reports for n in report.attempts)
    return f"| {policy} | {run} | {rate:.1f} | {_latencies(every)} | **{spread(reports):.2f}** | {most} |"


def spread(reports: list[Report]) -> float:
    """Return how many times the fastest writer's mean latency the slowest's is."""
    each = [statistics.mean(report.seconds) for report in reports]
    return max(each) / min(each)


def _bucket(attempts: int) -> int:
    return sum(attempts > end for end in BUCKETS)


def _latencies(seconds: list[float]) -> str:
    values = sorted(1000 * value for value in seconds)
    p99 = values[min(len(values) - 1, int(0.99 * len(values)))]
    return f"{values[0]:.0f} | {statistics.median(values):.0f} | {p99:.0f} | {values[-1]:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fairness", description=__doc__)
    parser.add_argument("--writers", type=int, default=16)
    parser.add_argument("--appends", type=int, default=20)
    parser.add_argument("--no-write", action="store_true", help="print only; leave docs/benchmarks.md as it is")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    runs: dict[str, list[list[Report]]] = {policy: [] for policy in POLICIES}
    for _ in range(args.runs):
        for policy, done in runs.items():
            with tempfile.TemporaryDirectory(prefix="lockstep-fairness-") as folder:
                done.append(run_writers(f"{folder}/lake", args.writers, args.appends, policy))
                print(_row(policy, len(done), done[-1]), flush=True)
    text = fairness(runs)
    print(text)
    if not args.no_write:
        page = DOCUMENT.read_text(encoding="utf-8")
        DOCUMENT.write_text(with_section(page, MARK, text), encoding="utf-8")


if __name__ == "__main__":
    main()
