"""Whose a folder is that is called as a lake calls those of its tables, and that no readable version has.

A copy of another lake's table folder has such a name, too. What tells is the history, which outlives the versions: it
says of each table that was ever there in which folder the lake made it.
"""

from __future__ import annotations

from collections.abc import Collection

from lockstep.timeline.known import Known
from lockstep.transactions.folders import is_own


def made_here(timeline: Known, locations: Collection[str]) -> frozenset[str]:
    """Return which of some folders the lake made for a table that some version of it had, as far as the history tells.

    Entries are read, the newest first, until nothing is left to find; none if there is nothing to look for.

    Raises:
        UnavailableError, CorruptTimelineError: the store failed, or an entry that has not expired is lost.
    """
    left = set(locations)
    if not left:
        return frozenset()
    for entry in timeline.past():
        left -= {ddl.location for ddl in entry.tables if ddl.action == "create" and is_own(ddl.location, ddl.id)}
        if not left:
            break
    return frozenset(locations) - left
