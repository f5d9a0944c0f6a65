"""Who needs older database versions, as the lake says: tags, exports, and open transactions."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from lockstep.commit.records import MAX_RECORDS, OpenRecord, open_transactions
from lockstep.errors import CorruptTimelineError
from lockstep.lake.exports import needed_versions
from lockstep.lake.kept import kept_tags
from lockstep.lake.lake import Lake
from lockstep.storage import Storage

LOST = timedelta(days=1)
"""A transaction whose process has not been seen for so long keeps nothing any more."""

CLOCKS = timedelta(minutes=10)
"""So far apart the clocks of the store and of processes may be."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pins:
    """The database versions that are needed by name or by reference, and the transactions that are open.

    Attributes:
        tags: the versions that tags name which are not past their time.
        exports: those that exports refer to; None where one cannot be read.
        transactions: those that open transactions began at; None if there are too many to look at.
        open_since: when the oldest of these began; None if none is open.
        open_ids: their ids.
    """

    tags: frozenset[int]
    exports: frozenset[int] | None
    transactions: frozenset[int] | None
    open_since: datetime | None
    open_ids: frozenset[str]


def pins(lake: Lake, own: Collection[OpenRecord] = ()) -> Pins:
    """Read who needs what, by the newest version of the timeline that is known.

    Args:
        own: records of open transactions of this process, some of which nobody else has been told of.

    Raises:
        UnavailableError: the store failed.
    """
    records = open_transactions(lake)
    now = lake.clock()
    still = {record.transaction: record for record in (*records, *own) if now - record.seen_at < LOST}
    tags = kept_tags(lake.timeline.head, now)
    return Pins(
        tags=frozenset(tag.version for tag in tags),
        exports=exported(lake.storage, now),
        transactions=None
        if len(records) >= MAX_RECORDS
        else frozenset(record.base_version for record in still.values()),
        open_since=min((record.began_at for record in still.values()), default=None),
        open_ids=frozenset(still),
    )


def exported(storage: Storage, now: datetime) -> frozenset[int] | None:
    """Return the database versions that exports refer to; None where a record cannot be read, which keeps all.

    Raises:
        UnavailableError: the store failed.
    """
    try:
        return needed_versions(storage, now)
    except CorruptTimelineError as error:
        _log.warning("nothing that an export may need is deleted: %s", error.message)
        return None
