"""Removing paths: side by side, in an order in which it may end at any of them, and not for ever."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from lockstep.delta.log import LOG
from lockstep.lake.lake import Lake
from lockstep.workers import Progress, silent

CHUNK = 1_000
"""So many files are deleted in one go, with what a store can do at once."""

SIDE_BY_SIDE = 32
"""So many chunks are deleted side by side."""

_log = logging.getLogger(__name__)


@dataclass
class Remover:
    """What removes paths of a lake until its time is over.

    Attributes:
        end_by: no step begins later than that.
        total: how many paths are to go in all, for whoever is shown how far it is.
        gone: the paths that were removed.
    """

    lake: Lake
    end_by: datetime
    progress: Progress = silent
    total: int = 0
    gone: set[str] = field(default_factory=set)

    @property
    def is_late(self) -> bool:
        """Whether its time is over."""
        return self.lake.clock() > self.end_by

    def remove(self, files: Sequence[str], folders: Sequence[str], record: str) -> bool:
        """Remove files, then folders with all that is in them, and tell whether that is all done.

        Files of a log go one after the other, in their order: what is left of it has no gap. It ends early when time is
        over, and where another run has taken over what was written down and has forgotten it: whoever would bring some
        of it back is not told any more. At most one step is under way then.

        Args:
            record: the path of what says that these go; it is looked for before each step.

        Raises:
            UnavailableError: the store failed; some of them may be gone.
        """
        logs: dict[str, list[str]] = {}
        others: list[str] = []
        for path in files:
            folder = path.rpartition("/")[0]
            (logs.setdefault(folder, []) if folder.endswith(f"/{LOG}") else others).append(path)
        storage = self.lake.storage
        return (
            self._in_steps(storage.delete_all, [*_chunks(others)], record)
            and self._in_steps(self._one_by_one, [*logs.values()], record)
            and self._in_steps(lambda paths: storage.delete_folder(paths[0]), [[path] for path in folders], record)
        )

    def _in_steps(self, work: Callable[[Sequence[str]], None], groups: Sequence[Sequence[str]], record: str) -> bool:
        for place in range(0, len(groups), SIDE_BY_SIDE):
            if self.is_late:
                return False
            if not self.lake.storage.exists(record):
                _log.warning(
                    "another run of upkeep has taken over what %s said: this one leaves the rest to it", record
                )
                return False
            some = groups[place : place + SIDE_BY_SIDE]
            self.lake.side_by_side(work, some)
            self.gone.update(*some)
            self.progress(len(self.gone), self.total)
        return True

    def _one_by_one(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.lake.storage.delete(path)


def _chunks(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    size = max(1, min(CHUNK, len(paths) // SIDE_BY_SIDE))
    for place in range(0, len(paths), size):
        yield paths[place : place + size]
