"""Threads that do the same to many things at a time, and whoever asked for it once there can be no threads any more."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")


class Workers:
    """So many threads at most; made when first needed, and shared by whoever asks."""

    def __init__(self, most: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=name)

    def map(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Return what the work returns for each item, in order, once all of it is done, whatever one of them raises.

        While the interpreter ends, Python gives nobody threads: what is open is rolled back then, one after another.

        Raises:
            What the work raised for the first item for which it did; what it raised for others is logged.
        """
        futures = [self._submit(work, item) for item in items]
        errors = [error for future in futures if (error := future.exception()) is not None]
        for error in errors[1:]:
            _log.warning("beside the error that is told: %s", error, exc_info=error)
        if errors:
            raise errors[0]
        return [future.result() for future in futures]

    def _submit(self, work: Callable[[T], R], item: T) -> Future[R]:
        try:
            return self._pool.submit(work, item)
        except RuntimeError:  # no threads any more; what the work raises goes into the future
            future = Future[R]()
            try:
                future.set_result(work(item))
            except Exception as error:  # noqa: BLE001 (raised or logged by `map`, as a thread's is)
                future.set_exception(error)
            return future
