"""Which database version a statement, or a transaction, reads; and how it moves on to a later one.

It is chosen at the first relation of a statement, and at BEGIN. What a plain Delta writer did to a table is found when
the table is first used, and is in a later database version. Where all that was seen is the same in that version, nobody
can tell it from the one that was chosen, and it takes its place; else the commit is not visible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import takewhile

from msgspec import structs

from lockstep.errors import InvalidError
from lockstep.lake.lake import Lake
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Name, Table
from lockstep.timeline.settlements import refusal
from lockstep.transactions.lookup import tagged_version
from lockstep.transactions.names import Names
from lockstep.transactions.transaction import Transaction

# --- a statement on its own -------------------------------------------------------------------------------------------


def of_statement(lake: Lake, touching: Iterable[Name], pin: int, seen: Sequence[Name]) -> Database:
    """Return the database version that a statement outside a transaction goes on with.

    Args:
        touching: what the statement is about to use, and has not looked at yet.
        pin: the version that it has read until now.
        seen: what it was told at that version, whether or not there was such a table or view.

    Raises:
        InvalidError: the lake never had the version `pin`.
        ForeignCommitError, UnavailableError, CorruptTimelineError: as the store and the logs say.
    """
    pinned = _pinned(lake, pin)
    head = lake.timeline.head
    tables = [table for name in touching if name in pinned.tables and (table := head.tables.get(name)) is not None]
    if not lake.take_in(tables):
        return pinned
    newest = lake.refresh()
    if _is_same(pinned, newest, seen):
        return newest
    later = (lake.timeline.at(version) for version in range(pin + 1, newest.version))
    *_, last = [pinned, *takewhile(lambda database: _is_same(pinned, database, seen), later)]
    return structs.replace(last, set_aside=newest.set_aside | pinned.set_aside | last.set_aside)


def _pinned(lake: Lake, version: int) -> Database:
    """Return a database version that is published, but for what it has set aside."""
    if lake.timeline.published_through >= version:
        return lake.timeline.at(version)
    newest = lake.refresh()  # another process chose it, or a table of it cannot be published
    pinned = lake.timeline.at(version)
    return structs.replace(pinned, set_aside=newest.set_aside | pinned.set_aside)


def _is_same(one: Database, other: Database, names: Iterable[Name]) -> bool:
    """Tell whether all that these names mean is the same in two database versions: table, version, view or nothing."""
    return all(one.tables.get(n) == other.tables.get(n) and one.views.get(n) == other.views.get(n) for n in names)


# --- the past ---------------------------------------------------------------------------------------------------------


def older(lake: Lake, when: int | datetime | str, *, at_most: int | None, names: Names | None) -> Database:
    """Return an older database version: by number, as it was at a time, or by a tag; what it ratified is published.

    Args:
        at_most: a snapshot's version: nothing newer exists for it.
        names: what says what a tag means; the newest version's where None.

    Raises:
        InvalidError, UndefinedError: see `lockstep.catalog.TransactionalCatalog.as_of`.
        UnavailableError, CorruptTimelineError: as the timeline says.
    """
    head = lake.refresh()
    if isinstance(when, str):
        when = tagged_version(head if names is None else names, when)
    database = lake.timeline.at_time(when) if isinstance(when, datetime) else lake.timeline.at(when)
    if database.version > head.version:
        head = lake.refresh()  # another thread read on meanwhile: what it found is published first
    if at_most is not None and database.version > at_most:
        if not isinstance(when, datetime):
            raise InvalidError(
                f"database version {when} is newer than this transaction's snapshot, version {at_most}: read it "
                "outside the transaction, or begin another"
            )
        database = lake.timeline.at(at_most)
    if not head.set_aside:
        return database
    return structs.replace(database, set_aside=head.set_aside | database.set_aside)


# --- a transaction ----------------------------------------------------------------------------------------------------


def look(lake: Lake, tx: Transaction, names: Iterable[Name]) -> None:
    """Take in what plain Delta writers did to tables that a transaction is about to use for the first time.

    Its snapshot moves on to the last database version that has any of it and in which all that it has seen is the same.
    Where it stays what it is, as that of an older version does, the logs are to say what it says.

    Args:
        names: the tables; names that none has in the snapshot are passed over, and so is what was looked at before.

    Raises:
        ForeignCommitError, UnavailableError, CorruptTimelineError: as the store and the logs say.
    """
    names = list(names)
    tables = tx.to_look_at(names)
    if tx.is_fixed:
        lake.check_past(tables)
    else:
        _take_in(lake, tx, tables)
    for name in names:  # what was settled since BEGIN has no log any more that says what the snapshot does
        table = tx.names.tables.get(name)
        if table is not None and (settled := refusal(lake.timeline.head, table)) is not None:
            raise settled
    tx.looked_at(tables)


def _take_in(lake: Lake, tx: Transaction, tables: Iterable[Table]) -> None:
    versions = {table.id: table.version for table in tables}
    now = [table for id_ in versions if (table := lake.timeline.head.table_by_id(id_)) is not None]
    # Others may have taken it in since BEGIN.
    if lake.take_in(now) or any(table.version != versions[table.id] for table in now):
        _move_on(lake, tx, versions.keys())


def _move_on(lake: Lake, tx: Transaction, tables: Iterable[str]) -> None:
    newest = lake.refresh()
    before = tx.base.version
    version = tx.seen.moved_to(lake.timeline.scan(before, newest.version), before, set(tables))
    if version > before:
        base = newest if version == newest.version else lake.timeline.at(version)
        base = structs.replace(base, set_aside=newest.set_aside | tx.base.set_aside | base.set_aside)
        tx.move_to(base, lake.timeline.scan(before, version))
