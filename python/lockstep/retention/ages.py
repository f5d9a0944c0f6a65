"""What somebody says about retention, as values; the defaults are those of the settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from lockstep.errors import InvalidError
from lockstep.lake.deletions import YOUNGEST
from lockstep.retry import seconds
from lockstep.settings import DELETION_GRACE, ORPHAN_AGE, RETENTION_AGE, RETENTION_VERSIONS

REMOVED = "delta.deletedFileRetentionDuration"
LOGS = "delta.logRetentionDuration"
CLEANS_LOGS = "delta.enableExpiredLogCleanup"
DEFAULTS = {REMOVED: "interval 1 week", LOGS: "interval 30 days"}

LONGEST = timedelta(days=365_000)
"""Who asks for longer asks for ever, and there was a time so long ago."""

_UNITS = {
    "microsecond": timedelta(microseconds=1),
    "millisecond": timedelta(milliseconds=1),
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
_PART = re.compile(r"([0-9]{1,9})\s+([a-z]+)")


@dataclass(frozen=True, slots=True)
class Retention:
    """What is kept for how long.

    Attributes:
        age: a database version stays while it was the newest at some time within this.
        last: so many of the newest stay.
        grace: how long a file is marked before it goes, and how long a version stays at which a reader may have begun.
        orphan_age: so old is litter when it goes.
    """

    age: timedelta
    last: int
    grace: timedelta
    orphan_age: timedelta

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Retention:
        """Return what a catalog's options say.

        Raises:
            InvalidError: one of them is not what it must be.
        """
        last = RETENTION_VERSIONS.value_in(options) or ""
        if not last.isdecimal() or int(last) < 1:
            raise InvalidError(f"{RETENTION_VERSIONS.name} is {last!r}: expected a number, 1 or more")
        if (orphan_age := _age(seconds(ORPHAN_AGE, options))) < YOUNGEST:
            raise InvalidError(
                f"{ORPHAN_AGE.name} is {ORPHAN_AGE.value_in(options)!r}, less than an hour: what is so young may be "
                "what a statement is writing"
            )
        return cls(
            age=_age(seconds(RETENTION_AGE, options)),
            last=int(last),
            grace=_age(seconds(DELETION_GRACE, options)),
            orphan_age=orphan_age,
        )


def _age(said: float) -> timedelta:
    """Return how long so many seconds are; `LONGEST` at most."""
    return timedelta(seconds=min(said, LONGEST.total_seconds()))


def duration_of(properties: Mapping[str, str], name: str) -> timedelta | None:
    """Return what a table's property says, as Delta reads it; None if it is no duration, so that nobody can tell.

    It is `LONGEST` at most.
    """
    text = properties.get(name, DEFAULTS[name]).strip().lower().removeprefix("interval").strip()
    parts = _PART.findall(text)
    units = [_UNITS.get(unit.removesuffix("s")) for _, unit in parts]
    if not parts or _PART.sub("", text).strip():
        return None
    whole = timedelta()
    for (number, _), unit in zip(parts, units, strict=True):
        if unit is None:
            return None
        try:
            whole = min(whole + int(number) * unit, LONGEST)
        except OverflowError:
            whole = LONGEST
    return whole
