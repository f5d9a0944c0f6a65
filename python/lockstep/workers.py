"""Threads that do the same to many things at a time, and whoever asked for it once there can be no threads any more."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

_log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")


class Threads(ThreadPoolExecutor):
    """A pool that works in the caller's thread while the interpreter ends: Python gives nobody new threads then.

    That is from when the main thread has returned; others may go on for long, and commit.
    """

    def submit(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        """Have a function called, by a thread or now."""
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError:  # no threads any more; what the function raises goes into the future
            future = Future[R]()
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:  # noqa: BLE001 (whoever asks the future is told, as of a thread's)
                future.set_exception(error)
            return future


class Workers:
    """So many threads at most; made when first needed, and shared by whoever asks."""

    def __init__(self, most: int, name: str) -> None:
        self._pool = Threads(most, thread_name_prefix=name)

    def map(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Return what the work returns for each item, in order, once all of it is done, whatever one of them raises.

        Raises:
            What the work raised for the first item for which it did; what it raised for others is logged.
        """
        futures = [self._pool.submit(work, item) for item in items]
        errors = [error for future in futures if (error := future.exception()) is not None]
        for error in errors[1:]:
            _log.warning("beside the error that is told: %s", error, exc_info=error)
        if errors:
            raise errors[0]
        return [future.result() for future in futures]
