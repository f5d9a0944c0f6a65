"""ROLLBACK TO a savepoint: undo the end of an open transaction, staged commits and the files that only they named."""

from __future__ import annotations

import logging
import re

from lockstep.commit.elsewhere import give_back, remove_staged
from lockstep.delta.actions import Action
from lockstep.delta.combine.collapse import created_paths
from lockstep.delta.log import read_staged, staging_folder
from lockstep.errors import CorruptTimelineError, LockstepError
from lockstep.lake.lake import Lake
from lockstep.timeline.entry import Table
from lockstep.transactions.transaction import Transaction

_VERSION = re.compile(r"(?:\d{20}\.(?=\d{20}\.compacted\.json))?(\d{20})")
"""The version of a log's file; of several commits put together the last, which counts for the overlay, too."""

_log = logging.getLogger(__name__)


def rollback_to(lake: Lake, tx: Transaction, name: str) -> None:
    """Undo all that a transaction did since a savepoint, which stays.

    Delta's cached log of a URI never goes back, so the transaction goes on under new URIs (`Transaction.epoch`).

    Raises:
        UndefinedError (3B001): it has no such savepoint.
        FailedTransactionError: it has failed for good, see `Transaction.rollback_to`.
        UnavailableError: the store failed half-way; what is left of the undone statements would be seen again, so the
            transaction has failed, and can only be rolled back as a whole. So it has if this is interrupted.
    """
    undone = tx.go_back_to(name)
    try:
        # First, and whatever the store says of others: a later ROLLBACK knows nothing of these any more.
        lake.delete(undone.folders, [])
        emptied = {table.location: remove_staged(lake, tx.id, table, versions) for table, versions in undone.made}
        for location in undone.elsewhere:
            if give_back(lake, tx.id, location, emptied.get(location, ())):
                tx.claimed.discard(location)
        for table, kept_versions, cut_versions in undone.cut:
            _cut(lake, tx, table, kept_versions, cut_versions)
        lake.delete([], undone.vectors)  # nothing names them any more
    except BaseException as error:  # whoever is interrupted leaves as much
        why = error.message if isinstance(error, LockstepError) else repr(error)
        tx.failure = f"ROLLBACK TO {name} could not undo everything: {why}"
        raise


def _cut(lake: Lake, tx: Transaction, table: Table, kept_versions: list[int], cut_versions: list[int]) -> None:
    """Take staged versions of a table away: the log files first, for those are seen, then data files that they made."""
    litter = _created_files(lake, tx, table, kept_versions, cut_versions)
    folder = staging_folder(table.location, tx.id)
    last = kept_versions[-1] if kept_versions else table.version
    for log_file in lake.storage.list(folder):
        version = _VERSION.match(log_file)
        if version is None or int(version[1]) > last:  # what has no version is a hint, `_last_checkpoint`
            lake.storage.delete(f"{folder}/{log_file}")
    lake.delete([], [f"{table.location}/{path}" for path in litter])


def _created_files(
    lake: Lake, tx: Transaction, table: Table, kept_versions: list[int], cut_versions: list[int]
) -> set[str]:
    """Return the files that only the commits to be cut made; none, which leaves litter, if they cannot be read."""
    commits = _staged(lake, tx, table, [*kept_versions, *cut_versions])
    return created_paths(commits) - created_paths(commits[: len(kept_versions)])


def _staged(lake: Lake, tx: Transaction, table: Table, versions: list[int]) -> list[list[Action]]:
    """Return what staged versions of a table say; nothing, which leaves litter, if they cannot be read."""
    try:
        return [read_staged(lake.storage, table.location, tx.id, version) for version in versions]
    except CorruptTimelineError as error:
        _log.warning("files of statements that were undone in table %s stay: %s", table.name, error)
        return []
