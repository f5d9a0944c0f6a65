"""Threads that do the same to many things at a time, and whoever asked for it once there can be no threads any more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Workers:
    """So many threads at most; made when first needed, and shared by whoever asks."""

    def __init__(self, most: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=name)

    def map(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Yield what the work returns for each item, in order; all of it is done, however far one reads.

        While the interpreter ends, Python gives nobody threads: what is open is rolled back then, one after another.
        """
        todo = list(items)
        try:
            return self._pool.map(work, todo)
        except RuntimeError:  # from `submit`; what the work raises comes out of the iterator
            return iter([work(item) for item in todo])
