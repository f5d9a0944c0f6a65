"""The staged commits of one transaction become one Delta commit.

A staged commit is what Delta wrote for one statement, on top of the pin and of the staged commits before it. Replaying
the collapsed commit on the pin gives the same table as replaying them all. So does the feed of changes: what streams
and change-data readers compute from `dataChange` files is the rows that the transaction as a whole added and removed.

For each logical file (path, deletion vector), by its first and its last action in the transaction:

    first       last      the table's                       net action    dataChange
    add         add       new                               add           as below
    add         remove    new, and gone again               none
    remove      remove    there at the pin, gone            remove        as below
    remove      add       there at the pin, there again     add           false: no row of it changed
    recommit*   add       there at the pin, new statistics  add           false
    recommit*   remove    there at the pin, gone            remove        as below

    * an add that `only_recommits` a file the table has.

`dataChange` of a net action. A statement with `dataChange` false (OPTIMIZE) only moves rows: its removes and its adds
hold the same ones. It may stay false only if that still holds for what is left of it:

    INSERT a; OPTIMIZE a → c          c true    else a reader of changes would miss the rows of a
    INSERT a; OPTIMIZE a, p → c       c, p true the rows of p as removed and added again, not added twice
    OPTIMIZE p → c; DELETE c          p true    else it would miss the delete
    OPTIMIZE p → c; DELETE part of c  c, p true
    OPTIMIZE p → c; OPTIMIZE c, q → d d, p, q false
    OPTIMIZE p → c; INSERT a          c, p false, a true

So a rearrangement keeps its false unless it shares a file with a change of data, directly or through others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import msgspec

from lockstep.delta.actions import (
    ROW_TRACKING,
    Action,
    LogicalFile,
    bodies,
    changes_rows,
    logical_file,
    only_recommits,
    split,
    traced,
)
from lockstep.delta.combine.row_tracking import copies_own_rows
from lockstep.delta.counts import ADDED_AGAIN, CREATES_FILES

Commit = Sequence[Action]

OPERATION = "TRANSACTION"
"""What DESCRIBE HISTORY calls a commit made of more than one statement."""

_ORDER = ("commitInfo", "protocol", "metaData", "txn", "domainMetadata", "remove", "add", "cdc")
KINDS = frozenset(_ORDER)
"""The kinds of actions that commits are known here to have (Protocol, "Actions")."""

_ISOLATION = ("SnapshotIsolation", "WriteSerializable", "Serializable")  # weakest first; Delta's own names
_WHO = ("userId", "userName", "job", "notebook", "clusterId")


def collapse(
    commits: Sequence[Commit],
    *,
    pin: int,
    transaction_id: str,
    statements: Sequence[str],
    timestamp_ms: int,
    engine: str,
) -> list[list[Action]]:
    """Merge the staged commits `pin + 1, pin + 2, …` of one table into one, or none if they change nothing.

    A single staged commit keeps its operation, parameters and metrics, so DESCRIBE HISTORY says MERGE. They all stay
    separate where one commit could not say the same (see `_must_stay_separate`, `copies_own_rows`).

    Args:
        pin: the table version the transaction began from, `NEW` (-1) for a table it creates.
        transaction_id: goes into `commitInfo.txnId`, by which a commit found in a log is known to be ours, and for who
            reads the table's history into its parameters.
        statements: the SQL texts of this table's statements; the operations' names if empty.
        timestamp_ms: the time of COMMIT, in ms since 1970.
        engine: `commitInfo.engineInfo` of a merged commit.
    """
    effective = [commit for commit in commits if any("commitInfo" not in action for action in commit)]
    if copies_own_rows(effective, pin):  # their numbers stand in data files: not even an empty one may go
        return [_separate_commit(commit, transaction_id) for commit in commits]
    if len(effective) == 1 or _must_stay_separate(effective):
        return [_separate_commit(commit, transaction_id) for commit in effective]
    files, readded_count = _net_files(effective)
    net = [*_last_wins(effective), *files, *_change_files(effective)]
    # Row ids were given out to files that are gone again: a mark alone would be a commit that changes nothing.
    if all(action.get("domainMetadata", {}).get("domain") == ROW_TRACKING for action in net):
        return []
    infos = [_info(commit) for commit in effective]
    info = {
        "timestamp": timestamp_ms,
        "operation": OPERATION,
        "operationParameters": {"statements": _json(list(statements) or [i.get("operation") for i in infos])},
        **({"readVersion": pin} if pin >= 0 else {}),  # Delta leaves it out too where there was nothing to read
        **_summary(infos),
        "operationMetrics": _metrics(infos, net, readded_count),
        "engineInfo": engine,
        "txnId": transaction_id,
    }
    return [_ordered(traced([{"commitInfo": info}, *net], transaction_id))]


def _must_stay_separate(commits: Sequence[Commit]) -> bool:
    """Return whether one commit could not say what these say.

    Change data readers that meet a `cdc` action in a version read nothing else there (Protocol, "Add CDC File"): so
    the changes of the other statements would be lost, or come in no order. And what an unknown action means merged,
    nobody knows.
    """
    kinds = {split(action)[0] for commit in commits for action in commit}
    changing = sum(1 for commit in commits if _changes_rows(commit))
    return ("cdc" in kinds and changing > 1) or not kinds <= KINDS


def _separate_commit(commit: Commit, transaction_id: str) -> list[Action]:
    info = {**_info(commit), "txnId": transaction_id}
    rest = [action for action in commit if "commitInfo" not in action]
    return _ordered(traced([{"commitInfo": info}, *rest], transaction_id))


def _ordered(actions: Iterable[Action]) -> list[Action]:
    return sorted(actions, key=lambda action: _rank(split(action)[0]))


def _rank(kind: str) -> int:
    return _ORDER.index(kind) if kind in _ORDER else len(_ORDER)


# --- what is left of the actions --------------------------------------------------------------------------------------


def _last_wins(commits: Sequence[Commit]) -> list[Action]:
    """Keep the last protocol and metaData, the last txn of each application, the last of each metadata domain."""
    last: dict[tuple[str, str], Action] = {}
    for action in (action for commit in commits for action in commit):
        kind, body = split(action)
        if kind in ("protocol", "metaData", "txn", "domainMetadata"):
            last[kind, body.get("appId") or body.get("domain") or ""] = action
    return list(last.values())


@dataclass(slots=True)
class _File:
    """A logical file as the commits so far left it."""

    at_pin: bool
    kind: str
    body: dict[str, Any]


def _net_files(commits: Sequence[Commit]) -> tuple[list[Action], int]:
    """Return the net actions, and how many of them add a file again that was there at the pin and stays."""
    files: dict[LogicalFile, _File] = {}
    changed_files: set[LogicalFile] = set()
    rearrangements: list[set[LogicalFile]] = []
    for commit in commits:
        quiet = _changed_nothing(commit)
        recommits = only_recommits(commit) and not quiet
        moved_files: set[LogicalFile] = set()
        for kind, body in _file_actions(commit):
            key = logical_file(body)
            change = changes_rows(body) and not quiet
            recommit = kind == "add" and not change and recommits
            if not recommit:
                (changed_files if change else moved_files).add(key)
            at_pin = files[key].at_pin if key in files else kind == "remove" or recommit
            files[key] = _File(at_pin, kind, body)
        rearrangements.append(moved_files)
    changed_files = _spread(changed_files, rearrangements)
    readded_files = {key for key, file in files.items() if file.at_pin and file.kind == "add"}
    net = [
        {file.kind: {**file.body, "dataChange": key in changed_files and key not in readded_files}}
        for key, file in files.items()
        if file.at_pin or file.kind == "add"
    ]
    return net, len(readded_files)


def _spread(changed_files: set[LogicalFile], rearrangements: Sequence[set[LogicalFile]]) -> set[LogicalFile]:
    """Add all files of each rearrangement that shares one with the changed files, until none does."""
    while hit := [files for files in rearrangements if not changed_files.isdisjoint(files)]:
        rearrangements = [files for files in rearrangements if changed_files.isdisjoint(files)]
        changed_files = changed_files.union(*hit)
    return changed_files


def _file_actions(commit: Commit) -> list[tuple[str, dict[str, Any]]]:
    return [(kind, body) for kind, body in map(split, commit) if kind in ("add", "remove")]


def _changes_rows(commit: Commit) -> bool:
    files = any(changes_rows(body) for _, body in _file_actions(commit))
    return bool(bodies(commit, "cdc")) or (files and not _changed_nothing(commit))


def _changed_nothing(commit: Commit) -> bool:
    """Return whether this is a MERGE that rewrote files and changed no row.

    It says `dataChange` true, and Delta's own reader of changes skips it by these metrics
    (CDCReader.shouldSkipFileActionsInCommit), which a merged commit no longer has.
    """
    info = _info(commit)
    metrics = info.get("operationMetrics") or {}
    return info.get("operation") == "MERGE" and all(
        metrics.get(f"numTargetRows{verb}") == "0" for verb in ("Inserted", "Updated", "Deleted")
    )


def _change_files(commits: Sequence[Commit]) -> list[Action]:
    return [action for commit in commits for action in commit if "cdc" in action]


# --- commitInfo -------------------------------------------------------------------------------------------------------


def _info(commit: Commit) -> dict[str, Any]:
    return next(iter(bodies(commit, "commitInfo")), {})


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _summary(infos: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Say of the whole what its parts say: who, user metadata, how isolated, whether blind, common tags."""
    last = infos[-1]
    levels = [info["isolationLevel"] for info in infos if info.get("isolationLevel") in _ISOLATION]
    user_metadata = [info["userMetadata"] for info in infos if info.get("userMetadata") is not None]
    tags = (infos[0].get("tags") or {}).items()
    # A tag says "this commit does only that" (DeltaCommitTag merges by "and"): it holds of the whole if of each part.
    common = {key: value for key, value in tags if all((i.get("tags") or {}).get(key) == value for i in infos)}
    return {
        **{field: last[field] for field in (*_WHO, "inCommitTimestamp") if last.get(field) is not None},
        "isBlindAppend": all(info.get("isBlindAppend") is True for info in infos),
        **({"isolationLevel": min(levels, key=_ISOLATION.index)} if levels else {}),
        **({"userMetadata": user_metadata[-1]} if user_metadata else {}),
        **({"tags": common} if common else {}),
    }


def _metrics(infos: Sequence[dict[str, Any]], net: Sequence[Action], readded_count: int) -> dict[str, str]:
    rows = [(info.get("operationMetrics") or {}).get("numOutputRows") for info in infos]
    return {
        "numAddedFiles": str(len(bodies(net, "add")) - readded_count),
        "numRemovedFiles": str(len(bodies(net, "remove"))),
        ADDED_AGAIN: str(readded_count),
        **({"numOutputRows": str(sum(int(n) for n in rows if n))} if any(rows) else {}),
    }


# --- what ROLLBACK may delete -----------------------------------------------------------------------------------------


def created_paths(commits: Sequence[Commit]) -> set[str]:
    """Return the files that this transaction itself wrote, so that a rollback may delete them.

    Paths are relative to the table's location and URL-decoded: as the storage names them. Conservative, for a file too
    many is litter that VACUUM finds, and a file too few is data lost: only data and change files that first appear as
    added by an operation known to write new files (so no RESTORE, CLONE, CONVERT or a backfill, which add files that
    others own), never with a remove of the same path beside it (a deletion vector on an old file), never absolute.
    """
    earlier_paths: set[str] = set()
    new_paths: set[str] = set()
    for commit in commits:
        recommits = only_recommits(commit)
        adds = [body for body in bodies(commit, "add") if changes_rows(body) or not recommits]
        removed_paths = {body["path"] for body in bodies(commit, "remove")}
        if _info(commit).get("operation") in CREATES_FILES:
            written_paths = {body["path"] for body in (*adds, *bodies(commit, "cdc"))}
            new_paths |= {path for path in written_paths - removed_paths - earlier_paths if is_inside(path)}
        earlier_paths |= removed_paths.union(body["path"] for kind in ("add", "cdc") for body in bodies(commit, kind))
    return {unquote(path) for path in new_paths}


def created_vectors(commits: Sequence[Commit]) -> list[dict[str, Any]]:
    """Return the deletion vectors, in files named relative to the table, that this transaction itself wrote.

    As conservative as `created_paths`: those that first appear with what a statement added which writes its own.
    """
    earlier_files: set[str] = set()
    new: dict[str, dict[str, Any]] = {}
    for commit in commits:
        recommits = only_recommits(commit)
        removed = {vector["pathOrInlineDv"] for vector in _vectors(bodies(commit, "remove"))}
        if _info(commit).get("operation") in CREATES_FILES:
            adds = [body for body in bodies(commit, "add") if changes_rows(body) or not recommits]
            added = {vector["pathOrInlineDv"]: vector for vector in _vectors(adds)}
            new |= {file: vector for file, vector in added.items() if file not in removed | earlier_files}
        earlier_files |= removed.union(vector["pathOrInlineDv"] for vector in _vectors(bodies(commit, "add")))
    return list(new.values())


def _vectors(files: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    vectors = (file.get("deletionVector") for file in files)
    return [vector for vector in vectors if vector is not None and vector["storageType"] == "u"]


def is_inside(path: str) -> bool:
    """Return whether a log's path is a plain relative one, below the table's folder and outside its log."""
    plain = unquote(path)
    absolute = plain.startswith("/") or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", path)
    return not absolute and ".." not in plain.split("/") and plain.split("/")[0] not in ("", "_delta_log")
