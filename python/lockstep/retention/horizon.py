"""Which database versions can be read: what expiry has left, and how it is told what to leave."""

from __future__ import annotations

from collections.abc import Callable, Collection

from lockstep.retention.versions import Readable
from lockstep.timeline import expiry
from lockstep.timeline.log import Timeline
from lockstep.workers import Progress, silent


def readable(timeline: Timeline) -> Readable:
    """Return the database versions that can be read, up to the newest that is known."""
    head = timeline.head
    return Readable(head.expired.first_kept, head.version, frozenset(head.expired.kept))


def expire(
    timeline: Timeline,
    after: Readable,
    *,
    pinned: Callable[[], Collection[int]] = tuple,
    author: str = "",
    message: str = "",
    dry_run: bool = False,
    progress: Progress = silent,
) -> tuple[Readable, int]:
    """Make all but these versions unreadable; return which are readable then, and how many files of entries went.

    More may stay than was asked for, see `lockstep.timeline.expiry`. In a dry run nothing is changed.

    Raises:
        UnavailableError, CorruptTimelineError: as the store and the timeline say; calling again is safe.
    """
    report = expiry.expire(
        timeline,
        first_kept=after.first,
        keep=after.alone,
        pinned=pinned,
        dry_run=dry_run,
        author=author,
        message=message,
        progress=progress,
    )
    return Readable(report.first_kept, timeline.head.version, frozenset(report.kept_alone)), report.entries
