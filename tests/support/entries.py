"""Timelines of entries that say little: drafts, and a clock that stands still."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from lockstep.timeline.entry import (
    Commit,
    Entry,
    Name,
    NamespaceDdl,
    TableDdl,
    TableWrite,
    TransactionInfo,
)
from lockstep.timeline.files import entry_path
from lockstep.timeline.fold import DEFAULT_NAMESPACE
from lockstep.timeline.log import Timeline
from lockstep.timeline.outcomes import MakeEntry, Ratified
from tests.support.faulty import FaultyStorage

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)
TICK = timedelta(milliseconds=1)


class FakeClock:
    """A clock that stands still until it is told the time."""

    def __init__(self) -> None:
        self.now = T0

    def __call__(self) -> datetime:
        return self.now


def entry(version: int, **changes: Any) -> Entry:
    """An entry that fits after `version - 1`, but for what the changes say."""
    given_: dict[str, Any] = {
        "kind": "transaction" if version else "create",
        "committed_at": T0 + timedelta(seconds=version),
        "namespaces": [] if version else [NamespaceDdl(action="create", name=DEFAULT_NAMESPACE)],
        "transaction": TransactionInfo(
            id=f"txn-{version}", began_at=T0, base_version=version - 1, isolation="SNAPSHOT"
        ),
    }
    return Entry(**{"format": 1, "version": version, **given_, **changes})


def draft(id: str, **changes: Any) -> MakeEntry:
    """A transaction that creates the namespace called like its id, unless the changes say something else."""

    def make(version: int, committed_at: datetime) -> Entry:
        given_: dict[str, Any] = {
            "kind": "transaction",
            "transaction": TransactionInfo(id=id, began_at=T0, base_version=version - 1, isolation="SNAPSHOT"),
            "namespaces": [NamespaceDdl(action="create", name=(id,))],
        }
        return Entry(**{"format": 1, "version": version, "committed_at": committed_at, **given_, **changes})

    return make


def commit(timeline: Timeline, *ids: str) -> None:
    """Append one entry for each transaction id."""
    for id in ids:
        assert isinstance(timeline.append(draft(id), after=timeline.head.version), Ratified)


def ids(entries: Any) -> list[str]:
    return [entry.transaction.id for entry in entries]


def rewrite(store: FaultyStorage, version: int, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change a stored entry's JSON."""
    value = json.loads(store.inner.get(entry_path(version)) or b"")
    store.inner.put(entry_path(version), json.dumps(change(value) or value).encode())


def with_raw(raw: bytes, **changes: Any) -> dict[str, Any]:
    """What makes a draft create the table t with one inline commit."""
    key = Name(namespace=("default",), table="t")
    commits = [Commit(inline=[msgspec.Raw(raw)])]
    write = TableWrite(id="id-t", name=key, location="t", from_version=-1, to_version=0, commits=commits)
    create = TableDdl(action="create", id="id-t", name=key, location="t")
    return {"namespaces": [], "tables": [create], "writes": [write], **changes}
