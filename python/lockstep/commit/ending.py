"""How a transaction ends: committed by an entry, found to be so when COMMIT's answer was lost, or rolled back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from lockstep.commit.maintenance import Properties, due_checkpoints, of_entry
from lockstep.commit.outcomes import Committed, InDoubt
from lockstep.delta.combine.collapse import created_paths
from lockstep.delta.log import read_staged, staging_folder
from lockstep.errors import LockstepError
from lockstep.lake.lake import Lake
from lockstep.timeline.entry import NEW, Entry
from lockstep.transactions.transaction import State, Transaction

_log = logging.getLogger(__name__)


# --- committed --------------------------------------------------------------------------------------------------------


def finish(
    lake: Lake, tx: Transaction, entry: Entry, *, fresh: bool, properties: Callable[[], Properties] | None = None
) -> Committed:
    """Complete a transaction whose entry is ratified, and publish it.

    Args:
        fresh: whether it was ratified just now, see `Publisher.try_publish`.
        properties: what the written tables say, if somebody has asked.
    """
    tx.complete(entry.version)  # first of all: from here on nothing may undo it
    is_published = lake.publisher.try_publish(entry, fresh=fresh)
    checkpoints = due_checkpoints(lake, entry, properties or partial(of_entry, lake, entry))
    lake.after_commit(entry, is_published=is_published, checksums=True, folders=_leftovers(tx))
    return Committed(entry.version, entry, checkpoints)


def _leftovers(tx: Transaction) -> list[str]:
    """Return folders that a published transaction needs no longer: its staging, tables that it made and dropped."""
    return [
        staging_folder(table.location, tx.id) for table in (*tx.written_tables(), *tx.dropped_tables)
    ] + tx.abandoned_folders()


# --- in doubt ---------------------------------------------------------------------------------------------------------


def find_landed(lake: Lake, tx: Transaction) -> Committed | None:
    """Return what an earlier COMMIT, whose answer was lost, did after all; None if it is not in the timeline.

    Raises:
        UnavailableError: the store does not say, or not whether the entry is durable; the transaction stays as it is.
    """
    entry = _entry_of(lake, tx.id, tx.base.version)
    return None if entry is None else finish_found(lake, tx, entry)


def _entry_of(lake: Lake, transaction: str, after: int) -> Entry | None:
    lake.timeline.refresh()
    return next((entry for entry in lake.timeline.scan(after) if entry.transaction.id == transaction), None)


def finish_found(lake: Lake, tx: Transaction, entry: Entry) -> Committed:
    """Complete a transaction whose entry was read in the timeline.

    Raises:
        UnavailableError: the store does not say whether the entry is durable; the transaction stays as it is.
    """
    lake.timeline.secure(entry)
    return finish(lake, tx, entry, fresh=False)


def settle_doubt(lake: Lake, version: int, tx: Transaction) -> Committed | None:
    """Return what an earlier COMMIT as this version did; None once it is sure that it did nothing and never will.

    Raises:
        UnavailableError: the store does not say; asking again is safe.
    """
    lake.occupy(version)
    return find_landed(lake, tx)


def settle_orphan(lake: Lake, transaction: str, snapshot: int) -> Committed | None:
    """Return what the COMMIT of a process that is gone did; None once it is sure that it did nothing and never will.

    Its last write can only be of a database version up to the next: a process asks for one after the other.

    Args:
        transaction: its id.
        snapshot: the database version that it began at.

    Raises:
        UnavailableError: the store does not say; asking again is safe.
    """
    entry = _entry_of(lake, transaction, snapshot)
    if entry is None:
        lake.occupy(lake.timeline.head.version + 1)
        entry = _entry_of(lake, transaction, snapshot)
    if entry is None:
        return None
    lake.timeline.secure(entry)
    is_published = lake.publisher.try_publish(entry, fresh=False)
    checkpoints = due_checkpoints(lake, entry, partial(of_entry, lake, entry))
    folders = [staging_folder(write.location, transaction) for write in entry.writes]
    lake.after_commit(entry, is_published=is_published, checksums=True, folders=folders)
    return Committed(entry.version, entry, checkpoints)


# --- rolled back ------------------------------------------------------------------------------------------------------


def rollback(lake: Lake, tx: Transaction) -> Committed | InDoubt | None:
    """End a transaction without a trace: its staging folders, and the data files that only it named, are removed.

    Returns:
        None, unless a COMMIT's answer was lost. `Committed`: it had landed, and stays. `InDoubt`: the store still does
        not say; the transaction has ended, and all its files stay, for they may be part of a database version.
    """
    if tx.in_doubt is not None:
        try:
            if (result := settle_doubt(lake, tx.in_doubt, tx)) is not None:
                return result
        except LockstepError as error:
            tx.state = State.ROLLED_BACK
            return InDoubt(tx.in_doubt, error)
    undo(lake, tx)
    return None


def undo(lake: Lake, tx: Transaction) -> None:
    """Roll back a transaction of which it is certain that it is not committed."""
    tx.state = State.ROLLED_BACK
    discard(lake, tx)


def discard(lake: Lake, tx: Transaction) -> None:
    """Remove what only this transaction named, at best effort: what stays is litter, never data."""
    folders, files = [*tx.created_folders()], [*tx.vectors]
    for table in (*tx.written_tables(), *tx.dropped_tables):
        if table.version == NEW:
            continue
        folders.append(staging_folder(table.location, tx.id))
        try:
            commits = [read_staged(lake.storage, table.location, tx.id, version) for version in tx.staged[table.id]]
        except LockstepError as error:
            _log.warning("files that transaction %s wrote into table %s stay: %s", tx.id, table.name, error)
            continue
        files += [f"{table.location}/{path}" for path in created_paths(commits)]
    lake.delete(folders, files)
