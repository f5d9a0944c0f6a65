"""Tables that had diverged and were settled: what their logs say of older database versions, and what they do not.

Whichever side is kept, the log has, from the version at which the two differ, what the other writer committed. A
database version from before the settlement that names one of these versions says something else than its log, and
nothing but the log could be read. So that is refused, of this table alone: the head's `settled` has, by the id that the
table had, the last version up to which the two say the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from lockstep.errors import ForeignCommitError, LockstepError
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Entry, Table


def refusal(head: Database, table: Table) -> ForeignCommitError | None:
    """Return why a table of an older database version cannot be read, as the newest one says; None if it can."""
    right_through = head.settled.get(table.id)
    if right_through is None or table.version <= right_through:
        return None
    right = f"up to version {right_through}" if right_through >= 0 else "at no version"
    return ForeignCommitError(
        f"table {table.name} cannot be read at version {table.version} of its log, at which database versions from "
        f"before it was settled know it: the log says what they do {right}, and another Delta writer's commits follow. "
        "Read an older database version of it, or one from the settlement on; an open transaction begins again"
    )


def set_aside_in(old: Database, head: Database) -> dict[str, LockstepError]:
    """Return, by id, the tables of an older database version that cannot be read, and why."""
    tables = (table for id_ in head.settled if (table := old.table_by_id(id_)) is not None)
    return {table.id: error for table in tables if (error := refusal(head, table)) is not None}


def successors(tables: Iterable[Table], entries: Iterable[Entry]) -> dict[str, str]:
    """Return, by the ids of tables that were settled since, the ids that those in their folders have had since then.

    A log says of a version what it said to older database versions if every settlement since left it as it was.

    Args:
        tables: of an older database version.
        entries: all that came after it, oldest first.

    Returns:
        Only tables of which the log still says what they were then. Whether the others in the folders are still there
        is not looked at.
    """
    there = {table.id: table for table in tables}
    now = {id_: id_ for id_ in there}
    for entry in entries:
        drops = {ddl.id: ddl.right_through for ddl in entry.tables if ddl.right_through is not None}
        for id_, current in [*now.items()]:
            if (right_through := drops.get(current)) is None:
                continue
            table = there[id_]
            made = [ddl.id for ddl in entry.tables if ddl.action == "create" and ddl.location == table.location]
            if made and table.version <= right_through:
                now[id_] = made[0]
            else:
                del now[id_]
    return {id_: current for id_, current in now.items() if current != id_}


def settles(entry: Entry, id: str) -> bool:
    """Tell whether an entry settled a table that has this id since."""
    names = {ddl.name for ddl in entry.tables if ddl.action == "create" and ddl.id == id}
    return any(ddl.right_through is not None and ddl.name in names for ddl in entry.tables)
