"""Writers of a system in one process, told what to do line by line; peers' processes use it: it imports no Lockstep.

A request is `{"each": [["a"], ["b"]], "seconds": 3}`: two threads, each of which commits transactions one right after
the other for so long, that append to each of its tables. The answer says what they took: `{"latencies": [...],
"failed": 2}`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.support.child import Parent

Commit = Callable[[Sequence[str]], bool]
"""Runs one transaction on these tables, from its first statement to the answer; tells whether it committed."""


def serve(parent: Parent, committer: Callable[[], Commit]) -> None:
    """Do what is asked for until the input ends; each thread has a committer of its own."""
    parent.say("ready")
    commits: list[Commit] = []
    for request in parent.requests():
        each, seconds = request["each"], request["seconds"]
        commits += [committer() for _ in range(len(each) - len(commits))]
        with ThreadPoolExecutor(len(each)) as pool:
            runs = [pool.submit(worked, *pair, seconds) for pair in zip(commits, each, strict=False)]
            done = [run.result() for run in runs]
        parent.say({
            "latencies": [latency for latencies, _ in done for latency in latencies],
            "failed": sum(failed for _, failed in done),
        })  # fmt: skip


def worked(
    commit: Commit, tables: Sequence[str], seconds: float, clock: Callable[[], float] = time.perf_counter
) -> tuple[list[float], int]:
    """Commit for so many seconds; a transaction that was refused is counted, and its time with it that succeeds."""
    latencies, failed = list[float](), 0
    until = clock() + seconds
    began = clock()
    while began < until:
        if not commit(tables):
            failed += 1
            if clock() < until:
                continue
            break
        now = clock()
        latencies.append(now - began)
        began = now
    return latencies, failed
