"""Upkeep: what is written behind a commit's answer, and saves those who open the lake work. Nobody waits for it."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor

from lockstep.errors import LockstepError
from lockstep.timeline.log import Timeline

_log = logging.getLogger(__name__)


class Upkeep:
    """The upkeep of one timeline, in a thread of its own; safe to share between threads."""

    def __init__(self, timeline: Timeline) -> None:
        """Write the checkpoints of a timeline."""
        self._timeline = timeline
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="lockstep-upkeep")

    def after_commit(self) -> Future[None] | None:
        """Begin to write the checkpoint that is due, if one is, and return without waiting. It raises nothing.

        Returns:
            What is done once it is written or has failed, which the log then says; None if there is nothing to do.
        """
        if self._timeline.checkpoint_due is None:
            return None
        try:
            return self._pool.submit(self._write)
        except RuntimeError:  # the interpreter ends and gives nobody threads: another process will write it
            return None

    def _write(self) -> None:
        try:
            self._timeline.write_checkpoint()
        except LockstepError as error:
            _log.warning("a checkpoint of the timeline was not written; opening it will cost more: %s", error)
        except Exception:  # noqa: BLE001 (logged; advice that is written after a commit, which may not fail for it)
            _log.exception("a checkpoint of the timeline was not written")
