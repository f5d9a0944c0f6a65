"""Which tables Delta's `OPTIMIZE` would compact, and what of them, told by their logs: nothing is compacted here.

The rules are those of Delta 4.4 (`OptimizeExecutor`, `CompactionStrategy`, `ClusteringStrategy`), with the sizes that
it has by default; a session of Spark may have set others (`spark.databricks.delta.optimize.*`).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from lockstep.delta.snapshot import Snapshot, read_snapshot
from lockstep.errors import LockstepError
from lockstep.lake.lake import Lake
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Name, Table

SMALL = 1 << 30
"""`optimize.minFileSize`: a file with fewer bytes is put together with others."""
LARGEST = 1 << 30
"""`optimize.maxFileSize`: so large do they become."""
DELETED = 0.05
"""`optimize.maxDeletedRowsRatio`: a file that has lost a larger part of its rows to a vector counts as small, too."""

_CUBE = "ZCUBE_ID"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Compactable:
    """A table that `OPTIMIZE` would compact.

    Attributes:
        files, size: how many of its files it would put together, and their bytes; None of a clustered table, of which
            Delta finds out as it goes.
    """

    table: Name
    files: int | None
    size: int | None


def usable(database: Database) -> list[Table]:
    """Return the tables that `maintain` has Delta compact, by name: all that are not set aside."""
    return sorted(
        (table for table in database.tables.values() if table.id not in database.set_aside), key=lambda each: each.name
    )


def compactable(lake: Lake) -> list[Compactable]:
    """Return which tables of the newest version `OPTIMIZE` would change; one that cannot be read it would not either.

    Raises:
        UnavailableError, CorruptTimelineError: the timeline cannot be read.
    """
    found = lake.side_by_side(lambda table: _of_table(lake, table), usable(lake.refresh()))
    return [each for each in found if each is not None]


def shown(tables: Iterable[Compactable]) -> str:
    """Return what would be compacted in one line."""
    return ", ".join(
        ".".join((*each.table.namespace, each.table.table))
        + ("" if each.files is None else f" ({each.files} files, {each.size} bytes)")
        for each in tables
    )


def _of_table(lake: Lake, table: Table) -> Compactable | None:
    try:
        snapshot = read_snapshot(lake.storage, table.location, table.version)
    except LockstepError as error:
        _log.warning("whether table %s would be compacted is not known: %s", table.name, error)
        return None
    if _is_clustered(snapshot):
        cubes = {(file.get("tags") or {}).get(_CUBE) for file in snapshot.files.values()}
        is_one = not cubes or (len(cubes) == 1 and None not in cubes)
        return None if is_one else Compactable(table.name, None, None)
    bins = _bins(snapshot.files.values())
    files = [size for each in bins for size in each]
    return Compactable(table.name, len(files), sum(files)) if files else None


def _is_clustered(snapshot: Snapshot) -> bool:
    domain = snapshot.domains.get("delta.clustering")
    if domain is None or "clustering" not in snapshot.features:
        return False
    return bool(_said(domain.get("configuration")).get("clusteringColumns"))


def _bins(files: Iterable[Mapping[str, Any]]) -> list[list[int]]:
    """Return the sizes of files that become one, of each such group of two and more."""
    by_partition: defaultdict[tuple[tuple[str, str | None], ...], list[int]] = defaultdict(list)
    for file in files:
        if file["size"] < SMALL or _has_lost_rows(file):
            by_partition[tuple(sorted(file["partitionValues"].items()))].append(file["size"])
    bins: list[list[int]] = []
    for sizes in by_partition.values():
        current, total = list[int](), 0
        for size in sorted(sizes):
            if size + total > LARGEST:
                bins.append(current)
                current, total = [], 0
            current.append(size)
            total += size
        bins.append(current)
    return [each for each in bins if len(each) > 1]


def _has_lost_rows(file: Mapping[str, Any]) -> bool:
    if (vector := file.get("deletionVector")) is None:
        return False
    rows = _said(file.get("stats")).get("numRecords")
    return not isinstance(rows, int) or (rows > 0 and vector["cardinality"] / rows > DELETED)


def _said(text: str | None) -> dict[str, Any]:
    """Return what JSON in a log says, which is advice: nothing, where it is broken."""
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}
