"""Version checksums: `<version>.crc` beside a published commit (Protocol, "Version Checksum File").

Without it, whoever loads the version anew has to replay the log only to learn the table's schema; Delta writes one
after each of its own commits, so a transaction's commits get theirs here. It follows from the one before and the
commit's actions; where it does not with certainty, there is none, and Delta replays the log. A wrong one is worse than
none: each later one carries it on, and Delta, which compares it with the log before each checkpoint, writes no more of
them.

What is uncertain is whether a file that a commit adds without data change is new (OPTIMIZE wrote it) or takes the
place of an action for the same file (new statistics, row ids). The list of files tells, where the version before has
one; else the commit, where it says so (`added_again`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, TypeAlias

from lockstep.delta.actions import Action, LogicalFile, bodies, logical_file
from lockstep.delta.counts import added_again

Checksum: TypeAlias = dict[str, Any]

_EMPTY: Checksum = {"tableSizeBytes": 0, "numFiles": 0, "setTransactions": [], "domainMetadata": [], "allFiles": []}
"""A table before its first version."""

LISTED_FILES = 50
"""Up to so many files are listed (Delta's `allFilesInCrc.thresholdNumFiles`), so that writers need no replay either."""

_HISTOGRAMS = ("fileSizeHistogram", "histogramOpt")
"""The protocol's name, and the one that Delta's Spark connector wrote before."""


def advance(previous: Checksum | None, commit: Sequence[Action], *, version: int) -> Checksum | None:
    """Return the checksum of a version, None where it cannot be told.

    Args:
        previous: the version before's; None if there is none, as before version 0.
        commit: the actions of this version.
        version: its number.
    """
    base = _EMPTY if version == 0 else previous
    adds, removes = bodies(commit, "add"), bodies(commit, "remove")
    if base is None or any("size" not in file for file in removes):
        return None
    files = _listed_files(base)
    if files is None and added_again(commit) != 0:
        return None
    if files is not None:
        removed_files = {logical_file(file) for file in removes}
        if not removed_files <= files.keys():
            return None  # one of the two is wrong
        readded_files = (logical_file(file) for file in adds)
        removes = [*removes, *(files[key] for key in readded_files if key in files and key not in removed_files)]
    metadata = next(iter(bodies(commit, "metaData")), base.get("metadata"))
    protocol = next(iter(bodies(commit, "protocol")), base.get("protocol"))
    if metadata is None or protocol is None:
        return None
    info = next(iter(bodies(commit, "commitInfo")), {})
    checksum: Checksum = {
        "txnId": info.get("txnId"),
        "tableSizeBytes": base["tableSizeBytes"] + _size(adds) - _size(removes),
        "numFiles": base["numFiles"] + len(adds) - len(removes),
        "numMetadata": 1,
        "numProtocol": 1,
        "inCommitTimestampOpt": info.get("inCommitTimestamp"),
        "setTransactions": _last(base.get("setTransactions"), bodies(commit, "txn"), "appId"),
        "domainMetadata": _last(base.get("domainMetadata"), bodies(commit, "domainMetadata"), "domain"),
        "metadata": metadata,
        "protocol": protocol,
        "fileSizeHistogram": _histogram(base, adds, removes),
        "allFiles": _all_files(files, adds, removes),
    }
    return {key: value for key, value in checksum.items() if value is not None}


def _size(files: Sequence[dict[str, Any]]) -> int:
    return sum(file["size"] for file in files)


def _last(
    previous: list[dict[str, Any]] | None, actions: Sequence[dict[str, Any]], key: str
) -> list[dict[str, Any]] | None:
    """Return the last action for each key, without removed ones; None where the earlier ones are not known."""
    if previous is None:
        return None
    last = {action[key]: action for action in (*previous, *actions)}
    return [action for action in last.values() if not action.get("removed")]


def _listed_files(checksum: Checksum) -> dict[LogicalFile, dict[str, Any]] | None:
    """Return the files that a checksum lists, None where it lists none or not as many as it says."""
    files = checksum.get("allFiles")
    if files is None:
        return None
    by_key = {logical_file(file): file for file in files}
    complete = len(by_key) == checksum.get("numFiles") and all("size" in file for file in files)
    return by_key if complete else None


def _all_files(
    previous: dict[LogicalFile, dict[str, Any]] | None,
    adds: Sequence[dict[str, Any]],
    removes: Sequence[dict[str, Any]],
) -> list[dict[str, Any]] | None:
    """Return the table's files, None where those before are not known, or there are too many to list."""
    if previous is None:
        return None
    removed_files = {logical_file(file) for file in removes}
    survivors = [file for key, file in previous.items() if key not in removed_files]
    files = survivors + [{**file, "dataChange": False} for file in adds]
    return files if len(files) <= LISTED_FILES else None


def _histogram(base: Checksum, adds: Sequence[dict[str, Any]], removes: Sequence[dict[str, Any]]) -> Any:
    histogram = next((base[name] for name in _HISTOGRAMS if base.get(name)), None)
    if histogram is None:
        return None
    counts, totals = list(histogram["fileCounts"]), list(histogram["totalBytes"])
    for files, sign in ((adds, 1), (removes, -1)):
        for file in files:
            bin_ = bisect_right(histogram["sortedBinBoundaries"], file["size"]) - 1
            counts[bin_] += sign
            totals[bin_] += sign * file["size"]
    return {**histogram, "fileCounts": counts, "totalBytes": totals}
