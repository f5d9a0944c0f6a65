"""What Delta does for a table after its own commits and is left to do after a transaction's: checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lockstep.commit.outcomes import DueCheckpoint
from lockstep.delta.checkpoint_interval import due_checkpoint
from lockstep.delta.log import read_staged_checksum
from lockstep.errors import LockstepError
from lockstep.lake.publisher import Publication
from lockstep.storage import Storage
from lockstep.timeline.entry import Entry, TableWrite

_log = logging.getLogger(__name__)


def due_checkpoints(
    storage: Storage, entry: Entry, publication: Publication, staged: Mapping[str, Sequence[int]]
) -> tuple[DueCheckpoint, ...]:
    """Return which of the versions that a transaction made Delta would write a checkpoint of. It raises nothing.

    Args:
        publication: what became of the entry's writes; one that is not in its table's log has no version yet.
        staged: by table id, the versions that Delta staged, as far as they are known; their files are still there.
    """
    try:
        return tuple(_due(storage, entry, publication, staged))
    except Exception:  # noqa: BLE001 (logged; advice about a commit, which may not fail for it)
        _log.exception("of database version %d nobody knows which checkpoints are due", entry.version)
        return ()


def _due(
    storage: Storage, entry: Entry, publication: Publication, staged: Mapping[str, Sequence[int]]
) -> Iterator[DueCheckpoint]:
    for write in entry.writes:
        if (published := publication.writes.get(write.id)) is not None:
            checksum = published.checksum or _staged_checksum(storage, entry, write, staged.get(write.id, ()))
            if (version := due_checkpoint(published.versions, checksum.get("metadata") or {})) is not None:
                yield DueCheckpoint(write.location, version)


def _staged_checksum(storage: Storage, entry: Entry, write: TableWrite, versions: Sequence[int]) -> Mapping[str, Any]:
    """Return the checksum of the table as the transaction left it, for want of the published version's.

    A table has none at a version that another writer made, and so none at the next of ours, but Delta stages one with
    each commit. Empty where that is gone too, or the session had Delta write none: then the property is not known.
    """
    try:
        staged = read_staged_checksum(storage, write.location, entry.transaction.id, versions[-1]) if versions else None
    except LockstepError as error:
        _log.info("table %s: its checkpoints come at Delta's default interval: %s", write.name, error)
        return {}
    return staged or {}
