"""Time: the clock of this process, what entries keep of it, and what to say of another one that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from lockstep.timeline.database import Database
from lockstep.timeline.entry import Entry

Clock: TypeAlias = Callable[[], datetime]

FAR_AHEAD = timedelta(minutes=1)
"""How far an entry's time may be ahead of this process's clock before one of the two clocks counts as wrong."""


def utc_now() -> datetime:
    """The default clock."""
    return datetime.now(UTC)


def to_millisecond(time: datetime) -> datetime:
    """Return a time in UTC, cut to the millisecond."""
    time = time.astimezone(UTC)
    return time.replace(microsecond=time.microsecond // 1000 * 1000)


def far_ahead(entry: Entry | Database, now: datetime) -> str | None:
    """Return what it means that the time of an entry is far ahead of this process's clock; None if it is not."""
    if entry.committed_at <= now + FAR_AHEAD:
        return None
    return (
        f"database version {entry.version} says that it was committed at {entry.committed_at.isoformat()}, and this "
        f"machine's clock says {now.isoformat()}. One of the two clocks is wrong. If the writer's was, versions from "
        f"{entry.version} on have times behind that one, a millisecond apart, until all clocks are past it: until "
        "then, ask for them by number (FOR SYSTEM_VERSION AS OF, lockstep log), and set that clock right"
    )
