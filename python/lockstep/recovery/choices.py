"""What it means to keep one side of a table that has diverged: what readers lose, or why it cannot be; reads only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from lockstep.delta.actions import parse
from lockstep.delta.combine.going_back import why_not as why_no_commit_does
from lockstep.delta.counts import total
from lockstep.delta.log import commit_path
from lockstep.delta.snapshot import Snapshot, read_snapshot
from lockstep.errors import InvalidError, LockstepError
from lockstep.lake.lake import Lake
from lockstep.recovery.condensed import check_condensed
from lockstep.recovery.divergence import Divergence
from lockstep.timeline.entry import NEW, Counts

UNKNOWN = Counts(files_added=-1, files_removed=-1, rows_added=-1, rows_removed=-1)

COUNTED = 1_000
"""Of so many commits it is counted at most what they did."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What it means to keep one side.

    Attributes:
        keep: "ours" or "theirs".
        lost_versions: those versions of the log, or of the timeline, whose commits readers see no more.
        counts: what these did; -1 is not known.
        refused: why it cannot be kept; None if it can.
    """

    keep: str
    lost_versions: tuple[int, ...]
    counts: Counts
    refused: str | None = None


def choices(lake: Lake, found: Divergence) -> list[Choice]:
    """Return what each choice takes from readers; no data file is deleted by either.

    Raises:
        UnavailableError: the store failed.
    """
    theirs = tuple(version for version in range(found.common + 1, found.newest + 1) if version not in found.same)
    damaged = _why_not(partial(check_condensed, lake, found))
    why_not_ours = damaged or _why_not(partial(wanted_and_there, lake, found))
    ours = {version: data for version, data in found.ours.items() if version not in found.same}
    return [
        Choice("ours", theirs, _counts_there(lake, found, theirs), why_not_ours),
        Choice(
            "theirs",
            tuple(ours),
            UNKNOWN if found.gone else _counts([*ours.values()]),
            None if found.is_ahead else damaged or _why_not(partial(check_end, found)),
        ),
    ]


def _why_not(check: Callable[[], object]) -> str | None:
    """Return why a check fails; None if it does not."""
    try:
        check()
    except LockstepError as error:
        return error.message
    return None


def _counts_there(lake: Lake, found: Divergence, versions: Sequence[int]) -> Counts:
    """Count what some versions of a log did; so many that it takes long are not counted."""
    if len(versions) > COUNTED:
        return UNKNOWN
    paths = [commit_path(found.table.location, version) for version in versions]
    return _counts(lake.side_by_side(lake.storage.get, paths))


def check_end(found: Divergence) -> None:
    """See that what settles a table gets no version which statements that have read ours take for the next one.

    Raises:
        InvalidError: it would.
    """
    if found.newest < found.table.version:
        raise InvalidError(
            f"table {found.table.name} cannot be settled: its log ends at version {found.newest}, and statements that "
            f"have read version {found.table.version} would write behind what they have not read. Restore its log, or "
            "DROP TABLE and adopt the folder once no statement uses the table"
        )


def _counts(files: list[bytes | None]) -> Counts:
    known = [data for data in files if data is not None]
    try:
        return total([parse(data) for data in known]) if len(known) == len(files) else UNKNOWN
    except LockstepError:
        return UNKNOWN


def wanted_and_there(lake: Lake, found: Divergence) -> tuple[Snapshot, Snapshot]:
    """Return the table as the timeline has it, and as its log has it.

    Raises:
        InvalidError: no commit makes it what the timeline has, or nobody knows what that is.
        LockstepError: the log cannot be read.
    """
    name = found.table.name
    if found.gone:
        raise InvalidError(f"table {name}: ours cannot be kept, for {found.gone}. Put it back, if there is a backup")
    try:
        wanted = _snapshot(lake, found, found.common)
    except LockstepError as error:
        raise InvalidError(
            f"table {name}: ours cannot be kept, for the log cannot be read up to version {found.common}, behind which "
            f"the two differ: {error.message}"
        ) from error
    for data in found.ours.values():
        wanted.take(parse(data))
    there = _snapshot(lake, found, found.newest)
    if (reason := why_no_commit_does(wanted, there)) is not None:
        raise InvalidError(f"table {name}: ours cannot be kept behind theirs, for {reason}. It takes a person's hand")
    return wanted, there


def _snapshot(lake: Lake, found: Divergence, version: int) -> Snapshot:
    return Snapshot() if version == NEW else read_snapshot(lake.storage, found.table.location, version)
