"""Times as the shim and the host tell them: microseconds since 1970, UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from lockstep.errors import InvalidError
from lockstep.timeline.database import Database

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(micros: int) -> datetime:
    """Return the time that is meant.

    Raises:
        InvalidError: it is beyond the years 1 to 9999.
    """
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError as error:
        raise InvalidError("no database version is of that time: give one of the years 1 to 9999") from error


def micros_of(time: datetime) -> int:
    """Return a time, which has a zone, as it is told."""
    return (time - _EPOCH) // timedelta(microseconds=1)


def reaches_beyond(when: object, snapshot: Database) -> bool:
    """Tell whether a time means a snapshot only because nothing newer exists for it.

    What is committed next may be meant, too: who reads a table as of such a time reads it as it is now.
    """
    return isinstance(when, datetime) and when > snapshot.committed_at
