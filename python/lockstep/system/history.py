"""The rows that come from the timeline: database versions, and the transactions that made them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

from lockstep.display import summary
from lockstep.system.query import MOST_LOOKED_AT, Batch, Filter, Query, Row, Window, answer, matches, micros, wanted
from lockstep.system.scope import Scope
from lockstep.timeline.entry import Entry, TableWrite
from lockstep.timeline.log import Timeline


def history(scope: Scope, query: Query) -> Batch:
    """Return database versions, the oldest first unless the last are asked for first."""
    window = window_of(scope, query.filters, version="version", time="committed_at", last=scope.database.version)
    return through(scope, query, window, _version)


def window_of(scope: Scope, filters: Iterable[Filter], *, version: str, time: str, last: int) -> Window:
    """Return the database versions up to `last` that conditions on a version and on a time of commit leave."""
    filters = list(filters)
    window = Window(0, last).narrowed(filters, version)
    if not any(each.column == time for each in filters):
        return window

    def rank(value: int) -> int:
        return _first_since(scope.lake.timeline, value, window)

    return window.narrowed(filters, time, rank)


def through(scope: Scope, query: Query, window: Window, row_of: Callable[[Entry], Row | None]) -> Batch:
    """Return the next batch of rows that entries give, one each at most.

    Who asks for transactions by their ids is answered from the newest version on, up to the last one of them: there is
    no index of ids, and nobody has one twice. So it is where all of them are wanted; who wants fewer, and the first
    ones, is answered in that order. A cursor below 0 is one of those who were turned round.
    """
    ids = wanted(query.filters, "transaction_id")
    is_turned = ids is not None and not query.descending and _takes_all(query, ids)
    if ids is not None:
        limit = len(ids) if query.limit is None else min(len(ids), query.limit)
        query = replace(query, descending=query.descending or is_turned, limit=limit)
    first, last = window.first, window.last
    if query.cursor is not None:
        cursor = ~query.cursor if is_turned else query.cursor
        first, last = (first, cursor) if query.descending else (cursor, last)
    rows: list[Any] = []
    if query.most == 0:
        return Batch(rows)
    for looked_at, entry in enumerate(_in_steps(scope.lake.timeline, Window(first, last), query), 1):
        if ids is not None and entry.transaction.id in ids:
            ids.remove(entry.transaction.id)
        row = row_of(entry)
        if row is not None and matches(row, query.filters):
            rows.append(answer(row, query.columns))
        if len(rows) == query.most or looked_at == MOST_LOOKED_AT or ids == set():
            is_enough = ids == set() or (query.limit is not None and len(rows) >= query.limit)
            is_last = entry.version == (first if query.descending else last)
            following = entry.version + (-1 if query.descending else 1)
            return Batch(rows, None if is_enough or is_last else ~following if is_turned else following)
    return Batch(rows)


def _takes_all(query: Query, ids: Collection[str]) -> bool:
    """Tell whether the limit is no less than the transactions that are asked for; a batch has what its first one had.

    Of what is left of the limit in a later batch nothing follows.
    """
    if query.cursor is not None:
        return query.cursor < 0
    return query.limit is None or query.limit >= len(ids)


def changed(entry: Entry) -> dict[str, Any]:
    """Return what history and transactions both say of an entry."""
    info, fields = entry.transaction, summary(entry)
    return {
        "transaction_id": info.id,
        "author": info.author,
        "application": info.application,
        "comment": info.message,
        "isolation": info.isolation,
        "began_at": info.began_at,
        "base_version": info.base_version,
        "tables": fields["tables"],
    }


def _version(entry: Entry) -> Row:
    fields = summary(entry)
    batch = entry.batch
    return {
        **changed(entry),
        "version": entry.version,
        "committed_at": entry.committed_at,
        "kind": entry.kind,
        "views": fields["views"],
        "namespaces": fields["namespaces"],
        "tags": [ddl.name for ddl in entry.tags],
        "files_added": _files(entry, lambda write: write.counts.files_added),
        "files_removed": _files(entry, lambda write: write.counts.files_removed),
        "rows_added": fields["rows_added"],
        "rows_removed": fields["rows_removed"],
        "batch_application": None if batch is None else batch.application,
        "batch_number": None if batch is None else batch.number,
        "statements": entry.transaction.statements,
        "aborted": entry.aborts,
    }


def _files(entry: Entry, count: Callable[[TableWrite], int]) -> int | None:
    """Return how many files an entry adds or removes; of what a plain Delta writer did, nobody has counted them."""
    return None if entry.kind == "external" else sum(map(count, entry.writes))


def _in_steps(timeline: Timeline, window: Window, query: Query) -> Iterator[Entry]:
    """Yield the entries of a window; where a few rows are enough, few are read before it is known that more are."""
    first, last = window.first, window.last
    step = MOST_LOOKED_AT if query.limit is None else query.limit
    while first <= last:
        step = min(step, MOST_LOOKED_AT)
        if query.descending:
            begin = max(first, last - step + 1)
            yield from _entries(timeline, begin, last)
            last = begin - 1
        else:
            end = min(last, first + step - 1)
            yield from reversed([*_entries(timeline, first, end)])
            first = end + 1
        step *= 2


# --- reading the timeline ---------------------------------------------------------------------------------------------


def _entries(timeline: Timeline, first: int, last: int) -> Iterator[Entry]:
    """Yield what some database versions changed, the newest first, also of those that expired; no others are read."""
    return timeline.past(after=first - 1, through=last)


def _first_since(timeline: Timeline, time: int, window: Window) -> int:
    """Return the first version of a window that was committed at a time, in microseconds, or later; else the next.

    Times never go back, so of n versions about log2(n) are looked at. One that is not there has expired, and nobody
    kept what it changed; what is older may have been kept all the same, so the newest one below it tells.
    """
    before, since = window.first - 1, window.last + 1
    while since - before > 1:
        middle = (before + since) // 2
        entry = next(_entries(timeline, middle, middle), None) or next(_entries(timeline, before + 1, middle), None)
        if entry is not None and micros(entry.committed_at) >= time:
            since = entry.version
        else:
            before = middle
    return since
