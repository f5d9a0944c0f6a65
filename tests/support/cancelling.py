"""A job of Spark's that something happens to while it waits for a place to run; nothing does to later ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from tests.support.gate import wait_until

_GROUP = "the first job"
_FULL = "no place is left"
_FOR_EVER = "java_method('java.lang.Thread', 'sleep', 600000L + id) IS NULL"


def first_job_cancelled(spark: Any) -> AbstractContextManager[None]:
    """Cancel the first job that this thread begins in the block, before any of its tasks, and no later one."""

    def cancel() -> None:
        spark.sparkContext.cancelJobGroup(_GROUP)
        wait_until(lambda: "FAILED" in _statuses(spark), "it is not cancelled")

    return first_job_met(spark, cancel)


@contextmanager
def first_job_met(spark: Any, act: Callable[[], object]) -> Iterator[None]:
    """Act once, on another thread, while the first job that this thread begins in the block has to wait."""
    context = spark.sparkContext
    places = context.defaultParallelism
    over = threading.Event()

    def fill() -> None:
        context.setJobGroup(_FULL, _FULL, interruptOnCancel=True)
        try:
            spark.sql(f"SELECT count(*) FROM range(0, {places}, 1, {places}) WHERE {_FOR_EVER}").collect()
        except Exception:  # noqa: BLE001 (Spark's, or Py4J's)
            assert over.is_set()

    def meet() -> None:
        try:
            wait_until(lambda: over.is_set() or "RUNNING" in _statuses(spark), "no job begins")
            if not over.is_set():
                act()
        finally:
            over.set()
            context.cancelJobGroup(_FULL)

    with ThreadPoolExecutor(2) as threads:
        filling = threads.submit(fill)
        wait_until(lambda: _running(spark) >= places, "the places are not filled")
        context.setJobGroup(_GROUP, _GROUP)
        meeting = threads.submit(meet)
        try:
            yield
        finally:
            over.set()
            for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
                context.setLocalProperty(name, None)
            meeting.result()
            filling.result()


def _statuses(spark: Any) -> list[str]:
    tracker = spark.sparkContext.statusTracker()
    found = [tracker.getJobInfo(id_) for id_ in tracker.getJobIdsForGroup(_GROUP)]
    return [info.status for info in found if info is not None]


def _running(spark: Any) -> int:
    """Return how many tasks run, whosever they are."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(id_) for id_ in tracker.getActiveStageIds()]
    return sum(stage.numActiveTasks for stage in stages if stage is not None)
