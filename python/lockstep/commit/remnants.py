"""What a released table's log has of transactions that lost: of a side that was not kept when the table was settled.

A commit whose version a plain Delta writer took is in no log, and what its transaction staged may be all there is of
it, so that stays until a person decides (`lockstep.recovery.settle`). Behind that decision nobody publishes it any
more, and no database version that names it can be read. While the lake has the table, upkeep removes it; once the table
is given back, upkeep looks there no more, for what is staged then may be another lake's.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from lockstep.delta.log import LOG, staging_folder
from lockstep.errors import LockstepError
from lockstep.lake.lake import Lake
from lockstep.timeline.entry import Table

ENDED_BEFORE = timedelta(days=1)
"""A transaction's entry is at most so much older, by its own clock, than what it staged last."""

_log = logging.getLogger(__name__)


def remove_remnants(lake: Lake, table: Table) -> None:
    """Remove what transactions staged that have committed, and that nobody needs, from a table just released.

    At best effort: what stays is litter. What others staged stays, for their transactions may be open.
    """
    try:
        lake.delete([staging_folder(table.location, id_) for id_ in _not_needed(lake, table)], [])
    except LockstepError as error:
        _log.warning("what transactions staged in the log of %s stays, which does no harm: %s", table.location, error)


def _not_needed(lake: Lake, table: Table) -> frozenset[str]:
    """Return the ids of transactions whose staging in a table's log nobody needs.

    Each has committed, so none is open; and what it wrote there is published, or was settled against.

    Raises:
        UnavailableError, CorruptTimelineError: as the store and the timeline say.
    """
    folder = f"{table.location}/{LOG}/_lockstep/"
    found = [each for each in lake.storage.walk(folder.rstrip("/")) if "/" in each.path.removeprefix(folder)]
    if not found:
        return frozenset()
    ids = {each.path.removeprefix(folder).partition("/")[0] for each in found}
    is_published = lake.publisher.has_published(table)
    settled = lake.timeline.head.settled
    gone: set[str] = set()
    since = min(each.modified_at for each in found) - ENDED_BEFORE
    for entry in lake.timeline.past(since=since):
        if (id_ := entry.transaction.id) not in ids:
            continue
        writes = [write.id for write in entry.writes if write.location == table.location]
        if all(each in settled or (each == table.id and is_published) for each in writes):
            gone.add(id_)
        ids.discard(id_)
        if not ids:
            break
    return frozenset(gone)
