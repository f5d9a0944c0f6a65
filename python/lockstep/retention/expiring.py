"""Expiry: database versions that nobody asks for can be read no more, and then what only they needed can go."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from lockstep.commit.ended import prune
from lockstep.commit.records import OpenRecord
from lockstep.errors import ExpiredError, InvalidError, ReadOnlyError, UnavailableError
from lockstep.lake.exports import needed_versions
from lockstep.lake.lake import Lake
from lockstep.retention.clocks import check_clock
from lockstep.retention.horizon import expire, readable
from lockstep.retention.pins import pins
from lockstep.retention.versions import Readable, Wishes, expired, first_of_last, retained
from lockstep.timeline.log import Timeline
from lockstep.workers import Progress, silent

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Expired:
    """What expiry did, or would do.

    Attributes:
        before, after: the versions that could be read, and that can be.
        versions: how many can be read no more.
        entries: how many of the timeline's files went.
    """

    before: Readable
    after: Readable
    versions: int
    entries: int


def expire_snapshots(
    lake: Lake,
    *,
    older_than: datetime,
    retain_last: int,
    grace: timedelta,
    own: Collection[OpenRecord] = (),
    dry_run: bool = False,
    progress: Progress = silent,
) -> Expired:
    """Make database versions unreadable that nobody asks for, see `lockstep.retention.versions`.

    Expiry is an entry of the timeline (`lockstep.timeline.expiry`), so a tag that is made meanwhile is before it and
    counts, or is behind it and is refused. What is kept of transactions that were rolled back before `older_than` goes
    with the versions of that time (`lockstep.commit.ended`).

    Args:
        older_than: each moment since then can be read afterwards.
        retain_last: so many of the newest versions that changed something stay; 1 or more.
        grace: versions that were the newest at some time within this stay, too.
        own: records of this process' open transactions.
        progress: is told how many of the timeline's files are deleted.

    Raises:
        InvalidError: retain_last is less than 1, or older_than has no time zone; or this host's clock is not the
            store's.
        ReadOnlyError: this process may only read the lake; nothing was written.
        UnavailableError, CorruptTimelineError: as the store and the timeline say; a later run goes on.
    """
    if retain_last < 1:
        raise InvalidError(f"retain_last is {retain_last}: expected 1 or more, for the newest version is never expired")
    if older_than.tzinfo is None:
        raise InvalidError(f"older_than is {older_than.isoformat()}, without a time zone")
    if not dry_run:
        if lake.refusal:
            raise ReadOnlyError(lake.refusal)
        check_clock(lake)
    # A look at each log, which publishes again what it has lost while the entries are there that say what that was.
    lake.newest()
    timeline = lake.timeline
    before, wanted = readable(timeline), pins(lake, own)
    wishes = Wishes(
        newest_then=_newest_at(lake, older_than),
        newest_in_grace=_newest_at(lake, lake.clock() - grace),
        first_of_last=_first_of_last(timeline, retain_last, before.first),
        published_through=timeline.published_through,
        tags=wanted.tags,
        transactions=wanted.transactions or (),
        exports=None if wanted.transactions is None else wanted.exports,
    )
    after = retained(before, wishes)
    pinned = partial(_pinned, lake, before, are_exports_told=wishes.exports is not None)
    after, entries = expire(timeline, after, pinned=pinned, dry_run=dry_run, progress=progress)
    if not dry_run:
        _prune(lake, older_than)
    return Expired(before, after, expired(before, after), entries)


def _prune(lake: Lake, older_than: datetime) -> None:
    try:
        prune(lake, older_than)
    except UnavailableError as error:  # the versions have expired, whatever becomes of these
        _log.warning("what is kept of transactions that were rolled back stays: %s", error)


def _pinned(lake: Lake, before: Readable, *, are_exports_told: bool) -> frozenset[int]:
    """Return the versions that stay whatever was found when this expiry looked, as is known by now.

    Another expiry may have landed since then, and versions that came after the look: this one knows nothing of who
    needs them. So what the other has left single stays, for whomever that was, and exports are asked for anew, those
    that were begun meanwhile among them.

    Args:
        before: the versions that could be read when it was looked who needs which.
        are_exports_told: whether exports could be read then; else all versions of then stay anyway.

    Raises:
        UnavailableError, CorruptTimelineError: the records cannot be read.
    """
    left = frozenset(lake.timeline.head.expired.kept) - before.alone
    return left | needed_versions(lake.storage, lake.clock()) if are_exports_told else left


def _first_of_last(timeline: Timeline, number: int, first: int) -> int:
    """Return the oldest of so many of the newest versions, or the first that can be read; entries are read if needed.

    Raises:
        UnavailableError, CorruptTimelineError: the entries cannot be read.
    """
    if timeline.head.version - number < first:
        return first
    return first_of_last(timeline.past(after=first - 1), number, first)


def _newest_at(lake: Lake, time: datetime) -> int | None:
    """Return the newest database version of a time; None where nobody can tell, or all are later.

    Of a time whose version has expired it is the first that can be read: nothing of that time can be kept any more.
    """
    if lake.timeline.head.committed_at <= time:
        return lake.timeline.head.version
    try:
        return lake.timeline.at_time(time).version
    except ExpiredError:
        return lake.timeline.head.expired.first_kept
    except InvalidError:  # before the first, or the clocks are wrong
        return None
