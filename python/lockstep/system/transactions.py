"""The rows about transactions: open ones, those that were rolled back, as far as that is kept, and committed ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lockstep.commit.ended import EndedRecord, ended_transactions
from lockstep.commit.records import OpenRecord, with_own
from lockstep.system.history import changed, through, window_of
from lockstep.system.query import Batch, Query, Row, Window, answer, matches, paged, wanted
from lockstep.system.scope import Scope
from lockstep.timeline.entry import Entry
from lockstep.transactions.state import State


def transactions(scope: Scope, query: Query) -> Batch:
    """Return open transactions, then those that were rolled back, then those that are committed.

    Of the timeline so much is read as the conditions on `state`, `database_version` and `ended_at` leave.
    """
    rows = []
    if query.cursor is None:
        rows = [answer(row, query.columns) for row in _recorded(scope) if matches(row, query.filters)]
        if query.limit is not None:
            rows = rows[: query.limit]
            query = replace(query, limit=query.limit - len(rows))
    batch = through(scope, query, _committed_window(scope, query), _committed)
    return Batch(rows + batch.rows, batch.next)


def conflicts(scope: Scope, query: Query) -> Batch:
    """Return the commits that were refused, the newest first."""
    return paged((_conflict(each) for each in ended_transactions(scope.lake) if each.conflict is not None), query)


def _committed_window(scope: Scope, query: Query) -> Window:
    """Return the database versions that may have a transaction which is asked for."""
    states = wanted(query.filters, "state")
    is_null = any(each.column in ("database_version", "ended_at") and each.op == "null" for each in query.filters)
    if is_null or (states is not None and State.COMPLETED not in states):
        return Window(0, -1)
    last = scope.lake.timeline.head.version
    return window_of(scope, query.filters, version="database_version", time="ended_at", last=last)


def _recorded(scope: Scope) -> Iterator[Row]:
    """Yield what no entry of the timeline says."""
    lake = scope.lake
    open_ones = with_own(lake, scope.open_here())
    ended_ones = {record.transaction: record for record in ended_transactions(lake)}
    now = lake.clock()
    for record in open_ones:
        if record.transaction in ended_ones:
            continue  # its record has not been taken back yet
        yield {
            **_of_record(record),
            "state": record.state.value,
            "reason": None,
            "ended_at": None,
            "seen_at": record.seen_at,
            "is_alive": record.is_alive(now),
        }
    for ended in ended_ones.values():
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
        "tables": [str(name) for name in record.tables],
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
