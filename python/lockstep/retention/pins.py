"""Who needs older database versions, as the lake says: tags, exports, and open transactions."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lockstep.commit.records import MAX_TABLES, OpenRecord, look
from lockstep.errors import CorruptTimelineError
from lockstep.lake.exports import needed_versions
from lockstep.lake.kept import kept_tags
from lockstep.lake.lake import Lake
from lockstep.storage import Storage
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Name
from lockstep.transactions.state import State

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
        transactions: those that open transactions began at; None if there are too many to look at all of them.
        open_since: when the oldest of these began; None if none is open.
        open_ids: their ids.
        written: the tables that these have written; None where some do not say all of theirs.
    """

    tags: frozenset[int]
    exports: frozenset[int] | None
    transactions: frozenset[int] | None
    open_since: datetime | None
    open_ids: frozenset[str]
    written: frozenset[Name] | None = frozenset()

    def before(self, time: datetime) -> datetime:
        """Return the time before which what nobody names is no open transaction's, of what is older than a time."""
        if self.transactions is None:
            return datetime.min.replace(tzinfo=UTC)
        return time if self.open_since is None else min(time, self.open_since - CLOCKS)


def pins(lake: Lake, own: Collection[OpenRecord] = ()) -> Pins:
    """Read who needs what, by the newest version of the timeline that is known.

    Args:
        own: records of open transactions of this process, some of which nobody else has been told of.

    Raises:
        UnavailableError: the store failed.
    """
    now = lake.clock()  # first: who is stopped for long while he looks must not take those for lost whom he has seen
    found = look(lake)
    records, is_all = found.still_open, found.is_all
    still = {record.transaction: record for record in (*records, *own) if now - record.seen_at < LOST}
    tags = kept_tags(lake.timeline.head, now)
    return Pins(
        tags=frozenset(tag.version for tag in tags),
        exports=exported(lake.storage, now),
        transactions=frozenset(record.base_version for record in still.values()) if is_all else None,
        open_since=min((record.began_at for record in still.values()), default=None),
        open_ids=frozenset(still),
        written=_written([*records, *own]) if is_all else None,
    )


def _written(records: Collection[OpenRecord]) -> frozenset[Name] | None:
    """Return the tables that transactions say that they have written; None where one does not say all of them.

    That is so where a name is there twice: of the table that is being made under it nobody but the store knows.
    """
    by_id: dict[str, frozenset[Name]] = {}
    for record in records:  # of one that is busy its own process says less than it has told others
        by_id[record.transaction] = by_id.get(record.transaction, frozenset()) | frozenset(record.tables)
    says_less = {r.transaction for r in records if r.state != State.REQUESTED and not by_id[r.transaction]}
    has_another = any(len(set(r.tables)) < len(r.tables) for r in records)
    if says_less or has_another or any(len(names) >= MAX_TABLES for names in by_id.values()):
        return None
    return frozenset[Name]().union(*by_id.values())


def makes_tables(wanted: Pins, database: Database) -> bool:
    """Tell whether some open transaction makes, or may make, tables, of whose folders nobody but the store knows."""
    return wanted.written is None or any(name not in database.tables for name in wanted.written)


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
