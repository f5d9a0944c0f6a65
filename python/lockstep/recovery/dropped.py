"""The tables that were dropped: which there are, by the timeline, and how each was last.

A dropped table's folder stays, with its log and its data. The entry that dropped the table says which it was, and the
database version before that entry at which version of its log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from lockstep.errors import InvalidError, UndefinedError
from lockstep.timeline.entry import Database, Entry, Name, Table, folded
from lockstep.timeline.known import Known


@dataclass(frozen=True, slots=True)
class DroppedTable:
    """A table that is in no newer database version than `version` - 1.

    Attributes:
        id: the table's.
        name: what it was called when it was dropped.
        version: the database version that dropped it.
        dropped_at: when that was committed.
        author: who did it.
        transaction: the id of the transaction.
    """

    id: str
    name: Name
    version: int
    dropped_at: datetime
    author: str
    transaction: str


def dropped_in(entries: Iterable[Entry], there: Collection[str] = ()) -> Iterator[DroppedTable]:
    """Yield the tables that entries dropped and that were not brought back, the last drop of each.

    Args:
        entries: newest first.
        there: ids of tables that there are.
    """
    seen = set(there)
    for entry in entries:
        for ddl in entry.tables:
            if ddl.action == "drop" and ddl.id not in seen:
                seen.add(ddl.id)
                yield DroppedTable(
                    id=ddl.id,
                    name=ddl.name,
                    version=entry.version,
                    dropped_at=entry.committed_at,
                    author=entry.transaction.author,
                    transaction=entry.transaction.id,
                )


def dropped_tables(timeline: Known, seen: Database | None = None) -> Iterator[DroppedTable]:
    """Yield the tables that were dropped and are not there, the last one first.

    It reads entries until nobody asks for more. What was dropped before the first entry that is kept has expired.

    Args:
        seen: what is there, and after which nothing has happened: a snapshot; the newest database version by default.

    Raises:
        UnavailableError, CorruptTimelineError: an entry cannot be read.
    """
    head = timeline.head if seen is None else seen
    since = min(timeline.head.expired.first_kept - 1, head.version)
    for table in dropped_in(timeline.newest_first(since, head.version)):
        if head.table_by_id(table.id) is None:
            yield table


def find_dropped(timeline: Known, name: Name, *, id: str | None = None, case_sensitive: bool = True) -> DroppedTable:
    """Return the table of a name that was dropped last, or the one with this id, whatever it was called.

    Raises:
        UndefinedError (42P01): there is none.
        UnavailableError, CorruptTimelineError: an entry cannot be read.
    """

    def key(name: Name) -> Name:
        return name if case_sensitive else folded(name)

    for table in dropped_tables(timeline):
        if table.id == id or (id is None and key(table.name) == key(name)):
            return table
    which = f"no dropped table {name}" if id is None else f"no dropped table with id {id}"
    raise UndefinedError(f"{which}: SHOW TABLES DROPPED lists those that there are")


def last_state(timeline: Known, dropped: DroppedTable) -> Table:
    """Return a dropped table as it was in the last database version that has it.

    Raises:
        InvalidError: its first version and its drop are one entry, so it never was in any database version.
        UnavailableError, CorruptTimelineError: the timeline cannot be read.
    """
    table = timeline.at(dropped.version - 1).table_by_id(dropped.id)
    if table is None:
        raise InvalidError(f"table {dropped.name} was in no database version before it was dropped")
    return table
