"""Releasing tables: a lake gives them back as they are, wherever they lie and whoever made them.

To the timeline that is a drop. What makes it more: the folder is nobody's to delete from then on, as COMMIT writes down
(`lockstep.commit.guests`), no commit of the lake is missing in the table's log, and what Lockstep left in that log goes
with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.errors import InvalidError
from lockstep.lake.lake import Lake
from lockstep.storage.outside import check_reach
from lockstep.timeline.entry import Name, Table
from lockstep.transactions.names import Names
from lockstep.transactions.transaction import Transaction


def release(lake: Lake, tx: Transaction, tables: Sequence[Name]) -> list[Table]:
    """Take tables out of a lake in a transaction: all of them, or none; their folders stay as they are.

    Returns:
        The tables as they were, in the order of the names.

    Raises:
        InvalidError: this transaction has made, written or adopted one of them: not all of that is in its log yet; or
            (42501) one lies where nothing is deleted, see `lockstep.storage.outside.check_reach`.
        UndefinedError: there is no such table.
        ForeignCommitError, UnavailableError, CorruptTimelineError: one is set aside; or the store failed.
    """
    gone = [tx.names.table(name) for name in tables]
    for table in gone:
        if tx.base.table_by_id(table.id) is None or tx.has_written(table):
            raise InvalidError(
                f"table {table.name} cannot be released by the transaction that made, adopted or wrote it: COMMIT first"
            )
        # Before it is given back something of the lake's goes from its log.
        check_reach(lake.storage, table.location, f"table {table.name} at ")
        lake.publisher.refuse_aside(table)

    def give_back(names: Names) -> None:
        for table in gone:
            names.release_table(table.name)

    tx.change_names(give_back)
    return gone
