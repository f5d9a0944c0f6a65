"""Releasing tables: a lake gives them back as they are, wherever they lie and whoever made them.

To the timeline that is a drop. What makes it more: the folder is nobody's to delete from then on, as COMMIT writes down
(`lockstep.commit.guests`), no commit of the lake is missing in the table's log, and what Lockstep left in that log goes
with it.

A shallow clone names files of its source, which the lake deletes once no version of its own needs them. So it is only
given back where nobody deletes those: with its source, or if that is not the lake's to delete either.
"""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.display import counted
from lockstep.errors import InvalidError, LockstepError
from lockstep.lake.deletions import is_in_any
from lockstep.lake.guests import guests
from lockstep.lake.lake import Lake
from lockstep.lake.shared import files_elsewhere
from lockstep.storage.outside import check_reach
from lockstep.storage.urls import is_outside
from lockstep.timeline.entry import Name, Table
from lockstep.timeline.places import folders_above
from lockstep.transactions.names import Names
from lockstep.transactions.transaction import Transaction


def release(lake: Lake, tx: Transaction, tables: Sequence[Name]) -> list[Table]:
    """Take tables out of a lake in a transaction: all of them, or none; their folders stay as they are.

    Returns:
        The tables as they were, in the order of the names.

    Raises:
        InvalidError: this transaction has made, written or adopted one of them: not all of that is in its log yet; or
            one names files that the lake may delete; or (42501) one lies where nothing is deleted, see
            `lockstep.storage.outside.check_reach`.
        UndefinedError: there is no such table.
        ForeignCommitError, UnavailableError, CorruptTimelineError: one is set aside; or the store failed.
        UnsupportedError: its log cannot be read here, so that nobody knows which files it names.
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
    _check_shared(lake, tx.names, gone)

    def give_back(names: Names) -> None:
        for table in gone:
            names.release_table(table.name)

    tx.change_names(give_back)
    return gone


def _check_shared(lake: Lake, names: Names, gone: Sequence[Table]) -> None:
    """Raise InvalidError if a table names files of the lake's that upkeep, or VACUUM of their table, may delete.

    Args:
        gone: what is to be given back at once. What the transaction gave back before goes with it, too.
    """
    with_it = {table.location for table in (*gone, *names.released())}
    found = []
    for table, paths in zip(gone, lake.side_by_side(lambda each: _named_elsewhere(lake, each), gone), strict=True):
        if theirs := sorted(path for path in paths if not is_outside(path) and not is_in_any(path, with_it)):
            found.append((table, theirs))
    if not found:
        return
    free = {folder for folder in guests(lake.storage) if names.table_at(folder) is None}
    for table, theirs in found:
        if kept := [path for path in theirs if not is_in_any(path, free)]:
            raise _shares(table, kept, next(filter(None, map(names.table_at, folders_above(kept[0]))), None))


def _named_elsewhere(lake: Lake, table: Table) -> frozenset[str]:
    try:
        return files_elsewhere(lake.storage, table.location, table.version)
    except LockstepError as error:
        raise error.again(
            f" (so nobody knows whether table {table.name} shares files of others, and it cannot be released; nothing "
            "was changed)"
        ) from error


def _shares(table: Table, paths: Sequence[str], source: Table | None) -> InvalidError:
    """Return that a table cannot be given back by itself.

    Args:
        source: whose files they are; None of one that is not there any more.
    """
    whose = "a table that was dropped" if source is None else f"table {source.name}"
    together = "" if source is None else f"Release {source.name} in the same transaction, before it or with it; or "
    copy = "copy it (CREATE TABLE … AS SELECT), and release the copy"
    return InvalidError(
        f"table {table.name} cannot be released: its newest version has {counted(len(paths), 'file')} of {whose}, as a "
        f"shallow clone has, {paths[0]} for one. The lake keeps them for it only as long as it is a table of the lake, "
        f"and deletes them later. Nothing was changed. {together}{copy if together else copy[0].upper() + copy[1:]}"
    )
