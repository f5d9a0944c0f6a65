"""Delta's actions as values: what one commit says, and what other commits need to know of it.

An action is a dictionary of one key, as it stands on a line of `_delta_log/<version>.json` (Protocol, "Actions").
Actions are never changed in place here: whoever changes one makes a new dictionary.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import msgspec

from lockstep.delta.combine.evolution import NOTHING, UNCLEAR, Kinds, TableState, evolve
from lockstep.delta.pruning.covers import covers
from lockstep.delta.pruning.predicates import FileValues
from lockstep.errors import InvalidError
from lockstep.timeline.entry import Counts

Action: TypeAlias = dict[str, Any]
LogicalFile: TypeAlias = tuple[str, str | None]
"""The primary key of a file in a table: its path, and the unique id of its deletion vector if it has one."""

ROW_TRACKING = "delta.rowTracking"
"""The metadata domain that holds the highest row id given out; every writer of a row-tracked table writes it."""

_FILES = frozenset({"add", "remove", "cdc", "sidecar"})
_decode = msgspec.json.Decoder(dict[str, Any | None]).decode


# --- lines ------------------------------------------------------------------------------------------------------------


def parse(text: bytes | str) -> list[Action]:
    """Read a commit's NDJSON: one action a line, empty lines allowed, null members dropped.

    Raises:
        InvalidError: a line is not a JSON object with exactly one action; the message gives the line's number from 1.
    """
    data = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    # Only \n separates: str.splitlines would also cut at U+2028, which may stand inside a JSON string.
    return [_parse_line(line, n) for n, line in enumerate(data.split(b"\n"), 1) if line.strip()]


def _parse_line(line: bytes, number: int) -> Action:
    try:
        members = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidError(f"line {number} of the Delta commit is not a JSON object: {error}") from error
    action = {kind: body for kind, body in members.items() if body is not None}
    if len(action) != 1 or not isinstance(next(iter(action.values())), dict):
        raise InvalidError(f"line {number} of the Delta commit is not one action but has the keys {sorted(members)}")
    return action


def render(actions: Iterable[Action]) -> bytes:
    """Write actions as NDJSON, each line ended by a newline; the inverse of `parse`."""
    return b"".join(msgspec.json.encode(action) + b"\n" for action in actions)


def split(action: Action) -> tuple[str, dict[str, Any]]:
    """Return an action's kind (`add`, `remove`, …) and its fields."""
    ((kind, body),) = action.items()
    return kind, body


def bodies(actions: Iterable[Action], kind: str) -> list[dict[str, Any]]:
    """Return the fields of all actions of one kind, in order."""
    return [action[kind] for action in actions if kind in action]


TRANSACTION_PARAMETER = "lockstepTransaction"
"""The operation parameter by which `DESCRIBE HISTORY` leads to the transaction, and so to its database version."""


def traced(actions: Iterable[Action], transaction_id: str) -> list[Action]:
    """Return a commit whose `commitInfo` names the transaction among the operation's parameters."""

    def named(info: dict[str, Any]) -> dict[str, Any]:
        parameters = {**(info.get("operationParameters") or {}), TRANSACTION_PARAMETER: transaction_id}
        return {**info, "operationParameters": parameters}

    return [{"commitInfo": named(a["commitInfo"])} if "commitInfo" in a else a for a in actions]


# --- files ------------------------------------------------------------------------------------------------------------


def logical_file(file: dict[str, Any]) -> LogicalFile:
    """Return the key of an add's or a remove's logical file (Protocol, "Add File and Remove File")."""
    return file["path"], deletion_vector_id(file.get("deletionVector"))


def deletion_vector_id(descriptor: dict[str, Any] | None) -> str | None:
    """Return a deletion vector's `uniqueId` (Protocol, "Derived Fields"), None without a vector."""
    if descriptor is None:
        return None
    file = f"{descriptor['storageType']}{descriptor['pathOrInlineDv']}"
    offset = descriptor.get("offset")
    return file if offset is None else f"{file}@{offset}"


def changes_rows(file: dict[str, Any]) -> bool:
    """Return an add's or a remove's `dataChange`; Delta reads an absent one as true."""
    return bool(file.get("dataChange", True))


def only_recommits(commit: Sequence[Action]) -> bool:
    """Return whether this commit's adds without data change are of files that the table already has.

    "When `false` the logical file must already be present in the table or the records in the added file must be
    contained in one or more `remove` actions in the same version" (Protocol, `add.dataChange`): with no such remove
    in the commit, only the first is left. Statistics and row-tracking backfills write such commits.
    """
    return all(changes_rows(remove) for remove in bodies(commit, "remove"))


ADDED_AGAIN = "numFilesAddedAgain"
"""The metric of a commit made of several: how many of its adds are of files that the table has already."""

CREATES_FILES = frozenset({
    "WRITE", "STREAMING UPDATE", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "OPTIMIZE", "REORG",
    "CREATE TABLE AS SELECT", "REPLACE TABLE AS SELECT", "CREATE OR REPLACE TABLE AS SELECT",
})  # fmt: skip
"""Delta's operations whose adds are of files that they themselves wrote, or gave another deletion vector."""


LOOKS_FOR_ROWS = frozenset({"DELETE", "UPDATE", "MERGE", "TRANSACTION"})
"""Operations that remove only rows that they looked for, so what they read says which those can be.

A commit of several statements (`OPERATION` in `delta.combine.collapse`) is among them: its transaction judged each.
"""


def overwrites(commit: Sequence[Action]) -> bool:
    """Return whether a commit removes rows that it need not have looked for, as INSERT OVERWRITE does."""
    info = next(iter(bodies(commit, "commitInfo")), {})
    return info.get("operation") not in LOOKS_FOR_ROWS and any(map(changes_rows, bodies(commit, "remove")))


def added_again(commit: Sequence[Action]) -> int | None:
    """Return how many of a commit's adds are of files that the table has already, None where that cannot be told.

    A commit of several statements says it. One of a single statement has no such file if it changes the rows of each,
    or if it is of an operation that writes its own (OPTIMIZE).
    """
    quiet = [add for add in bodies(commit, "add") if not changes_rows(add)]
    info = next(iter(bodies(commit, "commitInfo")), {})
    said = (info.get("operationMetrics") or {}).get(ADDED_AGAIN)
    if said is not None:
        return int(said)
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
    return None if records is None else records - _deleted_rows(file)


def _deleted_rows(file: dict[str, Any]) -> int:
    descriptor = file.get("deletionVector")
    return int(descriptor["cardinality"]) if descriptor else 0


# --- summaries --------------------------------------------------------------------------------------------------------


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
    added = [f for p, f in adds.items() if p not in removes]
    removed = [f for p, f in removes.items() if p not in adds]
    deleted = [_deleted_rows(adds[p]) - _deleted_rows(removes[p]) for p in adds.keys() & removes.keys()]
    return Counts(
        files_added=len(added) - (added_again(commit) or 0),
        files_removed=len(removed),
        rows_added=_rows(added, sum(-n for n in deleted if n < 0)) if rows is None else rows[0],
        rows_removed=_rows(removed, sum(n for n in deleted if n > 0)) if rows is None else rows[1],
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
    added, removed = (sum(int(metrics[name]) for name in side) for side in names)
    return added, removed


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


@dataclass(frozen=True, slots=True)
class VectorChange:
    """A data file that stayed where it is and got another deletion vector, over a run of commits.

    Attributes:
        before: the descriptor of the vector that it had (Protocol, "Deletion Vector Descriptor Schema"), None without.
        after: that of the vector that it has now.
    """

    before: dict[str, Any] | None
    after: dict[str, Any]


@dataclass(frozen=True)
class Footprint:
    """What a run of commits of one table touched: all that the conflict check and a rebase need to know of it.

    Attributes:
        removed, added: paths of data files, as the log writes them (URL-encoded).
        metadata, protocol: what is changed of them, nothing without such an action (`delta.combine.evolution`).
        apps: the `appId`s of SetTransaction actions (`txn`).
        domains: names of metadata domains but `delta.rowTracking`, which `rebase` reconciles.
        row_id_mark: the highest row id given out, None where it was not raised.
        timestamp_ms: the last in-commit timestamp, in ms since 1970, None without.
        data_change: whether any file was added or removed with `dataChange` true.
        rows_added, rows_removed: what the log says of the files in which rows came and went, those of rewritten files
            on both sides.
        blind: whether these are appends that read nothing of the table, by their own word (`isBlindAppend`).
        covers_added, covers_removed: levels of few file values that cover those of `rows_added` and `rows_removed`,
            none where those are few (`lockstep.delta.pruning.covers`).
        vectors: by path, the touched files that only got another deletion vector, each time with `dataChange` true.
        fixed: whether data files name the versions that the commits were staged as, or ids that they gave out, so that
            they can land nowhere else (`combine.row_tracking.copies_own_rows`); told of our own commits alone.
        overwrites: whether some of the rows removed need not be among those that were read (see the function); told of
            our own commits alone, for nobody knows what others read.
    """

    removed: frozenset[str] = frozenset()
    added: frozenset[str] = frozenset()
    metadata: Kinds = NOTHING
    protocol: Kinds = NOTHING
    apps: frozenset[str] = frozenset()
    domains: frozenset[str] = frozenset()
    row_id_mark: int | None = None
    timestamp_ms: int | None = None
    data_change: bool = False
    rows_added: tuple[FileValues, ...] = ()
    rows_removed: tuple[FileValues, ...] = ()
    blind: bool = False
    vectors: Mapping[str, VectorChange] = field(default_factory=dict)
    covers_added: tuple[tuple[FileValues, ...], ...] = ()
    covers_removed: tuple[tuple[FileValues, ...], ...] = ()
    fixed: bool = False
    overwrites: bool = False

    @cached_property
    def touched(self) -> frozenset[str]:
        """The paths of all data files added, removed or added again."""
        return self.removed | self.added


UNKNOWN = Footprint(metadata=UNCLEAR, protocol=UNCLEAR, data_change=True)
"""Of commits that nobody can read any more: any of the table may have changed, so all who use it conflict."""


def footprint(actions: Iterable[Action], before: Callable[[], TableState | None] = lambda: None) -> Footprint:
    """Summarise the actions of one commit, or of consecutive commits one after the other.

    Args:
        actions: theirs.
        before: says what the table was before them, None where that is not known; asked only if they change its
            metadata or protocol.

    Raises:
        InvalidError: the `delta.rowTracking` domain has no readable high-water mark.
    """
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for action in actions:
        kind, body = split(action)
        by_kind.setdefault(kind, []).append(body)
    adds, removes = by_kind.get("add", []), by_kind.get("remove", [])
    infos = by_kind.get("commitInfo", [])
    rows_added, rows_removed = _changed_rows(adds, removes)
    domains = by_kind.get("domainMetadata", [])
    marks = [row_id_mark(d) for d in domains if d["domain"] == ROW_TRACKING and not d.get("removed")]
    metadata, protocols = by_kind.get("metaData", []), by_kind.get("protocol", [])
    changed = evolve(before() if metadata or protocols else None, metadata, protocols)
    stamps = [info["inCommitTimestamp"] for info in infos if info.get("inCommitTimestamp") is not None]
    return Footprint(
        removed=frozenset(file["path"] for file in removes),
        added=frozenset(file["path"] for file in adds),
        metadata=changed[0],
        protocol=changed[1],
        apps=frozenset(txn["appId"] for txn in by_kind.get("txn", [])),
        domains=frozenset(d["domain"] for d in domains) - {ROW_TRACKING},
        row_id_mark=max(marks, default=None),
        timestamp_ms=max(stamps, default=None),
        data_change=any(changes_rows(file) for file in (*adds, *removes)),
        rows_added=rows_added,
        rows_removed=rows_removed,
        blind=bool(infos) and all(info.get("isBlindAppend") is True for info in infos),
        vectors=_vector_changes(removes, adds),
        covers_added=covers(rows_added),
        covers_removed=covers(rows_removed),
    )


def _vector_changes(removes: Sequence[dict[str, Any]], adds: Sequence[dict[str, Any]]) -> dict[str, VectorChange]:
    """Find the files that commits only gave other deletion vectors.

    Each commit that does so removes the file with the vector that it has and adds it with the next one. Within a commit
    their order says nothing, so removes and adds are taken one after the other: each must remove what
    the last one added.
    """
    removed, added = _by_path(removes), _by_path(adds)
    return {
        path: VectorChange(removed[path][0].get("deletionVector"), added[path][-1]["deletionVector"])
        for path in removed.keys() & added.keys()
        if _only_vectors(removed[path], added[path])
    }


def _by_path(files: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for file in files:
        found.setdefault(file["path"], []).append(file)
    return found


def _only_vectors(removes: Sequence[dict[str, Any]], adds: Sequence[dict[str, Any]]) -> bool:
    ids = [logical_file(file) for file in (removes[0], *adds)]
    return (
        [logical_file(remove) for remove in removes] == ids[:-1]
        and len(set(ids)) == len(ids)  # a file given back the vector it had is restored: by file
        and all(add.get("deletionVector") for add in adds)
        and all(changes_rows(file) for file in (*removes, *adds))
    )


def _changed_rows(
    adds: Sequence[dict[str, Any]], removes: Sequence[dict[str, Any]]
) -> tuple[tuple[FileValues, ...], tuple[FileValues, ...]]:
    """Return what the log says of the files in which rows came, and of those in which rows went.

    Another deletion vector on the same file takes rows away, or gives rows back; the add's statistics bound both.
    """
    before = {file["path"]: _deleted_rows(file) for file in removes}
    times = Counter(file["path"] for file in adds)
    came, went = [], [file for file in removes if changes_rows(file) and file["path"] not in times]
    for file in filter(changes_rows, adds):
        # A file of several commits in a row, or with as many rows as before, may be anything.
        more = _deleted_rows(file) - before[file["path"]] if file["path"] in before else None
        unclear = more == 0 or (more is not None and times[file["path"]] > 1)
        if more is None or more < 0 or unclear:
            came.append(file)
        if more is not None and (more > 0 or unclear):
            went.append(file)
    return tuple(map(_values, came)), tuple(map(_values, went))


def _values(file: dict[str, Any]) -> FileValues:
    return FileValues(partition=file.get("partitionValues") or {}, stats=file.get("stats"))


class _RowTracking(msgspec.Struct):
    rowIdHighWaterMark: int


_decode_row_tracking = msgspec.json.Decoder(_RowTracking).decode


def row_id_mark(domain: dict[str, Any]) -> int:
    """Return the highest row id given out, from a `delta.rowTracking` domain (Protocol, "Row Tracking").

    Raises:
        InvalidError: its configuration is not what the protocol says.
    """
    try:
        return _decode_row_tracking(domain["configuration"]).rowIdHighWaterMark
    except (KeyError, TypeError, msgspec.DecodeError) as error:
        raise InvalidError(f"the domain {ROW_TRACKING} has no readable rowIdHighWaterMark: {error}") from error


# --- paths ------------------------------------------------------------------------------------------------------------

_OVERLAY = "lockstep://"
_OVERLAY_URI = re.compile(r"lockstep://[^\s./]+\.([A-Za-z][A-Za-z0-9+-]*)(?:\.([\w.~%@:\[\]+-]+))?")


def real_paths(actions: Iterable[Action]) -> list[Action]:
    """Rewrite the overlay's URIs to those of the storage below.

    `lockstep://<txn>.<scheme>[.<authority>]/path` becomes `<scheme>://<authority>/path`, in every path, table property
    and operation parameter. Only the part before the path changes, so what is URL-encoded stays so.
    """
    return [_map_paths(action, lambda text: _OVERLAY_URI.sub(_storage_uri, text)) for action in actions]


def _storage_uri(match: re.Match[str]) -> str:
    return f"{match[1]}://{match[2] or ''}"


def assert_real(actions: Iterable[Action]) -> None:
    """Check that no path and no table property names the overlay, which ends with its transaction.

    `commitInfo` is not checked: it is history, and a statement's text may say anything.

    Raises:
        InvalidError: one does; the message gives it.
    """

    def check(text: str) -> str:
        if _OVERLAY in text:
            raise InvalidError(
                "please report this; nothing was committed. A path or a table property of the commit still names an "
                f"uncommitted transaction: {text}"
            )
        return text

    for action in actions:
        if "commitInfo" not in action:
            _map_paths(action, check)


def _map_paths(action: Action, change: Callable[[str], str]) -> Action:
    """Return the action with `change` applied to every text in it that is or may hold a location."""
    kind, body = split(action)
    new: dict[str, Any] = {}
    if kind in _FILES:
        new["path"] = change(body["path"])
        descriptor = body.get("deletionVector")
        if descriptor and descriptor["storageType"] == "p":
            new["deletionVector"] = {**descriptor, "pathOrInlineDv": change(descriptor["pathOrInlineDv"])}
    for name in {"metaData": ("configuration",), "commitInfo": ("operationParameters",)}.get(kind, ()):
        if values := body.get(name):
            new[name] = {key: change(v) if isinstance(v, str) else v for key, v in values.items()}
    return {kind: {**body, **new}} if any(body[name] != value for name, value in new.items()) else action
