"""The rows about transactions: open ones, those that were rolled back, as far as that is kept, and committed ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from lockstep.commit.ended import MAX_KEPT, EndedRecord, ended_names, ended_transactions, read_ended
from lockstep.commit.records import OpenRecord, with_own
from lockstep.system.history import changed, through, window_of
from lockstep.system.query import Batch, Filter, Query, Row, Window, answer, matches, paged, wanted
from lockstep.system.scope import Scope
from lockstep.timeline.entry import Entry
from lockstep.transactions.state import State

OPEN, ENDED, COMMITTED = "open", "ended", "committed"

_STATES: Mapping[str, frozenset[str]] = {
    OPEN: frozenset({State.REQUESTED, State.INFLIGHT}),
    ENDED: frozenset({State.ROLLED_BACK}),
    COMMITTED: frozenset({State.COMPLETED}),
}

_NULL: Mapping[str, frozenset[str]] = {
    OPEN: frozenset({"reason", "ended_at", "database_version"}),
    ENDED: frozenset({"seen_at", "is_alive", "database_version"}),
    COMMITTED: frozenset({"reason", "seen_at", "is_alive", "process", "bytes_staged"}),
}
"""Of which columns each kind of transaction has no value, ever."""

_THERE: Mapping[str, frozenset[str]] = {
    OPEN: frozenset({"state", "seen_at", "is_alive"}),
    ENDED: frozenset({"state", "reason", "ended_at"}),
    COMMITTED: frozenset({"state", "ended_at", "database_version"}),
}
"""Of which columns it always has one."""


def kinds(filters: Sequence[Filter]) -> list[str]:
    """Return which kinds of transactions conditions leave: nothing is read of the others."""
    states = wanted(filters, "state")

    def is_left(kind: str) -> bool:
        if states is not None and not _STATES[kind] & states:
            return False
        return not any(each.column in (_THERE if each.op == "null" else _NULL)[kind] for each in filters)

    return [kind for kind in _STATES if is_left(kind)]


def transactions(scope: Scope, query: Query) -> Batch:
    """Return open transactions, then those that were rolled back, then those that are committed.

    If the last are asked for first, by when they ended or which version they made, each kind begins with the newest,
    and so many are returned of each as are asked for: among them are those that are the last of all.
    """
    left = kinds(query.filters)
    if query.descending and query.limit is not None:
        return _newest(scope, query, left)
    rows = []
    if query.cursor is None:
        found = [*islice(_matching(scope, query, left), query.limit)]
        rows = [answer(row, query.columns) for row in found]
        ids = wanted(query.filters, "transaction_id")
        if ids is not None and ids == {row["transaction_id"] for row in found}:
            return Batch(rows)  # nobody who is one of these is committed
        if query.limit is not None:
            query = replace(query, limit=query.limit - len(rows))
    batch = through(scope, query, _committed_window(scope, query, left), _committed)
    return Batch(rows + batch.rows, batch.next)


def _newest(scope: Scope, query: Query, left: Sequence[str]) -> Batch:
    """Return at least the last ones, in one batch: a few of each kind."""
    window = _committed_window(scope, query, left)
    batch = through(scope, query, window, _committed)
    rows = batch.rows
    while batch.next is not None:  # many entries were looked at, and few of them are asked for
        rest = replace(query, cursor=batch.next, limit=(query.limit or 0) - len(rows))
        batch = through(scope, rest, window, _committed)
        rows += batch.rows
    recorded = (kind for kind in (ENDED, OPEN) if kind in left)  # those without an end, and a version, come last
    for kind in recorded:
        rows += [answer(row, query.columns) for row in islice(_matching(scope, query, [kind]), query.limit)]
    return Batch(rows)


def _matching(scope: Scope, query: Query, left: Sequence[str]) -> Iterator[Row]:
    """Yield what no entry of the timeline says, and is asked for."""
    return (row for row in _recorded(scope, query, left) if matches(row, query.filters))


def conflicts(scope: Scope, query: Query) -> Batch:
    """Return the commits that were refused, the newest first."""
    return paged((_conflict(each) for each in ended_transactions(scope.lake) if each.conflict is not None), query)


def _committed_window(scope: Scope, query: Query, left: Sequence[str]) -> Window:
    """Return the database versions that may have a transaction which is asked for."""
    if COMMITTED not in left:
        return Window(0, -1)
    last = scope.lake.timeline.head.version
    return window_of(scope, query.filters, version="database_version", time="ended_at", last=last)


def _recorded(scope: Scope, query: Query, left: Sequence[str]) -> Iterator[Row]:
    """Yield what no entry of the timeline says; of those that were rolled back only the records are read that count."""
    lake = scope.lake
    open_ones = with_own(lake, scope.open_here()) if OPEN in left else []
    names = ended_names(lake) if ENDED in left or open_ones else {}
    now = lake.clock()
    for record in open_ones:
        if record.transaction in names:
            continue  # its record has not been taken back yet
        yield {
            **_of_record(record),
            "state": record.state.value,
            "reason": None,
            "ended_at": None,
            "seen_at": record.seen_at,
            "is_alive": record.is_alive(now),
        }
    if ENDED not in left:
        return
    ids = wanted(query.filters, "transaction_id")
    asked = names if ids is None else {id_: each for id_, each in names.items() if id_ in ids}
    for ended in read_ended(lake, asked, step=MAX_KEPT if query.limit is None else max(1, query.limit)):
        yield {
            **_of_record(ended),
            "state": State.ROLLED_BACK.value,
            "reason": ended.reason,
            "ended_at": ended.ended_at,
            "seen_at": None,
            "is_alive": None,
        }


def _of_record(record: OpenRecord | EndedRecord) -> dict[str, object]:
    return {
        "transaction_id": record.transaction,
        "author": record.author,
        "application": record.application,
        "process": record.process or None,
        "began_at": record.began_at,
        "base_version": record.base_version,
        "database_version": None,
        "isolation": record.isolation,
        "tables": [str(name) for name in dict.fromkeys(record.tables)],
        "bytes_staged": record.bytes_staged,
        "comment": record.message,
    }


def _committed(entry: Entry) -> Row | None:
    """Return a transaction, or a statement on its own, that is committed; None for an entry of another kind."""
    if entry.kind != "transaction":
        return None
    return {
        **changed(entry),
        "state": State.COMPLETED.value,
        "reason": None,
        "ended_at": entry.committed_at,
        "seen_at": None,
        "is_alive": None,
        "process": None,
        "database_version": entry.version,
        "bytes_staged": None,
    }


def _conflict(record: EndedRecord) -> Row:
    conflict = record.conflict
    assert conflict is not None, "only those with one are asked for"
    return {
        "refused_at": record.ended_at,
        "transaction_id": record.transaction,
        "rule": conflict.rule,
        "object": conflict.about or None,
        "winner_id": conflict.winner or None,
        "winner_version": conflict.winner_version,
        "base_version": record.base_version,
        "isolation": record.isolation,
        "author": record.author,
        "application": record.application,
        "comment": record.message,
        "message": record.reason,
    }
