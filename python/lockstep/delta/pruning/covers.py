"""Few file values that cover those of many files: what cannot be in a cover cannot be in any file of it.

A predicate is judged against a cover first, so that a commit of a thousand files that have nothing to do with it costs
few comparisons. A cover has the files of one partition, or all, and bounds of the top-level columns whose bounds are,
in all its files, integers, or dates or times of one form; all else it leaves open.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from lockstep.delta.pruning.file_bounds import FileValues, stands_for_more

MAX_COVERS = 16
"""Of one commit; files of more partitions are covered together, whatever their partitions."""

_FIXED_FORM = re.compile(r"\d{4}-\d\d-\d\d(?:T\d\d:\d\d:\d\d\.\d{3}Z)?")
"""Texts of this form and of one length are in the order of the dates and times that they say."""


class _Stats(msgspec.Struct):
    numRecords: int | None = None
    minValues: dict[str, Any] = {}
    maxValues: dict[str, Any] = {}
    nullCount: dict[str, Any] = {}


_decode = msgspec.json.Decoder(_Stats).decode


def covers(files: Sequence[FileValues]) -> tuple[tuple[FileValues, ...], ...]:
    """Return levels of covers, the coarsest first: a row that may be in one of the files may be in one of each level.

    A level has at most `MAX_COVERS`; there is none for less than two files, which are judged as fast themselves.
    """
    if len(files) < 2:
        return ()
    by_partition: dict[tuple[tuple[str, str | None], ...], list[FileValues]] = {}
    for file in files:
        by_partition.setdefault(tuple(sorted(file.partition.items())), []).append(file)
    if len(by_partition) > MAX_COVERS:
        return ((FileValues({}, _stats(files)),),)
    each = tuple(FileValues(dict(partition), _stats(inside)) for partition, inside in by_partition.items())
    whole = _stats(each) if len(each) > 1 else None
    return (each,) if whole is None else ((FileValues({}, whole),), each)


def _stats(files: Iterable[FileValues]) -> str | None:
    """Return statistics that hold for all files, as JSON; None if nothing is known of all."""
    all_stats: list[_Stats] = []
    for file in files:
        try:
            all_stats.append(_decode(file.stats or ""))
        except (msgspec.DecodeError, RecursionError):
            return None
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for column in set.intersection(*(_columns(stats) for stats in all_stats)):
        bounds = [pair for stats in all_stats if (pair := _bounds(stats, column)) is not None]
        if not _comparable(bounds):
            continue
        low[column], high[column] = min(least for least, _ in bounds), max(greatest for _, greatest in bounds)
        if all(type(count := stats.nullCount.get(column)) is int and count == 0 for stats in all_stats):
            nulls[column] = 0
    if not low:
        return None
    return msgspec.json.encode({"numRecords": 1, "minValues": low, "maxValues": high, "nullCount": nulls}).decode()


def _columns(stats: _Stats) -> set[str]:
    return stats.nullCount.keys() | (stats.minValues.keys() & stats.maxValues.keys())


def _bounds(stats: _Stats, column: str) -> tuple[Any, Any] | None:
    """Return a column's least and greatest value; None for a column that is null in all rows, which bounds nothing."""
    count = stats.nullCount.get(column)
    if type(count) is int and count > 0 and count == stats.numRecords:
        return None
    return stats.minValues.get(column), stats.maxValues.get(column)


def _comparable(bounds: Sequence[tuple[Any, Any]]) -> bool:
    """Tell whether bounds may be compared with one another as they stand, and none contradicts itself."""
    values = [value for pair in bounds for value in pair]
    integers = all(type(value) is int and not stands_for_more(value) for value in values)
    texts = all(type(value) is str and _FIXED_FORM.fullmatch(value) for value in values)
    one_form = integers or (texts and len({len(value) for value in values}) == 1)
    return bool(values) and one_form and all(least <= greatest for least, greatest in bounds)
