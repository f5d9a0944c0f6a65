"""Which files of a table's log may go: pure, over what is there and which versions are needed.

Delta's readers take a log with a gap for a damaged one. So what goes is a run from the oldest on, and ends before the
last whole checkpoint that any needed version is read from; it goes in that order, too. A version that is kept for tags
needs no log (`lockstep.lake.kept_states`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from lockstep.delta.log import LogFiles
from lockstep.retention.files import Doomed
from lockstep.retention.needs import Need
from lockstep.storage import Found

_VERSIONED = re.compile(r"(\d{20})\.[^/]*")
CHECKPOINT_PROTECTION = "checkpointProtection"
"""A writer feature under which a log may be cut at some versions only: such a log is left to Delta."""


def unreadable(log: LogFiles, need: Need, newest: int) -> int | None:
    """Return the first needed version that a log does not tell of; None if it tells of all."""
    wanted = sorted({*need.of_log, newest})
    return next((version for version in wanted if log.missing_for(version) is not None), None)


def first_told(log: LogFiles, need: Need) -> int | None:
    """Return the version from which on a log tells of all, if it tells of no needed one before that; else None.

    So it is where a clean-up took the log's beginning: nobody can read what was before. A log that tells of something
    before a gap, too, has lost what no clean-up takes, and may get it back.
    """
    last = max(log.commits | log.checkpoints, default=-1)
    low = last
    while low > 0 and low in log.commits:
        low -= 1
    starts = sorted({*log.checkpoints, *({0} & log.commits)})
    first = next((start for start in starts if start >= low), None)
    for start in starts:
        if first is None or start >= first:
            break
        end = next(version for version in range(start + 1, last + 2) if version not in log.commits)
        if need.has_any(start, end):
            return None
    return first


def first_lost(log: LogFiles, need: Need, told: int) -> int | None:
    """Return the first needed version that neither a log tells of nor copies beside it; None if there is none.

    Args:
        told: from which version on the log tells of all.
    """
    copied = {version for _, version in need.copied}
    run = range(told if need.first is None else need.first, told)
    wanted = sorted({*need.of_log, *run} - copied)
    return next((version for version in wanted if log.missing_for(version) is not None), None)


def doomed_log(
    listed: Iterable[Found],
    log: LogFiles,
    need: Need,
    newest: int,
    *,
    before: datetime,
    features: frozenset[str],
    read_from: int,
) -> list[Doomed]:
    """Return the files of a log that may go, in the order in which they may.

    Args:
        listed: the files directly in the log.
        log: what they are.
        need: which versions somebody may read, beside the newest.
        newest: the table's.
        before: what was written later stays, and all that follows it.
        features: the writer features of the table's protocol.
        read_from: the version that the log was read from on. A checkpoint behind that has been read by nobody: it may
            be damaged, and then the commits before it are all that tells.
    """
    if CHECKPOINT_PROTECTION in features or unreadable(log, need, newest) is not None:
        return []
    end = min(read_from, *(log.needed_from(version) for version in (*need.of_log, newest)))
    by_version: dict[int, list[Found]] = {}
    for found in listed:
        if (match := _VERSIONED.fullmatch(found.path.rpartition("/")[2])) and int(match[1]) < end:
            by_version.setdefault(int(match[1]), []).append(found)
    doomed: list[Doomed] = []
    for version in sorted(by_version):
        files = by_version[version]
        if any(found.modified_at >= before for found in files):
            break
        doomed += [Doomed(found.path, "log", found.size, found.modified_at) for found in files]
    return doomed
