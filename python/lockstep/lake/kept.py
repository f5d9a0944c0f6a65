"""What tags keep: which versions of which tables, and which files of those tables' logs tell of them.

A tag that is not past its `retain_until` keeps its database version. Of a table that is the version which that database
version names, whatever the table is called now, and whether or not it was dropped since.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from lockstep.delta.log import LogFiles
from lockstep.errors import MissingFilesError
from lockstep.lake.kept_states import is_told
from lockstep.lake.lake import Lake
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Table, Tag
from lockstep.timeline.known import Known


@dataclass(frozen=True, slots=True)
class KeptTable:
    """A table as a tag keeps it: `table.version` is the version of its log."""

    tag: Tag
    table: Table


def kept_tags(database: Database, now: datetime) -> list[Tag]:
    """Return the tags that keep what they name, by the database versions that they name."""
    return sorted((tag for tag in database.tags.values() if tag.is_kept(now)), key=lambda tag: (tag.version, tag.name))


def kept_tables(timeline: Known, tags: list[Tag]) -> Iterator[KeptTable]:
    """Yield each table of each tag's database version.

    Raises:
        UnavailableError, CorruptTimelineError: the timeline cannot be read.
    """
    for tag in tags:
        for table in timeline.at(tag.version).tables.values():
            yield KeptTable(tag, table)


def unreadable(log: LogFiles, kept: list[KeptTable]) -> list[tuple[KeptTable, int]]:
    """Return what is kept and a table's log does not tell of any more, with the version of the first missing commit."""
    return [(each, missing) for each in kept if (missing := log.missing_for(each.table.version)) is not None]


def check_readable(lake: Lake, version: int) -> None:
    """Refuse an older database version of some table of which nothing tells any more: a tag could not keep it.

    Raises:
        ForeignCommitError: names a table that was settled since, whose log is another side's there.
        MissingFilesError: names such tables.
        UnavailableError, CorruptTimelineError: the timeline or a log cannot be read.
    """
    database = lake.timeline.at(version)
    tables = list(database.tables.values())
    for table in tables:
        database.refuse_aside(table)
    told = lake.side_by_side(lambda table: is_told(lake.storage, table), tables)
    gone = [table for table, is_there in zip(tables, told, strict=True) if not is_there]
    if gone:
        raise MissingFilesError(
            f"database version {version} cannot be tagged: the logs of {len(gone)} of its tables do not tell any more "
            f"how they were then, that of {gone[0].name} among them; Delta's clean-up of logs took what came before. "
            "Nothing was changed"
        )
