"""The tables that were dropped: which there are, by the timeline, and how each was last.

A dropped table's folder stays, with its log and its data. The entry that dropped the table says which it was, and the
database version before that entry at which version of its log. Once the two have expired, the history still says so: of
a table that an older database version has, which somebody keeps (`last_states`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from msgspec import structs

from lockstep.errors import ExpiredError, InvalidError, UndefinedError
from lockstep.timeline.database import Database
from lockstep.timeline.entry import NEW, Entry, Name, Table, folded
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
    """Yield the tables that were dropped, are not there and may come back, the last one first.

    It reads entries until nobody asks for more. What was dropped before the first entry that is kept has expired, and
    so may have the last version of a table that was dropped by it; and a table that was settled is there under another
    id.

    Args:
        seen: what is there, and after which nothing has happened: a snapshot; the newest database version by default.

    Raises:
        UnavailableError, CorruptTimelineError: an entry cannot be read.
    """
    return (table for table in _dropped(timeline, seen) if table.id not in timeline.head.settled)


def _dropped(timeline: Known, seen: Database | None = None) -> Iterator[DroppedTable]:
    head, expired = timeline.head if seen is None else seen, timeline.head.expired
    since = min(expired.first_kept - 1, head.version)
    for table in dropped_in(timeline.newest_first(since, head.version)):
        # The version before the drop, the last that has the table, may have expired though the drop's own has not.
        if head.table_by_id(table.id) is None and not expired.has(table.version - 1):
            yield table


def find_dropped(timeline: Known, name: Name, *, id: str | None = None, case_sensitive: bool = True) -> DroppedTable:
    """Return the table of a name that was dropped last, or the one with this id, whatever it was called.

    Raises:
        UndefinedError (42P01): there is none.
        UnavailableError, CorruptTimelineError: an entry cannot be read.
    """

    def key(name: Name) -> Name:
        return name if case_sensitive else folded(name)

    for table in _dropped(timeline):  # of one that was settled it is said why it does not come back
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


@dataclass(frozen=True, slots=True)
class LastState:
    """How a dropped table was last.

    Attributes:
        table: as the last database version had it.
        kept_by: the database version for whose sake what is to come back of the table is there.
    """

    table: Table
    kept_by: int


def last_states(timeline: Known, then: Database, ids: Collection[str], through: int) -> dict[str, LastState]:
    """Return, by id, how tables of an older database version were when they were dropped last.

    Args:
        ids: which; those that were not dropped by then are left out.
        through: the newest database version that counts.

    Raises:
        ExpiredError: the drop of one has expired, and the history does not tell either.
        InvalidError: see `last_state`.
        UnavailableError, CorruptTimelineError: the timeline cannot be read.
    """
    left, expired, found = set(ids), timeline.head.expired, dict[str, LastState]()
    kept_since = max(then.version, min(expired.first_kept - 1, through))
    for dropped in dropped_in(timeline.newest_first(kept_since, through)):
        if dropped.id in left and not expired.has(dropped.version - 1):
            found[dropped.id] = LastState(last_state(timeline, dropped), dropped.version - 1)
            left.remove(dropped.id)
        if not left:
            return found
    if kept_since == then.version:
        return found
    version, entries = through, list[Entry]()
    for entry in timeline.past(after=then.version, through=through):
        if entry.version != version:
            break
        version -= 1
        if not left.isdisjoint(_tables_of(entry)):
            entries.append(entry)
    if version != then.version:
        names = ", ".join(sorted(str(then.index.ids[id_]) for id_ in left))
        raise ExpiredError(
            f"table {names} cannot come back: its DROP has expired, and parts of the history are lost that say how it "
            f"was last. Nothing was changed. Read it FOR SYSTEM_VERSION AS OF {then.version}, and CREATE TABLE … AS "
            "SELECT; restore the others by their names"
        )
    tables = {id_: table for id_ in left if (table := then.table_by_id(id_)) is not None}
    last = {id_: _at_last_drop(table, entries[::-1]) for id_, table in tables.items()}
    return found | {id_: LastState(table, then.version) for id_, table in last.items() if table is not None}


def _tables_of(entry: Entry) -> set[str]:
    """Return the ids of the tables that an entry changes."""
    written = {write.id for write in entry.writes} | {move.id for move in entry.moved}
    return written | {ddl.id for ddl in entry.tables}


def _at_last_drop(table: Table, entries: Iterable[Entry]) -> Table | None:
    """Return how a table was when it was dropped last; None if it was not. As `lockstep.timeline.fold` has it.

    Args:
        table: as it was before the entries.
        entries: oldest first.
    """
    there: Table | None = table
    last: Table | None = None
    for entry in entries:
        for ddl in (ddl for ddl in entry.tables if ddl.id == table.id):
            if ddl.action == "create":
                version = NEW if ddl.version is None else ddl.version
                there = Table(
                    id=ddl.id,
                    name=ddl.name,
                    location=ddl.location,
                    version=version,
                    since=entry.version,
                    digest=ddl.digest,
                )
            elif there is not None and ddl.action == "drop":
                there, last = None, there
            elif there is not None and ddl.new_name is not None:
                there = structs.replace(there, name=ddl.new_name, since=entry.version)
        for write in (write for write in entry.writes if write.id == table.id):
            if there is not None:
                there = _moved_on(there, write.to_version, write.digest, entry.version)
        for move in (move for move in entry.moved if move.id == table.id):
            if there is not None:
                there = _moved_on(there, move.to_version, "", entry.version)
            elif last is not None:
                last = _moved_on(last, move.to_version, "", last.since)
    return last


def _moved_on(table: Table, version: int, digest: str, since: int) -> Table:
    """Return a table at a version of its log, or at the later one at which it is already."""
    if version < table.version:
        return structs.replace(table, since=since)
    return structs.replace(table, version=version, digest=digest, since=since)
