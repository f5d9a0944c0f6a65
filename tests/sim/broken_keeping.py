"""Faults of what copies of a lake need that are put back on purpose: `tests.sim.broken` looks for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from unittest.mock import patch

from lockstep.exports import export, keeping
from lockstep.lake.exports import needed_versions
from lockstep.lake.lake import Lake
from lockstep.retention import expiring, pins
from lockstep.retention.versions import Readable


def expiry_knows_what_it_looked_at() -> AbstractContextManager[object]:
    """An expiry heeds the records of exports of those versions alone that were there when it looked, as it once did."""

    def pinned(lake: Lake, before: Readable, *, are_exports_told: bool) -> frozenset[int]:
        return (
            frozenset(filter(before.has, needed_versions(lake.storage, lake.clock())))
            if are_exports_told
            else frozenset()
        )

    return patch.object(expiring, "_pinned", pinned)


@contextmanager
def records_are_not_confirmed() -> Iterator[None]:
    """Who has recorded an export does not look whether an expiry was faster that had not seen the record."""
    with ExitStack() as stack:
        for module in (keeping, export):
            stack.enter_context(patch.object(module, "confirm", lambda *_: None))
        yield


@contextmanager
def records_keep_nothing() -> Iterator[None]:
    """An expiry does not read the records of exports."""
    with ExitStack() as stack:
        for module in (expiring, pins):
            stack.enter_context(patch.object(module, "needed_versions", lambda *_: frozenset()))
        yield


def records_are_read_once() -> AbstractContextManager[object]:
    """An expiry reads the records when it looks, and not anew in each attempt at its entry."""
    return patch.object(expiring, "_pinned", lambda *_, **__: frozenset())
