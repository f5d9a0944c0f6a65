"""How many files and rows a commit adds and removes, as `SHOW` and the timeline tell it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from lockstep.delta.actions import Action, bodies, changes_rows, deleted_rows, only_recommits
from lockstep.timeline.entry import Counts

ADDED_AGAIN = "numFilesAddedAgain"
"""The metric of a commit made of several: how many of its adds are of files that the table has already."""

CREATES_FILES = frozenset({
    "WRITE", "STREAMING UPDATE", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "OPTIMIZE", "REORG",
    "CREATE TABLE AS SELECT", "REPLACE TABLE AS SELECT", "CREATE OR REPLACE TABLE AS SELECT",
})  # fmt: skip
"""Delta's operations whose adds are of files that they themselves wrote, or gave another deletion vector."""


def added_again(commit: Sequence[Action]) -> int | None:
    """Return how many of a commit's adds are of files that the table has already, None where that cannot be told.

    A commit of several statements says it. One of a single statement has no such file if it changes the rows of each,
    or if it is of an operation that writes its own (OPTIMIZE).
    """
    quiet = [add for add in bodies(commit, "add") if not changes_rows(add)]
    info = next(iter(bodies(commit, "commitInfo")), {})
    metric = (info.get("operationMetrics") or {}).get(ADDED_AGAIN)
    if metric is not None:
        return int(metric)
    if not quiet:
        return 0
    if only_recommits(commit):
        return len(quiet)
    return 0 if info.get("operation") in CREATES_FILES else None


class _Stats(msgspec.Struct):
    numRecords: int | None = None


_decode_stats = msgspec.json.Decoder(_Stats).decode


def _live_rows(file: dict[str, Any]) -> int | None:
    """Return how many rows of a file are not deleted, None where its statistics do not say."""
    stats = file.get("stats")
    if not stats:
        return None
    try:
        records = _decode_stats(stats).numRecords
    except msgspec.DecodeError:  # statistics are advice: a file with broken ones is still a file
        return None
    return None if records is None else records - deleted_rows(file)


def counts(commit: Sequence[Action]) -> Counts:
    """Count the files and rows that one commit adds and removes.

    Rows are what the statement's own metrics say (an updated row is one removed and one added). Where there are none,
    they are those of `dataChange` files, deleted ones not counted, and -1 where a file has no `numRecords`: OPTIMIZE
    moves files but adds no rows. A path removed and added again with another deletion vector is neither a file added
    nor one removed: the difference of the vectors' cardinalities is the rows removed (or, restored, added).
    """
    rows = _metric_rows(next(iter(bodies(commit, "commitInfo")), {}))
    adds = {file["path"]: file for file in bodies(commit, "add")}
    removes = {file["path"]: file for file in bodies(commit, "remove")}
    added_files = [f for p, f in adds.items() if p not in removes]
    removed_files = [f for p, f in removes.items() if p not in adds]
    deletions = [deleted_rows(adds[p]) - deleted_rows(removes[p]) for p in adds.keys() & removes.keys()]
    return Counts(
        files_added=len(added_files) - (added_again(commit) or 0),
        files_removed=len(removed_files),
        rows_added=_rows(added_files, sum(-n for n in deletions if n < 0)) if rows is None else rows[0],
        rows_removed=_rows(removed_files, sum(n for n in deletions if n > 0)) if rows is None else rows[1],
    )


_ROW_METRICS = {
    "DELETE": ((), ("numDeletedRows",)),
    "UPDATE": (("numUpdatedRows",), ("numUpdatedRows",)),
    "MERGE": (("numTargetRowsInserted", "numTargetRowsUpdated"), ("numTargetRowsDeleted", "numTargetRowsUpdated")),
}
"""By operation, the metrics (Delta's DeltaOperations) that sum up to the rows added, and to the rows removed."""


def _metric_rows(info: dict[str, Any]) -> tuple[int, int] | None:
    """Return the rows that a statement says it added and removed, None where it does not say."""
    names = _ROW_METRICS.get(info.get("operation", ""))
    metrics = info.get("operationMetrics") or {}
    if names is None or any(name not in metrics for side in names for name in side):
        return None
    rows_added, rows_removed = (sum(int(metrics[name]) for name in side) for side in names)
    return rows_added, rows_removed


def _rows(files: list[dict[str, Any]], more: int) -> int:
    rows = [_live_rows(file) for file in files if changes_rows(file)]
    return -1 if None in rows else sum(n for n in rows if n is not None) + more


def total(commits: Iterable[Sequence[Action]]) -> Counts:
    """Sum the counts of consecutive commits; rows unknown in one (-1) are unknown in all."""
    each = [counts(commit) for commit in commits]

    def rows(values: list[int]) -> int:
        return -1 if -1 in values else sum(values)

    return Counts(
        files_added=sum(c.files_added for c in each),
        files_removed=sum(c.files_removed for c in each),
        rows_added=rows([c.rows_added for c in each]),
        rows_removed=rows([c.rows_removed for c in each]),
    )
