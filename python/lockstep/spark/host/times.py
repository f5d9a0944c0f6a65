"""Times as the shim and the host tell them: microseconds since 1970, UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from lockstep.errors import InvalidError

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
