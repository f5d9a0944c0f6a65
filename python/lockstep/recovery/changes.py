"""What a transaction does to bring back what was: the timeline is read here, and what that means is decided elsewhere.

Each is a part of a transaction: nothing of it is visible before COMMIT. Names come back at once; what is to be restored
in tables' logs is returned, for Delta to do it (`RESTORE TABLE`), which looks for every file first.
"""

from __future__ import annotations

from lockstep.delta.log import commit_path, was_published
from lockstep.errors import MissingFilesError, UndefinedError
from lockstep.recovery.dropped import dropped_in, find_dropped, last_state
from lockstep.recovery.restore import Selection, TableRestore, gone, restore
from lockstep.recovery.revert import check_revertible, touched_by
from lockstep.timeline.entry import Database, Name, Table
from lockstep.timeline.known import Known
from lockstep.transactions.transaction import Transaction


def undrop(timeline: Known, tx: Transaction, name: Name, *, id: str | None = None) -> Table:
    """Bring back the table of a name that was dropped last, or the one with an id under this name.

    Returns:
        How it was last, which is how it is again.

    Raises:
        UndefinedError: no such table was dropped; no such namespace (3F000).
        DuplicateError, InvalidError: see `Names.undrop_table`.
        MissingFilesError: its log is gone.
        UnavailableError, CorruptTimelineError: the timeline cannot be read.
    """
    table = last_state(timeline, find_dropped(timeline, name, id=id, case_sensitive=tx.case_sensitive))
    _check_log(timeline, table)
    tx.change_names(lambda names: names.undrop_table(table, name if id is not None else table.name))
    return table


def restore_to(timeline: Known, tx: Transaction, then: Database, selection: Selection) -> list[TableRestore]:
    """Take a transaction's view of the database, or a part of it, back to an older version; see `restore`.

    Raises:
        UndefinedError: the selection names what is neither there nor was.
        LockstepError: see `restore`, `Transaction.changing` and `Known`.
    """
    for name in sorted(selection.names):
        if not any(name in each for scope in (then, tx.names) for each in (scope.tables, scope.views)):
            raise UndefinedError(f"no table or view {name} now, nor in database version {then.version}")
    for namespace in sorted(selection.namespaces):
        if namespace not in then.namespaces and namespace not in tx.names.namespaces:
            raise UndefinedError(f"no namespace {'.'.join(namespace)} now, nor in database version {then.version}")
    return _restore(timeline, tx, then, selection)


def revert(timeline: Known, tx: Transaction, version: int) -> list[TableRestore]:
    """Take back what one database version changed, in a transaction; see `lockstep.recovery.revert`.

    Raises:
        InvalidError: a later version changed some of it too; or there is no such version.
        LockstepError: see `restore`, `Transaction.changing` and `Known`.
    """
    [entry] = timeline.entries(version - 1, version)
    check_revertible(entry, timeline.scan(version, tx.base.version))
    return _restore(timeline, tx, timeline.at(version - 1), touched_by(entry))


def _restore(timeline: Known, tx: Transaction, then: Database, selection: Selection) -> list[TableRestore]:
    """Give names their old meaning, with what the timeline says of the tables that come back."""
    missing = {table.id for table in gone(tx.names, then, selection)}
    last_states = {}
    if missing:
        for dropped in dropped_in(timeline.newest_first(then.version, tx.base.version)):
            if dropped.id in missing:
                last_states[dropped.id] = table = last_state(timeline, dropped)
                _check_log(timeline, table)
    return tx.change_names(lambda names: restore(names, then, last_states, tx.staged, selection))


def _check_log(timeline: Known, table: Table) -> None:
    """Raise MissingFilesError if the log of a dropped table does not reach to where it ended."""
    if not was_published(timeline.storage, table.location, table.version):
        raise MissingFilesError(
            f"table {table.name} cannot come back: its log does not reach version {table.version} any more, "
            f"{commit_path(table.location, table.version)} is gone. Nothing was changed"
        )
