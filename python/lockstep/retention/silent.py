"""Which tables do not tell what they need of others' files, as clones do, and why: then nothing of those goes.

A clean-up of logs that does not go through Lockstep may take the beginning of a log that database versions need which
stay. What the table was there nobody can read any more, and so it needs nothing of others: else it would keep the files
of all tables, for as long as those versions stay. But two may need it all the same. An export has logs of its own that
name the lake's files, and an open transaction may have found its files before: then nobody can tell. And whoever has a
copy of the log may put that back: where the rest of it says that the table shares files of a folder, as a clone does,
nothing of that folder goes.

Likewise nobody can tell what a settled table needed where its log says by now what another writer committed: no version
of that can be read in the lake, but an export of one has its own log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from lockstep.errors import MissingFilesError
from lockstep.lake.lake import Lake
from lockstep.retention.pins import Pins
from lockstep.retention.removed import told
from lockstep.retention.survey import Surveyed
from lockstep.retention.untold import until_told
from lockstep.retention.versions import Readable
from lockstep.storage.urls import is_outside
from lockstep.timeline.database import Database
from lockstep.timeline.settlements import refusal

NO_LOG = "the log of {} is not there or cannot be read to its end just now"
STAGED_UNREAD = "what a transaction staged in the log of {} cannot be read"
"""Why nobody can tell what a table needs of others' files."""
GONE = "See that its folder can be reached, restore its log from a backup, or drop it and let its versions expire"
GONE_AND_DROPPED = (
    "That table is dropped, and database versions that can be read yet have it: wait until they have expired "
    "(retention-age, `CALL <catalog>.system.expire_snapshots`; a tag or an export keeps its own), or restore its log "
    "from a backup"
)
"""What can be done of a table whose log is not there."""
UNKNOWN_USERS = "which exports or open transactions there are cannot be read"
SETTLED = "{} was settled, and its log does not say any more what it was"
HELD = "an export or a transaction has database version {}"
HELD_STILL = "Drop that export (CALL <catalog>.system.exports() lists them), or wait until that transaction has ended"
"""What can be done where something has a version of a table that was settled since."""


def silent_ones(surveys: Iterable[Surveyed], known: Iterable[str]) -> dict[str, str]:
    """Return of which of some locations nobody can tell what they need of other tables' files, and why.

    A table that has no folder just now is one of them: where a disk is not mounted, nothing of it is found.
    """
    surveyed = {each.folder.location: each for each in surveys}
    silent: dict[str, str] = {}
    for location in sorted(known):
        found = surveyed.get(location)
        if found is None or not found.tells:
            silent[location] = (found and found.why_not) or NO_LOG.format(location)
    return silent


def settle_silent(
    lake: Lake,
    surveys: Iterable[Surveyed],
    known: Collection[str],
    gone: frozenset[str],
    *,
    not_ours: frozenset[str],
    can_be_read: Readable,
    wanted: Callable[[], Pins],
) -> tuple[dict[str, str], Mapping[str, frozenset[str]]]:
    """Find out what tables need of others' files whose logs do not tell it; for that of none of what can be read.

    The versions of a table of the lake's own whose folder, or log, is removed nobody can read, nor bring it back, and
    so its commits count as published, too (`lockstep.lake.publisher`). What it shared the timeline is asked for all the
    same, for the folder may be a mount that is away; where that does not tell, only one elsewhere is silent.

    Args:
        gone: the dropped ones whose logs are not there.
        wanted: who needs which database versions; it is asked only if the beginning of a log is lost, or a table was
            settled, and behind the look at the logs: an export may have read one before it was cut.

    Returns:
        Of which of the known nobody can tell and why, and what the timeline says of the others that are gone.
    """
    elsewhere = {each for each in gone if is_outside(each) or each in not_ours}
    named = told(lake, gone, can_be_read)
    surveyed = [*surveys]
    silent = silent_ones(surveyed, {*known} - (gone - elsewhere) - named.keys())
    lost = [each for each in surveyed if each.lost is not None and each.folder.location in known]
    if lost or lake.timeline.head.settled:
        silent |= _used(lake, lost, wanted(), can_be_read)
    return silent, named


def _used(lake: Lake, lost: Iterable[Surveyed], wanted: Pins, can_be_read: Readable) -> dict[str, str]:
    """Return which tables have versions that their logs do not tell of and somebody may read all the same, and why.

    Raises:
        UnavailableError, CorruptTimelineError: the timeline cannot be read.
    """
    used: dict[str, str] = {}
    held = None if wanted.exports is None or wanted.transactions is None else wanted.exports | wanted.transactions
    head = lake.timeline.head
    if held is None:
        settled = {id_: f"{SETTLED.format(id_)}, and {UNKNOWN_USERS}" for id_ in head.settled}
        return settled | {each.folder.location: f"{each.lacks}, and {UNKNOWN_USERS}" for each in lost}
    for version in sorted(held):
        if not can_be_read.has(version):
            continue
        database = lake.timeline.at(version)
        for each in lost:
            table = database.table_at(each.folder.location)
            if table is not None and each.has_lost(table):
                used[table.location] = f"{each.lacks}, and {HELD.format(version)}"
        for table in filter(None, map(database.table_by_id, head.settled)):
            if refusal(head, table) is not None:
                used[table.location] = f"{SETTLED.format(table.location)}, and {HELD.format(version)}"
    return used


def half_told(surveys: Iterable[Surveyed]) -> dict[str, tuple[str, Surveyed]]:
    """Return of which folders a table shares files, and once may have shared others of which its log does not tell now.

    Returns:
        Each folder that has such files somewhere in it, with the reason why nobody can tell, and the table.
    """
    found: dict[str, tuple[str, Surveyed]] = {}
    for each in surveys:
        if each.lost is None:
            continue
        location = each.folder.location
        why = f"{each.lacks}, and that table shares files of this one"
        for path in (*each.state.needed, *each.state.removed):
            above = "" if path.startswith(f"{location}/") else path.rpartition("/")[0]
            while above and above not in found:
                found[above] = why, each
                above = above.rpartition("/")[0]
    return found


def check_shared(
    lake: Lake, location: str, surveys: Iterable[Surveyed], silent: Mapping[str, str], database: Database
) -> None:
    """See that it is known which files of a folder other tables need.

    Args:
        surveys: of the others.
        silent: of which nobody can tell that, and why.
        database: the newest version.

    Raises:
        MissingFilesError: it is not, and what can be done.
        UnavailableError, CorruptTimelineError: as the store and the timeline say.
    """
    lost = {each.folder.location: each for each in surveys if each.lost is not None}
    if silent:
        first, why = next(iter(silent.items()))
        if first in lost:
            advice = until_told(lake, first, lost[first].log)
        elif why.startswith(SETTLED.format(first)):
            advice = HELD_STILL
        else:
            advice = GONE_AND_DROPPED if database.table_at(first) is None else GONE
        if first != location:
            why = f"{why}, and that may be a clone which shares files of {location}"
        raise MissingFilesError(f"nothing was deleted: {why}. {advice}")
    if (half := half_told(lost.values()).get(location)) is not None:
        why, table = half
        advice = until_told(lake, table.folder.location, table.log)
        raise MissingFilesError(f"nothing was deleted of {location}: {why}. {advice}")
