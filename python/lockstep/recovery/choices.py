"""What it means to keep a side of a table that has diverged, or both: what readers lose, or why it cannot be.

Reads only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from lockstep.commit.files import added_files
from lockstep.delta.actions import Action, parse
from lockstep.delta.combine.going_back import why_not as why_no_commit_does
from lockstep.delta.counts import total
from lockstep.delta.log import commit_path, log_files, read_published
from lockstep.delta.snapshot import Snapshot, read_snapshot
from lockstep.errors import InvalidError, LockstepError
from lockstep.lake.lake import Lake
from lockstep.recovery.both import TwoSides, change_files, new_files, why_not_both
from lockstep.recovery.condensed import check_condensed
from lockstep.recovery.divergence import Divergence
from lockstep.timeline.entry import NEW, UNKNOWN_COUNTS, Counts

COUNTED = 1_000
"""Of so many commits it is counted at most what they did."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What it means to keep one side, or both.

    Attributes:
        keep: "ours", "theirs" or "both".
        lost_versions: those versions of the log, or of the timeline, whose commits readers see no more.
        counts: what these did; -1 is not known.
        refused: why it cannot be kept; None if it can.
    """

    keep: str
    lost_versions: tuple[int, ...]
    counts: Counts
    refused: str | None = None


def choices(lake: Lake, found: Divergence, keep: str | None = None) -> list[Choice]:
    """Return what each choice takes from readers, or the one that is asked for; no data file is deleted by any.

    Raises:
        UnavailableError: the store failed.
    """
    damaged = _why_not(partial(check_condensed, lake, found))
    offers = {"ours": _ours, "theirs": _theirs, "both": _both}
    return [offer(lake, found, damaged) for side, offer in offers.items() if keep in (None, side)]


def _ours(lake: Lake, found: Divergence, damaged: str | None) -> Choice:
    lost = tuple(version for version in range(found.common + 1, found.newest + 1) if version not in found.same)
    refused = damaged or _why_not(partial(wanted_and_there, lake, found))
    return Choice("ours", lost, _counts_there(lake, found, lost), refused)


def _theirs(lake: Lake, found: Divergence, damaged: str | None) -> Choice:  # noqa: ARG001 - one of several
    lost = tuple(version for version in range(found.common + 1, found.table.version + 1) if version not in found.same)
    counts = UNKNOWN_COUNTS if found.gone else _counts([found.ours[version] for version in lost])
    refused = None if found.is_ahead else damaged or _why_not(partial(check_end, found))
    return Choice("theirs", lost, counts, refused)


def _both(lake: Lake, found: Divergence, damaged: str | None) -> Choice:
    refused = None if found.is_ahead else damaged or _why_not(partial(two_sides, lake, found))
    return Choice("both", (), Counts(), refused)


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
        return UNKNOWN_COUNTS
    paths = [commit_path(found.table.location, version) for version in versions]
    return _counts(lake.side_by_side(lake.storage.get, paths))


def check_end(found: Divergence) -> None:
    """See that what settles a table gets no version which statements that have read ours take for the next one.

    Raises:
        InvalidError: it would.
    """
    if found.newest < found.table.version:
        raise InvalidError(
            f"table {found.table.name}: neither theirs nor both can be kept: its log ends at version {found.newest}, "
            f"and statements that have read version {found.table.version} would write behind what they have not read. "
            "Keep ours, restore the log, or DROP TABLE and adopt the folder once no statement uses the table"
        )


def _counts(files: list[bytes | None]) -> Counts:
    known = [data for data in files if data is not None]
    try:
        return total([parse(data) for data in known]) if len(known) == len(files) else UNKNOWN_COUNTS
    except LockstepError:
        return UNKNOWN_COUNTS


def wanted_and_there(lake: Lake, found: Divergence) -> tuple[Snapshot, Snapshot]:
    """Return the table as the timeline has it, and as its log has it.

    Raises:
        InvalidError: no commit makes it what the timeline has, or nobody knows what that is; or a file of it is gone.
        LockstepError: the log cannot be read.
    """
    name = found.table.name
    wanted = _base(lake, found)
    for data in found.ours.values():
        wanted.take(parse(data))
    there = _snapshot(lake, found, found.newest)
    if (reason := why_no_commit_does(wanted, there)) is not None:
        raise InvalidError(f"table {name}: ours cannot be kept behind theirs, for {reason}. It takes a person's hand")
    coming = [add for file, add in wanted.files.items() if file not in there.files]
    if (gone := _first_gone(lake, found, coming)) is not None:
        raise InvalidError(
            f"table {name}: ours cannot be kept, for {gone} is gone, a file that it had. Put it back, if there is a "
            "backup, or keep theirs"
        )
    return wanted, there


def two_sides(lake: Lake, found: Divergence) -> TwoSides:
    """Return what both sides did, of which one commit behind the log can have all.

    Raises:
        InvalidError: none can, or nobody knows what one of them did; the message says why.
        LockstepError: the log cannot be read.
    """
    check_end(found)
    base = _base(lake, found)
    sides = TwoSides(
        found.common, base, {version: parse(data) for version, data in found.ours.items()}, _log_of(lake, found)
    )
    if (reason := why_not_both(sides)) is not None:
        raise _not_both(found, reason)
    _check_files(lake, found, sides)
    return sides


def _log_of(lake: Lake, found: Divergence) -> dict[int, list[Action]]:
    """Return the commits of the log from where the two sides part.

    Raises:
        InvalidError: one is gone.
        LockstepError: one is damaged, or the store failed.
    """
    where, versions = found.table.location, range(found.common + 1, found.newest + 1)
    if gone := sorted({*versions} - log_files(lake.storage, where, found.common).commits):
        raise _not_both(found, f"{commit_path(where, gone[0])} is gone, and nobody knows what it did")
    commits = lake.side_by_side(partial(read_published, lake.storage, where), versions)
    return dict(zip(versions, commits, strict=True))


def _check_files(lake: Lake, found: Divergence, sides: TwoSides) -> None:
    """See that the files of both sides are there.

    Raises:
        InvalidError: one is gone.
        LockstepError: the store failed, or a deletion vector is no file of this lake.
    """
    if (gone := _first_gone(lake, found, new_files(sides), change_files(sides))) is not None:
        raise _not_both(found, f"{gone} is gone, a file that one of them added")


def _first_gone(
    lake: Lake, found: Divergence, coming: Iterable[dict[str, Any]], changes: Iterable[Action] = ()
) -> str | None:
    """Return one of the files that are gone of what is to come: a plain VACUUM takes those that the log does not name.

    Raises:
        LockstepError: see `_check_files`.
    """
    adds: list[Action] = [{"add": {**add, "dataChange": True}} for add in coming]
    files = sorted(added_files([[*adds, *changes]], found.table.location, lake.storage.url))
    are_there = lake.side_by_side(lake.storage.exists, files)
    return next((file for file, is_there in zip(files, are_there, strict=True) if not is_there), None)


def _not_both(found: Divergence, reason: str) -> InvalidError:
    return InvalidError(
        f"table {found.table.name}: both cannot be kept, for {reason}. Keep ours or theirs; what the other side wrote "
        "stays in the folder until VACUUM"
    )


def _base(lake: Lake, found: Divergence) -> Snapshot:
    """Return the table where the two sides part.

    Raises:
        InvalidError: it cannot be read, or nobody knows what ours did from there on.
    """
    name = found.table.name
    if found.gone:
        raise InvalidError(f"table {name}: ours cannot be kept, for {found.gone}. Put it back, if there is a backup")
    try:
        return _snapshot(lake, found, found.common)
    except LockstepError as error:
        raise InvalidError(
            f"table {name}: ours cannot be kept, for the log cannot be read up to version {found.common}, behind which "
            f"the two differ: {error.message}"
        ) from error


def _snapshot(lake: Lake, found: Divergence, version: int) -> Snapshot:
    return Snapshot() if version == NEW else read_snapshot(lake.storage, found.table.location, version)
