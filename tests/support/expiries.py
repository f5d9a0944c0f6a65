"""A timeline of thirty versions, of which some expire, and what is asked of it then."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.errors import ExpiredError
from lockstep.storage import Storage
from lockstep.timeline.database import Database
from lockstep.timeline.expiry import ExpiryReport, expire
from lockstep.timeline.files import FOLDER, version_in
from lockstep.timeline.log import Timeline
from tests.support.checkpoints import long_history, stored
from tests.support.faulty import FaultyStorage

LAST = 30


def _no_wait() -> None:
    """Nobody else uses the store."""


def opened(store: Storage, **options: Any) -> Timeline:
    timeline = Timeline.open(store, checkpoint_every=10, **options)
    timeline.mark_published(timeline.head.version)
    return timeline


def run(timeline: Timeline, first_kept: int, *keep: int, **options: Any) -> ExpiryReport:
    return expire(timeline, first_kept=first_kept, keep=keep, wait=_no_wait, **options)


def plain(database: Database) -> tuple[Any, ...]:
    """What a database version says, but for which others there are."""
    return (database.version, database.committed_at, dict(database.tables), dict(database.namespaces))


def entries_there(store: FaultyStorage) -> set[int]:
    return {v for name in store.inner.list(FOLDER) if (v := version_in(name)) is not None}


def check_kept(timeline: Timeline, before: dict[int, tuple[Any, ...]], first: int, *kept: int) -> None:
    """See that what is kept is as it was, and that nothing else can be read."""
    for version, was in before.items():
        if version >= first or version in kept:
            assert plain(timeline.at(version)) == was
        else:
            with pytest.raises(ExpiredError, match=f"version {version} has expired.*there are {first} to"):
                timeline.at(version)


def long_store() -> FaultyStorage:
    """Return a store with the whole timeline."""
    return stored(long_history(LAST))


def as_it_was(store: FaultyStorage) -> dict[int, tuple[Any, ...]]:
    """Return every version, as it is before anything expires."""
    timeline = Timeline.open(store)
    return {version: plain(timeline.at(version)) for version in range(LAST + 1)}
