"""Which folders a transaction makes somebody else's, written down before it commits: see `lockstep.lake.guests`.

COMMIT writes it, and no statement: what a statement did may be undone, by ROLLBACK or ROLLBACK TO, and a folder of the
lake's own that is written down as somebody else's is never cleaned up again.
"""

from __future__ import annotations

from lockstep.lake.guests import note_guests, path_of
from lockstep.lake.lake import Lake
from lockstep.storage.urls import is_outside
from lockstep.timeline.entry import Table
from lockstep.transactions.names import Names
from lockstep.transactions.transaction import Transaction


def keep_guests(lake: Lake, tx: Transaction) -> None:
    """Write down which folders are not the lake's to delete once a transaction is committed.

    Raises:
        UnavailableError: the store failed; the transaction must not commit.
    """
    theirs = {table.location for table in _theirs(tx.names) if not is_outside(table.location)}
    if theirs:
        tx.notes_guests = True  # first, for what failed may have been written
        note_guests(lake.storage, tx.id, theirs)
    else:
        forget_guests(lake, tx)


def forget_guests(lake: Lake, tx: Transaction) -> None:
    """Remove what a transaction has written down that does not commit, at best effort: what stays keeps files."""
    if tx.notes_guests:
        lake.delete([], [path_of(tx.id)])
        tx.notes_guests = False


def _theirs(names: Names) -> list[Table]:
    """Return the tables that a transaction takes in, and those that it gives back."""
    return [*(table for table in names.returned() if names.is_adopted(table)), *names.released()]
