"""What a `VACUUM` of Delta's has to let stay beside the files of versions that can be read: it knows the table alone.

It is told what `lockstep.retention.planning` heeds by itself: what open transactions have written, whether they have
said so or not; what is marked, and whose grace period is not over; and what versions need that expired within it, for
nobody has marked that yet, and a reader may have begun when they were there.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain

from lockstep.commit.records import OpenRecord
from lockstep.delta.log import LOG, LogFiles
from lockstep.errors import MissingFilesError
from lockstep.lake.lake import Lake
from lockstep.retention.needs import Need
from lockstep.retention.pins import Pins, makes_tables, pins
from lockstep.retention.queue import read_queue
from lockstep.retention.survey import Folder, folders, staged_files
from lockstep.storage.urls import is_outside
from lockstep.timeline.entry import Entry, Expired
from lockstep.timeline.log import Timeline

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Beside:
    """What of a table's folder stays whatever its log says.

    Attributes:
        files: paths within the folder.
        since: so does what was written then or later, by the store's clock.
    """

    files: frozenset[str]
    since: datetime


def beside(lake: Lake, location: str, grace: timedelta, own: Collection[OpenRecord]) -> Beside:
    """Return what stays of the table in a folder: look here first, and only then at the newest database version.

    So what is committed in between is in one of the two; and who begins in between writes behind `since`.

    Args:
        grace: how long a file that nobody needs is marked before it goes.
        own: records of this process' open transactions, read before.

    Raises:
        MissingFilesError: what a transaction staged cannot be read, so nobody knows.
        UnavailableError, CorruptTimelineError: as the store and the timeline say.
    """
    now = lake.clock()
    wanted = pins(lake, own)
    files = _staged(lake, location, wanted) | _marked(lake, now - grace)
    within = f"{location}/"
    return Beside(
        files=frozenset(path.removeprefix(within) for path in files if path.startswith(within)),
        since=wanted.before(now),
    )


def _staged(lake: Lake, location: str, wanted: Pins) -> frozenset[str]:
    """Return what is staged in a table, by whomever, and in others by transactions that are open: clones share files.

    Of a table that such a transaction makes nobody but the store knows the folder, so all of the lake is listed then.
    """
    database = lake.timeline.head
    others: Iterable[Folder] = ()
    if makes_tables(wanted, database):
        known = {table.location for table in database.tables.values()}
        outside = (_staging(lake, location) for location in known if is_outside(location))
        others = chain(folders(lake.storage, known).values(), outside)
    elif wanted.written:
        others = (_staging(lake, database.tables[name].location) for name in wanted.written)
    named: set[str] = set()
    for folder in (_staging(lake, location), *others):
        if (files := staged_files(lake.storage, folder, lambda _: True)) is None:
            raise MissingFilesError(
                f"nothing was deleted: a transaction has staged something in {folder.location}/{LOG}/_lockstep that is "
                "no Delta commit, so which files it needs is not known. See that the folder is as it was written; if "
                "its process is gone, `CALL <catalog>.system.remove_orphan_files` removes what it staged once that is "
                "older than orphan-age"
            )
        named |= files
    return frozenset(named)


def _staging(lake: Lake, location: str) -> Folder:
    return Folder(location, [*lake.storage.walk(f"{location}/{LOG}/_lockstep")])


def _marked(lake: Lake, since: datetime) -> frozenset[str]:
    """Return what was marked after a time."""
    return frozenset(path for path, at in read_queue(lake.storage).since.items() if at > since)


# --- what has just expired --------------------------------------------------------------------------------------------


def need_within(lake: Lake, location: str, need: Need, since: datetime, log: LogFiles) -> Need:
    """Return what is needed of a table's log by whoever began to read a database version at some time since then.

    More may be kept than that: all since the oldest such version. Of versions that the log does not tell of any more,
    nothing is known, and nothing kept.

    Args:
        need: what the versions need that can be read now.
        log: what there is of the table's log.

    Raises:
        UnavailableError, CorruptTimelineError: as the store and the timeline say.
    """
    before, head = _expired_at(lake.timeline, since), lake.timeline.head
    gone = [v for v in (before.first_kept, *before.kept) if head.expired.has(v)]
    if not gone or need.first is None:
        return need
    versions = [v for entry in lake.timeline.past(after=min(gone)) for v in _began_at(entry, location)]
    first = min((need.first, *versions))
    low = need.first
    while low > first and low in log.commits:
        low -= 1
    told = (version for version in range(low, need.first) if log.missing_for(version) is None)
    return replace(need, first=next(told, need.first))


def _began_at(entry: Entry, location: str) -> list[int]:
    """Return the versions of a folder's log that a database version had there before, or has since, an entry."""
    made = [ddl.version or 0 for ddl in entry.tables if ddl.action == "create" and ddl.location == location]
    return made + [max(write.from_version, 0) for write in entry.writes if write.location == location]


def _expired_at(timeline: Timeline, time: datetime) -> Expired:
    """Return what had expired at a time, as far as that is known; what has now, if nothing has expired since."""
    expired = timeline.head.expired
    if expired == Expired():
        return expired
    found = False
    for entry in timeline.past():
        if entry.committed_at < time and not found:
            return expired
        if entry.expires is not None and entry.committed_at < time:
            return Expired(first_kept=entry.expires.first_kept, kept=tuple(entry.expires.keep))
        found = found or entry.expires is not None
    return Expired()
