"""Which tables do not tell what they need of others' files, as clones do, and why: then nothing of those goes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from lockstep.errors import MissingFilesError
from lockstep.lake.lake import Lake
from lockstep.retention.removed import told
from lockstep.retention.survey import Surveyed
from lockstep.retention.versions import Readable
from lockstep.storage.urls import is_outside

NO_LOG = "the log of {} is not there or cannot be read to its end just now"
STAGED_UNREAD = "what a transaction staged in the log of {} cannot be read"
"""Why nobody can tell what a table needs of others' files."""


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
) -> tuple[dict[str, str], Mapping[str, frozenset[str]]]:
    """Find out what tables need of others' files whose logs do not tell it.

    The versions of a table of the lake's own whose folder, or log, is removed nobody can read, nor bring it back, and
    so its commits count as published, too (`lockstep.lake.publisher`). What it shared the timeline is asked for all the
    same, for the folder may be a mount that is away; where that does not tell, only one elsewhere is silent.

    Args:
        gone: the dropped ones whose logs are not there.

    Returns:
        Of which of the known nobody can tell and why, and what the timeline says of the others that are gone.
    """
    elsewhere = {each for each in gone if is_outside(each) or each in not_ours}
    named = told(lake, gone, can_be_read)
    return silent_ones(surveys, {*known} - (gone - elsewhere) - named.keys()), named


def nobody_knows(why: str, location: str, *, is_dropped: bool) -> MissingFilesError:
    """Return the error that a table may share files of another, and nobody can tell which.

    Args:
        why: nobody can tell, as `silent_ones` says it.
    """
    if is_dropped:
        advice = (
            "That table is dropped, and database versions that can be read yet have it: wait until they have expired "
            "(retention-age, `CALL <catalog>.system.expire_snapshots`; a tag or an export keeps its own), or restore "
            "its log from a backup"
        )
    else:
        advice = (
            "See that its folder can be reached, restore its log from a backup, or drop it and let its versions expire"
        )
    return MissingFilesError(
        f"nothing was deleted: {why}, and that may be a clone which shares files of {location}. {advice}"
    )
