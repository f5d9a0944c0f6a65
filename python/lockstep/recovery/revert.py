"""What takes back one transaction alone: what it touched becomes what it was, if nobody has touched it since."""

from __future__ import annotations

from collections.abc import Iterable

from lockstep.errors import InvalidError
from lockstep.recovery.restore import Selection
from lockstep.timeline.entry import Entry
from lockstep.timeline.functions import said
from lockstep.transactions.transaction import Transaction


def touched_by(entry: Entry) -> Selection:
    """Return what an entry changed: tables by id, views and namespaces by name."""
    return Selection(
        bare=frozenset(ddl.name for ddl in entry.namespaces),
        views=frozenset(ddl.name for ddl in entry.views),
        ids=frozenset(
            {ddl.id for ddl in entry.tables} | {write.id for write in entry.writes} | {move.id for move in entry.moved}
        ),
    )


def check_revertible(entry: Entry, later: Iterable[Entry]) -> None:
    """Raise InvalidError unless an entry can be taken back behind the later ones.

    It cannot where a later one changed what it changed: a table, a view or a namespace.
    """
    mine = touched_by(entry)
    if entry.moved:
        raise InvalidError(
            f"database version {entry.version} cannot be reverted: it takes in what a plain Delta writer committed, "
            "and in the table's log an earlier database version stands behind that"
        )
    if not (mine.bare or mine.views or mine.ids):
        raise InvalidError(f"database version {entry.version} changed no table, view or namespace: nothing to revert")
    for other in later:
        theirs = touched_by(other)
        if theirs.ids & mine.ids or theirs.views & mine.views or theirs.bare & mine.bare:
            what = ", ".join(sorted(_shared(entry, other)))
            raise InvalidError(
                f"database version {entry.version} cannot be reverted: version {other.version} (transaction "
                f"{other.transaction.id}) changed {what} after it. Revert that one first, newest first, or restore "
                f"the whole with RESTORE DATABASE … TO VERSION {entry.version - 1}"
            )


def check_untouched(touched: Selection, tx: Transaction) -> None:
    """Raise InvalidError if a transaction has itself changed what is to become what it was: that would be gone."""
    base, names = tx.base, tx.names
    own = [
        *(id_ for id_ in touched.ids if id_ in tx.staged or base.table_by_id(id_) != names.table_by_id(id_)),
        *(str(name) for name in touched.views if base.views.get(name) != names.views.get(name)),
        *(".".join(name) for name in touched.bare if base.namespaces.get(name) != names.namespaces.get(name)),
    ]
    if own:
        found = {id_: str(table.name) for id_ in own if (table := names.table_by_id(id_) or base.table_by_id(id_))}
        what = ", ".join(sorted(found.get(each, each) for each in own))
        raise InvalidError(f"this transaction itself changed {what}: COMMIT or ROLLBACK it first, and revert then")


def _shared(entry: Entry, other: Entry) -> set[str]:
    """Return what two entries both changed, as a message names it."""
    mine, theirs = touched_by(entry), touched_by(other)
    names = {write.id: write.name for write in (*entry.writes, *other.writes)}
    names |= {ddl.id: ddl.name for ddl in (*entry.tables, *other.tables)}
    return (
        {f"table {names.get(id_, id_)}" for id_ in mine.ids & theirs.ids}
        | {said(name) for name in mine.views & theirs.views}
        | {f"namespace {'.'.join(name)}" for name in mine.bare & theirs.bare}
    )
