"""Until when database versions stay that have a table at a version of which its log does not tell any more.

For so long nothing of that table goes, and that may be for years: by default the 100 newest versions stay, however old
they are. So whoever is held up is told which versions these are, and by which call they expire.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from lockstep.delta.log import LogFiles
from lockstep.lake.kept_states import kept_versions
from lockstep.lake.lake import Lake
from lockstep.retention.horizon import readable
from lockstep.retention.pins import pins
from lockstep.retention.versions import counts
from lockstep.timeline.log import Timeline

NAMED = 5
"""So many versions are named at most."""


class _End(NamedTuple):
    """The first database version of those up to the newest in all of which a log tells of a table.

    Attributes:
        version, at: its number, and when it was committed.
        number: how many of these versions count where a number of the newest is kept.
    """

    version: int
    at: datetime
    number: int


def until_told(lake: Lake, location: str, log: LogFiles, catalog: str = "<catalog>") -> str:
    """Return what can be done so that a log tells of its table in all database versions that stay.

    Args:
        location: the table's folder.
        log: what there is of the log.
        catalog: what the lake is called in SQL.

    Raises:
        UnavailableError, CorruptTimelineError: as the store and the timeline say.
    """
    can_be_read, timeline = readable(lake.timeline), lake.timeline
    wanted = pins(lake)
    held = can_be_read.alone | wanted.tags | (wanted.exports or frozenset()) | (wanted.transactions or frozenset())
    lost = [version for version in sorted(held) if can_be_read.has(version) and _is_lost(lake, version, location, log)]
    steps = []
    if lost:
        more = f" and {len(lost) - NAMED} more" if len(lost) > NAMED else ""
        versions = ", ".join(map(str, lost[:NAMED])) + more
        steps.append(f"end what keeps database version {versions} (tags, exports, open transactions)")
    end = _told_since(timeline, can_be_read.first, location, lambda version: log.missing_for(version) is None)
    call = f"CALL {catalog}.system.expire_snapshots"
    if end is None:
        steps.append(f"let that expire: {call}()")
    else:
        at = f"TIMESTAMP '{end.at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}'"
        steps.append(
            f"let the database versions before {end.version} expire, of which the defaults may keep some for long: "
            f"{call}(older_than => {at}, retain_last => {end.number})"
        )
    return f"Restore that log from a backup; or {', and '.join(steps)}"


def _is_lost(lake: Lake, version: int, location: str, log: LogFiles) -> bool:
    """Tell whether neither a log nor what is kept for tags tells of the table that a version has in a folder."""
    table = lake.timeline.at(version).table_at(location)
    if table is None or log.missing_for(table.version) is None:
        return False
    return table.version not in kept_versions(lake.storage, table.id)


def _told_since(timeline: Timeline, first: int, location: str, is_told: Callable[[int], bool]) -> _End | None:
    """Return from which version after `first` on a log tells of a folder's table; None if it always does.

    Args:
        is_told: tells whether the log tells of a version of it.
    """
    table = timeline.at(first).table_at(location)
    id_, is_lost = ("", False) if table is None else (table.id, not is_told(table.version))
    was_lost, end = is_lost, None
    for entry in timeline.scan(first):
        for ddl in entry.tables:
            if ddl.action == "create" and ddl.location == location:
                id_, is_lost = ddl.id, ddl.version is not None and not is_told(ddl.version)
            elif ddl.action == "drop" and ddl.id == id_:
                is_lost = False
        for write in entry.writes:
            is_lost = not is_told(write.to_version) if write.location == location else is_lost
        number = int(counts(entry))
        was_lost = was_lost or is_lost
        if is_lost or not was_lost:
            end = None
        elif end is None:
            end = _End(entry.version, entry.committed_at, number)
        else:
            end = end._replace(number=end.number + number)
    return end
