"""What dropped tables need of others' files whose own folders, or logs, somebody has removed.

A folder may come back: its disk may not be mounted just now. So what such a table shares with others stays, as far as
the timeline tells what that is. Where it does not, nobody knows of one outside of the root; of one within it, that it
is gone for good, for the root is there: a mount, or a link, in the place of a table's own folder is not reckoned with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from lockstep.delta.actions import parse
from lockstep.delta.publish import contents
from lockstep.errors import CorruptTimelineError, InvalidError, UnsupportedError
from lockstep.lake.lake import Lake
from lockstep.retention.survey import Folder, named_by
from lockstep.retention.versions import Readable
from lockstep.timeline.database import Database
from lockstep.timeline.entry import NEW, Entry, TableWrite


def without_log(database: Database, found: Mapping[str, Folder], known: Iterable[str]) -> frozenset[str]:
    """Return the locations of dropped tables whose logs are not there.

    Args:
        database: the newest version.
        found: the folders that there are.
        known: the locations to ask about.
    """
    return frozenset(
        location
        for location in known
        if database.table_at(location) is None and (location not in found or found[location].has_no_log)
    )


def told(lake: Lake, locations: Collection[str], can_be_read: Readable) -> Mapping[str, frozenset[str]]:
    """Return which files dropped tables named, of those of which the timeline tells all.

    It does of a table that a transaction made whose entry is there yet, and to which no plain Delta writer has written,
    unless a commit was so large that it was staged in the folder that is gone. Nothing is read if nothing is asked.

    Returns:
        By location; paths relative to the lake's root, or URLs of what lies outside of it.

    Raises:
        UnavailableError, CorruptTimelineError: the store failed, or an entry is lost.
    """
    if not locations:
        return {}
    older = map(lake.timeline.at, (can_be_read.first, *can_be_read.alone))
    begun = {table.location for database in older for table in database.tables.values()}
    named: dict[str, frozenset[str]] = dict.fromkeys({*locations} - begun, frozenset())
    made: set[str] = set()
    for entry in lake.timeline.scan(can_be_read.first):
        made |= _made(entry)
        for ddl in entry.tables:  # taken in, or brought back, with commits that no entry tells of
            if ddl.action == "create" and ddl.id not in made:
                named.pop(ddl.location, None)
        for write in entry.writes:
            if write.location not in named:
                continue
            files = _named(lake, entry, write) if write.id in made else None
            if files is None:
                del named[write.location]
            else:
                named[write.location] |= files
    return named


def _made(entry: Entry) -> set[str]:
    """Return the ids of the tables that an entry made, with all that they had."""
    created = {ddl.id for ddl in entry.tables if ddl.action == "create" and ddl.version is None}
    return {write.id for write in entry.writes if write.id in created and write.from_version == NEW}


def _named(lake: Lake, entry: Entry, write: TableWrite) -> frozenset[str] | None:
    """Return the files that a write named; None where its commits were in the table's folder alone."""
    if not write.commits:
        return None
    try:
        files = contents(lake.storage, write, lake.timeline.versions(write, entry.version))
        if None in files:
            return None
        return named_by((parse(data) for data in files if data is not None), write.location, lake.storage.url)
    except (InvalidError, UnsupportedError, CorruptTimelineError):
        return None
