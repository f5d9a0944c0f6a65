"""What a new tag is to be, from what its maker says."""

from __future__ import annotations

from datetime import datetime, timedelta

from lockstep.errors import InvalidError
from lockstep.timeline.clock import to_millisecond
from lockstep.timeline.entry import TagDdl

MOST_DAYS = 36_500
"""So many days at most may a tag be kept that is not kept for ever."""


def new_tag(name: str, *, version: int | None, days: int | None, comment: str, now: datetime) -> TagDdl:
    """Return the entry's part that makes a tag.

    Args:
        name: see `lockstep.transactions.ddl.check_tag`, which its transaction asks.
        version: the database version that gets the name; None is the one that the entry makes.
        days: for how long what it names is kept; None is for ever.
        comment: what for.
        now: from when on the days count.

    Raises:
        InvalidError: fewer than one day, or more than `MOST_DAYS`.
    """
    if days is not None and not 0 < days <= MOST_DAYS:
        raise InvalidError(f"retain_days is {days}: expected 1 to {MOST_DAYS}")
    until = None if days is None else to_millisecond(now + timedelta(days=days))
    return TagDdl(action="create", name=name, version=version, retain_until=until, comment=comment)
