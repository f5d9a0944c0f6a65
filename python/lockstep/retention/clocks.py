"""Whether this host's clock is right, as far as the store can tell: upkeep goes by both.

Versions expire, and transactions count as lost, by the clock of the host; files are as old as the store says. Where the
host's is days ahead, the history would expire at once, and for ever, and no file would be too young to go. On a local
disk both are one clock, and nobody can tell.
"""

from __future__ import annotations

from contextlib import suppress

from lockstep.errors import InvalidError, UnavailableError
from lockstep.lake.deletions import FOLDER, YOUNGEST
from lockstep.lake.lake import Lake
from lockstep.retention.pins import CLOCKS

PREFIX = "clock-"


def check_clock(lake: Lake) -> None:
    """Raise if this host's clock and the store's are further apart than they may be: an object is written for that.

    Raises:
        InvalidError: they are.
        UnavailableError: the store failed.
    """
    path = f"{FOLDER}/{PREFIX}{lake.new_id()}"
    before = lake.clock()
    lake.storage.put(path, b"now")
    try:
        times = {each.path: each.modified_at for each in lake.storage.walk(FOLDER) if f"/{PREFIX}" in each.path}
        after, written = lake.clock(), times.get(path)
    finally:
        with suppress(UnavailableError):
            lake.storage.delete(path)
    if written is None:
        return  # the store does not list what it has, and so tells nothing
    lake.storage.delete_all(each for each, at in times.items() if at < written - YOUNGEST)  # of runs that were killed
    if max(before - written, written - after) <= CLOCKS:
        return
    raise InvalidError(
        f"this host's clock says {after.isoformat(timespec='seconds')}, and the store's said "
        f"{written.isoformat(timespec='seconds')} at that time: they may be {CLOCKS.total_seconds() / 60:.0f} minutes "
        "apart, for how old versions and files are is told by both. Nothing expired, and nothing was deleted. Set the "
        "clock right, and run this again"
    )
