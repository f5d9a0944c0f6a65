"""What must hold of row ids: each is given out once, and a row keeps its own, however often it is copied."""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

from pyarrow import parquet

from lockstep.delta.log import LOG

MATERIALIZED = "_row-id-col"
"""The column in which a file has the ids of rows that were copied into it."""


def doubled_row_ids(folder: Path) -> list[str]:
    """Return the files of a log whose fresh row ids overlap those of another: each id is given out once."""
    ranges = {
        path: (add["baseRowId"], add["baseRowId"] + json.loads(add["stats"])["numRecords"])
        for path, add in _added(folder).items()
    }
    in_order = sorted((begin, end, path) for path, (begin, end) in ranges.items() if begin < end)
    return [
        f"{folder.name}: row ids of {path} ({begin} to {end}) begin before those of {other} end ({last})"
        for (_, last, other), (begin, end, path) in pairwise(in_order)
        if begin < last
    ]


def wrong_row_ids(
    folder: Path, live: AbstractSet[str], gone: Mapping[str, AbstractSet[int]] = MappingProxyType({})
) -> list[str]:
    """Return the rows of a table that share an id, and those that had another one in an older version.

    Args:
        live: the names of the files that it has now.
        gone: by the names of files the rows, counted from 0, that deletion vectors say are gone.
    """
    first: dict[str, int] = {}
    holders: dict[int, str] = {}
    wrong = []
    for path, add in _added(folder).items():
        name = Path(unquote(path)).name
        for place, (row, id) in enumerate(_ids(folder / unquote(path), add["baseRowId"])):
            if first.setdefault(row, id) != id:
                wrong.append(f"{folder.name}: row {row} has had the ids {first[row]} and {id}, the latter in {path}")
            is_there = name in live and place not in gone.get(name, ())
            if is_there and holders.setdefault(id, row) != row:
                wrong.append(f"{folder.name}: rows {row} and {holders[id]} share the id {id}")
    return wrong


def _added(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the files that a log has ever added, as they were first."""
    added: dict[str, dict[str, Any]] = {}
    for commit in sorted((folder / LOG).glob("*.json")):
        for line in commit.read_text(encoding="utf-8").splitlines():
            if (add := json.loads(line).get("add")) is not None:
                added.setdefault(add["path"], add)
    return added


def _ids(file: Path, base: int) -> list[tuple[str, int]]:
    """Return the rows of a file with their ids: materialized, or by their places."""
    table = parquet.read_table(file, partitioning=None)
    rows: list[str] = table["id"].to_pylist()
    kept = table[MATERIALIZED].to_pylist() if MATERIALIZED in table.column_names else [None] * len(rows)
    return [(row, base + place if id is None else id) for place, (row, id) in enumerate(zip(rows, kept, strict=True))]
