"""What a run of commits of one table touched: all that the conflict check and a rebase need to know of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from lockstep.delta.actions import (
    ROW_TRACKING,
    Action,
    bodies,
    changes_rows,
    deleted_rows,
    logical_file,
    row_id_mark,
    split,
)
from lockstep.delta.combine.evolution import NOTHING, UNCLEAR, Kinds, TableState, evolve
from lockstep.delta.pruning.covers import covers
from lockstep.delta.pruning.predicates import FileValues

LOOKS_FOR_ROWS = frozenset({"DELETE", "UPDATE", "MERGE", "TRANSACTION"})
"""Operations that remove only rows that they looked for, so what they read says which those can be.

A commit of several statements (`OPERATION` in `delta.combine.collapse`) is among them: its transaction judged each.
"""


def overwrites(commit: Sequence[Action]) -> bool:
    """Return whether a commit removes rows that it need not have looked for, as INSERT OVERWRITE does."""
    info = next(iter(bodies(commit, "commitInfo")), {})
    return info.get("operation") not in LOOKS_FOR_ROWS and any(map(changes_rows, bodies(commit, "remove")))


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
        removed_paths, added_paths: paths of data files, as the log writes them (URL-encoded).
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

    removed_paths: frozenset[str] = frozenset()
    added_paths: frozenset[str] = frozenset()
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
    def paths(self) -> frozenset[str]:
        """The paths of all data files added, removed or added again."""
        return self.removed_paths | self.added_paths


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
    kinds = evolve(before() if metadata or protocols else None, metadata, protocols)
    stamps = [info["inCommitTimestamp"] for info in infos if info.get("inCommitTimestamp") is not None]
    return Footprint(
        removed_paths=frozenset(file["path"] for file in removes),
        added_paths=frozenset(file["path"] for file in adds),
        metadata=kinds[0],
        protocol=kinds[1],
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
    removes_by_path, adds_by_path = _by_path(removes), _by_path(adds)
    return {
        path: VectorChange(removes_by_path[path][0].get("deletionVector"), adds_by_path[path][-1]["deletionVector"])
        for path in removes_by_path.keys() & adds_by_path.keys()
        if _only_vectors(removes_by_path[path], adds_by_path[path])
    }


def _by_path(files: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    by_path: dict[str, list[dict[str, Any]]] = {}
    for file in files:
        by_path.setdefault(file["path"], []).append(file)
    return by_path


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
    before = {file["path"]: deleted_rows(file) for file in removes}
    times = Counter(file["path"] for file in adds)
    came, went = [], [file for file in removes if changes_rows(file) and file["path"] not in times]
    for file in filter(changes_rows, adds):
        # A file of several commits in a row, or with as many rows as before, may be anything.
        more = deleted_rows(file) - before[file["path"]] if file["path"] in before else None
        unclear = more == 0 or (more is not None and times[file["path"]] > 1)
        if more is None or more < 0 or unclear:
            came.append(file)
        if more is not None and (more > 0 or unclear):
            went.append(file)
    return tuple(map(_values, came)), tuple(map(_values, went))


def _values(file: dict[str, Any]) -> FileValues:
    return FileValues(partition=file.get("partitionValues") or {}, stats=file.get("stats"))
