"""Expiry: older versions become unreadable, and what only they needed is deleted.

It decides nothing about which versions go, see `expire`. The order of its steps is what makes it safe:

1. What expires is written into segments of the history, which outlive the entries (`lockstep.timeline.past`). Those
   that are there already are read back, for they become all that tells of it.
   Each version that the rest begins with gets a base (`lockstep.timeline.base`) and a checkpoint, read back whole.
2. An entry of kind `expiry` is appended, as every entry is: by put-if-absent, behind all that it was judged against. It
   says which versions there are, and from then on everybody refuses the others. So a tag that is made meanwhile, or
   another expiry, is before it and counts, or is behind it and is refused.
3. The fence is raised (`lockstep.timeline.fence`), and entry 0 is wrapped, by which older Locksteps know.
4. After a pause, entries are deleted, then bases and checkpoints of versions that expired.

Killed anywhere in between, nothing is lost, and whoever calls it next goes on. Who races it does the same.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import pairwise

from lockstep._version import __version__
from lockstep.errors import InvalidError, LockstepError
from lockstep.retry import RACE, Backoff
from lockstep.storage import Storage
from lockstep.timeline import fence
from lockstep.timeline.append import Proposal, Settled, append_until, settled
from lockstep.timeline.arbitration import sweep_staged
from lockstep.timeline.base import base_path, base_versions
from lockstep.timeline.database import Database
from lockstep.timeline.entry import EXPIRY_FORMAT, Entry, Expired, Expiry, TransactionInfo
from lockstep.timeline.files import FOLDER, MAX_GROUP, damaged, entry_path, version_in, wrapped
from lockstep.timeline.layered_map import side_by_side
from lockstep.timeline.log import Timeline
from lockstep.timeline.outcomes import MakeEntry
from lockstep.timeline.sweep import Swept, sweep
from lockstep.workers import Progress, silent

AT_ONCE = 1024
"""So many files are deleted before the next ones are looked at."""


@dataclass(frozen=True, slots=True)
class ExpiryReport:
    """What there is after versions expired, and what was deleted; in a dry run, what would be.

    Attributes:
        first_kept: the oldest version of the unbroken run up to the head that can be read afterwards.
        kept_alone: older versions that can be read all the same.
        entries: how many files of entries were deleted.
        bases, checkpoints, parts: how many of those were, of versions that expired now or before.
    """

    first_kept: int
    kept_alone: tuple[int, ...]
    entries: int
    bases: int = 0
    checkpoints: int = 0
    parts: int = 0


def expire(
    timeline: Timeline,
    *,
    first_kept: int,
    keep: Collection[int] = (),
    pinned: Callable[[], Collection[int]] = tuple,
    dry_run: bool = False,
    author: str = "",
    message: str = "",
    backoff: Backoff = RACE,
    wait: Callable[[], None] = fence.wait,
    progress: Progress = silent,
) -> ExpiryReport:
    """Make every database version below `first_kept` unreadable but those in `keep`; delete what nothing else needs.

    Less expires than that, and the report says so, where more is needed: the versions of tags that are there when the
    entry is appended (and not past their time) stay, and so does every version from the first on whose commits are not
    known to be published, or were moved by an entry that stays, and what follows it. What has expired before stays
    expired. Doing it again, by whomever, finishes what was begun.

    Args:
        timeline: the lake's.
        first_kept: the oldest version to keep of the unbroken run up to the head.
        keep: older versions that stay readable.
        pinned: tells of more of them in each attempt, behind the look at the newest version and before the put: what
            is written down elsewhere than in the timeline, by somebody who then sees that there is another version.
        dry_run: only look.
        author, message: of the entry.
        backoff: how often it is tried again while others win the race for the timeline.
        wait: lets `fence.GRACE_SECONDS` pass.
        progress: is told how many of the files of entries are deleted.

    Raises:
        InvalidError: one of these is no version.
        UnavailableError: the store failed, or others won all races; calling again is safe.
        CorruptTimelineError: what stays cannot be read; nothing was deleted.
    """
    timeline.refresh()
    for version in (first_kept, *keep):
        if not 0 <= version <= timeline.head.version:
            raise InvalidError(f"database version {version} does not exist: there are 0 to {timeline.head.version}")
    if dry_run:
        expired = what_expires(timeline, first_kept, {*keep, *pinned()})
        return ExpiryReport(expired.first_kept, expired.kept, len(_unneeded(timeline.storage, expired)))
    _append(timeline, first_kept, lambda: {*keep, *pinned()}, (author, message), backoff)
    expired = timeline.head.expired
    if not expired.first_kept:
        return ExpiryReport(0, (), 0)
    return _clean(timeline, expired, wait, progress)


# --- the decision -----------------------------------------------------------------------------------------------------


def what_expires(timeline: Timeline, first_kept: int, keep: Collection[int]) -> Expired:
    """Return which versions there are to be, of what somebody asks for; see `expire`.

    Raises:
        UnavailableError, CorruptTimelineError: as the timeline says.
    """
    head, before = timeline.head, timeline.head.expired
    first = max(before.first_kept, min(first_kept, timeline.published_through + 1, head.version))
    while first > before.first_kept and (moved := _first_moved_since(timeline, first)) < first:
        first = max(before.first_kept, moved)
    return kept_from(head, first, keep, timeline.clock())


def kept_from(head: Database, first_kept: int, keep: Collection[int], now: datetime) -> Expired:
    """Return which versions there are: from the first that stays on, what is to be kept, and what tags name."""
    tagged = {tag.version for tag in head.tags.values() if tag.is_kept(now)}
    kept = {version for version in (*keep, *tagged) if version < first_kept and not head.expired.has(version)}
    return Expired(first_kept=first_kept, kept=tuple(sorted(kept)))


def _first_moved_since(timeline: Timeline, first: int) -> int:
    """Return the first entry whose commits were moved by one from `first` on; `first` itself if none was before it."""
    moved = {key: versions for key, versions in timeline.placements.items() if key[1] < first}
    if not moved:
        return first
    then = timeline.state_at(first).placements
    return min((entry for (id_, entry), versions in moved.items() if then.get((id_, entry)) != versions), default=first)


# --- the entry --------------------------------------------------------------------------------------------------------


def _append(
    timeline: Timeline, first_kept: int, keep: Callable[[], Collection[int]], said: tuple[str, str], backoff: Backoff
) -> None:
    secured: set[int] = set()

    def propose() -> Proposal | Settled[None]:
        timeline.refresh()
        while True:
            head = timeline.head
            wanted = what_expires(timeline, first_kept, keep())
            if wanted == head.expired:
                return Settled(None)
            missing = {wanted.first_kept, *wanted.kept} - secured
            if not missing:
                # It follows nothing unseen, not even of this process: that may be the fence of an export.
                return Proposal(_draft(wanted, *said), after=head.version)
            try:
                timeline.write_segments(wanted.first_kept - 1, at_most=wanted.first_kept, check=True)
                for version in sorted(missing):
                    timeline.secure_version(version)
                    secured.add(version)
            except LockstepError:
                timeline.refresh()
                if timeline.head.expired == head.expired:
                    raise  # else it was one of another expiry's, and its files are gone
            timeline.refresh()

    settled(append_until(timeline.append, propose, backoff=backoff), what="older versions have expired")


def _draft(wanted: Expired, author: str, message: str) -> MakeEntry:
    id_ = uuid.uuid4().hex[:24]

    def make(version: int, at: datetime) -> Entry:
        return Entry(
            format=EXPIRY_FORMAT,
            version=version,
            committed_at=at,
            kind="expiry",
            transaction=TransactionInfo(
                id=id_,
                began_at=at,
                base_version=version - 1,
                isolation="SNAPSHOT",
                author=author,
                application=f"Lockstep {__version__}",
                message=message,
            ),
            expires=Expiry(first_kept=wanted.first_kept, keep=list(wanted.kept)),
        )

    return make


# --- what goes --------------------------------------------------------------------------------------------------------


def _clean(timeline: Timeline, expired: Expired, wait: Callable[[], None], progress: Progress) -> ExpiryReport:
    storage = timeline.storage
    fence.raise_fence(storage, expired.first_kept)
    _wrap_first(storage)
    unneeded = _unneeded(storage, expired)
    if unneeded:
        wait()
    for begin in range(0, len(unneeded), AT_ONCE):
        paths = map(entry_path, unneeded[begin : begin + AT_ONCE])
        side_by_side([partial(storage.delete, path) for path in paths])
        progress(min(begin + AT_ONCE, len(unneeded)), len(unneeded))
    bases = [version for version in base_versions(storage) if expired.has(version)]
    side_by_side([partial(storage.delete, base_path(version)) for version in bases])
    if timeline.arbiter_name is not None:
        sweep_staged(storage, expired.first_kept)
    fence.lower_fences(storage)
    swept: Swept = sweep(storage, expired, timeline.clock())
    return ExpiryReport(
        expired.first_kept, expired.kept, len(unneeded), len(bases), checkpoints=swept.checkpoints, parts=swept.parts
    )


def _wrap_first(storage: Storage) -> None:
    first = storage.get(entry_path(0))
    if first is None:
        raise damaged(0, "the file is missing")
    if (data := wrapped(first)) != first:
        storage.put(entry_path(0), data)


def _unneeded(storage: Storage, expired: Expired) -> list[int]:
    """Return the versions by which files of entries have their names that hold nothing but what has expired."""
    numbers = [number for name in storage.list(FOLDER) if (number := version_in(name)) is not None]
    return [
        first
        for first, after in pairwise(numbers)
        if 0 < first < after <= expired.first_kept
        and all(map(expired.has, range(first, min(after, first + MAX_GROUP))))
    ]
