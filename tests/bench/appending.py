"""Threads of one process that append on one lake: what several benches measure, each on a store of its own."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import render
from lockstep.delta.log import staged_path
from lockstep.storage import Storage
from lockstep.timeline.files import version_in
from tests.support.lakes import add, lay, named


@dataclass(frozen=True, slots=True)
class Run:
    """One run: commits a second, the median of COMMIT in milliseconds, and commits for each file of the timeline."""

    rate: float
    commit_ms: float
    per_file: float


def median(runs: Sequence[Run], field: str) -> float:
    return statistics.median(getattr(run, field) for run in runs)


def append(catalog: TransactionalCatalog, near: Storage, table: str, file: str) -> float:
    """Append a file that is there already, as a transaction of its own; return what its COMMIT took, in seconds.

    Args:
        near: the lake's store without what slows it: what Spark and Delta write before COMMIT is not measured.
    """
    tx = catalog.begin()
    there = catalog.table(tx, named(table))
    actions = [{"commitInfo": {"operation": "WRITE", "isBlindAppend": True}}, add(file)]
    lay(near, there.location, actions)
    data = render(actions)
    near.put(staged_path(there.location, tx.id, there.version + 1), data)
    catalog.stage(tx, there.location, there.version + 1, data.decode())
    began = time.perf_counter()
    catalog.commit(tx)
    return time.perf_counter() - began


def side_by_side(threads: int, work: Callable[[int], None]) -> float:
    """Have threads work, each with its number, and return the seconds until the last of them is done."""
    each = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    began = time.perf_counter()
    for thread in each:
        thread.start()
    for thread in each:
        thread.join()
    return time.perf_counter() - began


def entry_files(store: Storage) -> int:
    """Return how many files of entries a timeline has."""
    return sum(version_in(name) is not None for name in store.list("_lockstep/timeline"))
