"""Faults of upkeep, and of what persons decide, that are put back on purpose: `tests.sim.broken` looks for them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any
from unittest.mock import patch

from lockstep.commit import row_merge
from lockstep.delta.actions import Action, split
from lockstep.delta.combine.deletion_vectors import Descriptor
from lockstep.delta.footprint import Footprint
from lockstep.delta.places import may_mean
from lockstep.delta.snapshot import Snapshot, read_snapshot
from lockstep.lake.lake import Lake
from lockstep.recovery import choices, settle
from lockstep.recovery.divergence import Divergence
from lockstep.retention import deleting, expiring, pins, planning
from lockstep.retention.files import TableFiles
from lockstep.timeline import expiry
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Expired


def expiry_ignores_tags() -> AbstractContextManager[object]:
    """What a tag names expires like any other version."""

    def kept_from(head: Database, first_kept: int, keep: Collection[int], _: datetime) -> Expired:
        tagged = {tag.version for tag in head.tags.values()}
        kept = {v for v in keep if v < first_kept and v not in tagged and not head.expired.has(v)}
        return Expired(first_kept=first_kept, kept=tuple(sorted(kept)))

    return patch.object(expiry, "kept_from", kept_from)


@contextmanager
def open_ones_keep_nothing() -> Iterator[None]:
    """Records of open transactions keep neither versions nor files."""
    whole = pins.pins

    def none(lake: Lake, *_: object) -> pins.Pins:
        return replace(whole(lake), transactions=frozenset(), open_since=None, open_ids=frozenset())

    with patch.object(expiring, "pins", none), patch.object(planning, "pins", none):
        yield


def vectors_are_litter() -> AbstractContextManager[object]:
    """A file of a deletion vector counts as one that no commit names."""
    return patch.object(TableFiles, "_paths", lambda self, body: may_mean(body["path"], self.location, self.root))


def rows_are_not_merged() -> AbstractContextManager[object]:
    """Of two deletion vectors of one file the later one stays alone."""

    def merge(
        commits: Sequence[Sequence[Action]], ours: Footprint, vectors: Mapping[str, Descriptor], **_: Any
    ) -> list[list[Action]]:
        def landing(action: Action) -> Action:
            kind, body = split(action)
            before = kind == "remove" and body["path"] in vectors
            return {kind: {**body, "deletionVector": vectors[body["path"]]}} if before else action

        return [[landing(action) for action in commit] for commit in commits]

    return patch.object(row_merge, "merge_vectors", merge)


def settled_loses_a_commit() -> AbstractContextManager[object]:
    """Who keeps `ours` gets what both sides had before they diverged."""

    def wanted_and_there(lake: Lake, found: Divergence) -> tuple[Snapshot, Snapshot]:
        _, there = choices.wanted_and_there(lake, found)
        return read_snapshot(lake.storage, found.table.location, found.common), there

    return patch.object(settle, "wanted_and_there", wanted_and_there)


@contextmanager
def given_back_is_the_lakes() -> Iterator[None]:
    """Folders of tables that were given back are the lake's to delete."""
    with patch.object(planning, "guests", lambda _: frozenset()), patch.object(deleting, "guests", lambda _: ()):
        yield


def killed_runs_are_forgotten() -> AbstractContextManager[object]:
    """Nobody takes over what a run that was killed had begun to delete."""
    return patch.object(deleting, "_take_over", lambda *_: None)
