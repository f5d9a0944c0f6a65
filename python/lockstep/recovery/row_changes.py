"""Which commits of a table lie between two database versions: the timeline says.

The rows that they changed are in the table's log and files, and Delta's to read. Whether the log has these commits yet,
and no other's in their place, whoever asks may look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from lockstep.errors import ExpiredError, ForeignCommitError, InvalidError
from lockstep.timeline.entry import Entry
from lockstep.timeline.known import Known
from lockstep.timeline.settlements import settles

AT_ONCE = 64
"""So many commits are compared with the log at a time."""

_BEFORE = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class VersionRange:
    """The database versions that come after one, through another: none, if the two are the same."""

    after: int
    through: int


@dataclass(frozen=True, slots=True)
class TableCommits:
    """Consecutive versions of a table's log that one database version made.

    Attributes:
        first, last: the table versions, both of them among these.
        version: the database version.
        committed_at: when that was committed.
    """

    first: int
    last: int
    version: int
    committed_at: datetime


def range_of_versions(
    start: int, end: int | None, *, last: int, start_inclusive: bool = True, end_inclusive: bool = True
) -> VersionRange:
    """Return the range between two database versions.

    Args:
        start, end: the two; no end is the last version.
        last: the newest version that whoever asks sees.
        start_inclusive, end_inclusive: whether what the two versions themselves changed is in it.

    Raises:
        InvalidError: one of them is not there, or the first is the newer.
    """
    newer = last if end is None else end
    for version in (start, newer):
        if not 0 <= version <= last:
            raise InvalidError(f"database version {version} does not exist here: there are 0 to {last}")
    if start > newer:
        raise InvalidError(f"database version {start} is newer than {newer}: name the older one first")
    after = start - 1 if start_inclusive else start
    through = newer if end_inclusive or end is None else newer - 1
    return VersionRange(after, max(after, through))


def range_of_times(
    timeline: Known,
    start: datetime,
    end: datetime | None,
    *,
    last: int,
    start_inclusive: bool = True,
    end_inclusive: bool = True,
) -> VersionRange:
    """Return the range of the database versions that were committed between two times.

    Args:
        start, end, last, start_inclusive, end_inclusive: see `range_of_versions`.

    Raises:
        InvalidError: the first time is the later one; or see `Known.at_time`.
        UnavailableError, CorruptTimelineError: see `Known.at_time`.
    """
    if end is not None and start > end:
        raise InvalidError(f"time {start.isoformat()} is later than {end.isoformat()}: name the earlier one first")
    after = _last_at(timeline, start - _BEFORE if start_inclusive else start, last)
    through = last if end is None else _last_at(timeline, end if end_inclusive else end - _BEFORE, last)
    return VersionRange(after, max(after, through))


def commits_between(
    timeline: Known,
    id: str,
    versions: VersionRange,
    check: Callable[[Sequence[Entry]], object] = lambda _: None,
) -> list[TableCommits]:
    """Return what a range of database versions committed to one table, in the order of its log.

    They follow one another without a gap, so what changed is the difference of the table at the two ends.

    Args:
        check: raises if the table's log has another commit in the place of one that an entry made; it is given some
            entries at a time.

    Raises:
        ForeignCommitError: the table was settled within the range: the log has another side's rows there, too.
        ExpiredError: some of these versions have expired.
        UnavailableError, CorruptTimelineError: an entry cannot be read, or is gone.
    """
    kept = timeline.head.expired.first_kept
    if versions.after < versions.through and versions.after + 1 < kept:
        raise ExpiredError(f"what database versions before {kept} changed is not known any more, for they have expired")
    runs: list[TableCommits] = []
    unread: list[Entry] = []
    for entry in timeline.scan(versions.after, versions.through):
        if settles(entry, id):
            raise ForeignCommitError(
                f"what changed in the table across database version {entry.version}, which settled it, is not known: "
                "its log has what another Delta writer committed there, and what took that back. Ask for versions from "
                f"{entry.version + 1} on"
            )
        made = [
            TableCommits(each[0], each[-1], entry.version, entry.committed_at) for each in _made(timeline, entry, id)
        ]
        runs += made
        unread += [entry] if made else []
        if len(unread) >= AT_ONCE:
            check(unread)
            unread = []
    check(unread)
    return runs


def _last_at(timeline: Known, time: datetime, last: int) -> int:
    """Return the last database version that was there at a time, as far as one sees; -1 is before the first."""
    if timeline.head.expired.first_kept == 0:
        [first] = timeline.entries(-1, 0)
        if time < first.committed_at:
            return -1
    return min(last, timeline.at_time(time).version)


def _made(timeline: Known, entry: Entry, id: str) -> Iterator[range]:
    """Yield the versions of a table's log that an entry takes the table to, from where the one before left it.

    A commit that was moved brings the plain Delta writers' with it behind which it is: no database version has the
    table in between, and the one that says that it was moved does not change it.
    """
    for write in entry.writes:
        if write.id == id:
            is_external = entry.kind == "external"
            last = write.to_version if is_external else timeline.versions(write, entry.version)[-1]
            yield range(write.from_version + 1, last + 1)
