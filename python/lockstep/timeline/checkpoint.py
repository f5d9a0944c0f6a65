"""Checkpoints: the database as it was at a version, so that nobody has to read the entries before it.

    <root>/_lockstep/checkpoints/00000000000000000100.json   a manifest: the checkpoint of database version 100
    <root>/_lockstep/checkpoints/parts/<digest>.jsonl        a part: see `lockstep.timeline.parts`

A checkpoint is advice. It says nothing that the entries do not, and any of them may be missing. One whose manifest
cannot be read, or that is of another history than the entries are, is passed over. Its parts are read when somebody
needs what is in them; one that turns out to be missing or damaged then is made of the entries.

What the database has, and what finds it by another key, are maps. Each is put in order and cut into parts. All who
write the checkpoint of a version write the same bytes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

from immutables import Map

from lockstep.errors import LockstepError, UnavailableError
from lockstep.storage import Mine, Storage
from lockstep.timeline.entry import Database, Entry, Index
from lockstep.timeline.files import File, Gets, version_in
from lockstep.timeline.fold import Placements, apply, first_moved, placements_after
from lockstep.timeline.history import History
from lockstep.timeline.layered_map import LayeredMap, side_by_side
from lockstep.timeline.manifest import (
    FOLDER,
    FORMAT,
    KINDS,
    Manifest,
    check_entry,
    manifest_path,
    read_manifest,
    sealed,
)
from lockstep.timeline.parts import (
    NewPart,
    Pairs,
    Part,
    PartCache,
    SortedParts,
    UnusableError,
    cut,
    digest_of,
    part_path,
    read_part,
)

_PASSED_OVER = (
    "the checkpoint of database version %d is passed over (%s): %s. An older one, or the timeline's entries, are read "
    "instead, and all that the database holds is in these"
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class State:
    """What the entries up to a version say together.

    Attributes:
        database: the database, as `fold` makes it without amendments.
        placements: where commits are that were moved, as these entries say.
    """

    database: Database
    placements: Placements


def state_after(state: State | None, entries: Iterable[Entry], history: History, storage: Storage) -> State:
    """Return the state after more entries, which follow it; None is before entry 0.

    Raises:
        UnavailableError, CorruptTimelineError: one moves commits of earlier ones, and those cannot be read; or it does
            not fit.
    """
    database = None if state is None else state.database
    places: Placements = Map() if state is None else state.placements
    for entry in entries:
        database = apply(database, entry)
        if entry.moved:
            between = range(first_moved(entry), entry.version)
            places = placements_after(places, entry, history.scan(storage, between, last=entry.version - 1))
    if database is None:
        raise ValueError("no entries, and nothing before them")
    return State(database, places)


def maps_of(state: State) -> dict[str, Mapping[Any, Any]]:
    """Return the maps of a state by their names in a manifest."""
    database, index = state.database, state.database.index
    return {
        "tables": database.tables,
        "views": database.views,
        "namespaces": database.namespaces,
        "batches": database.batches,
        "tags": database.tags,
        "ids": index.ids,
        "locations": index.locations,
        "inside": index.inside,
        "moved": state.placements,
    }


def _state(manifest: Manifest, maps: Mapping[str, Any]) -> State:
    database = Database(
        version=manifest.version,
        committed_at=manifest.committed_at,
        namespaces=maps["namespaces"],
        tables=maps["tables"],
        views=maps["views"],
        batches=maps["batches"],
        tags=maps["tags"],
        index=Index(ids=maps["ids"], locations=maps["locations"], inside=maps["inside"]),
    )
    return State(database, Map(maps["moved"].items()))


def read_state(storage: Storage, manifest: Manifest) -> State:
    """Read a checkpoint whole, and see that its entry is the one that the timeline has.

    Raises:
        UnusableError: a part is missing or damaged, or the entry is another one.
        UnavailableError, CorruptTimelineError: the store failed, or the entry cannot be read.
    """
    check_entry(storage, manifest)

    def whole(name: str) -> Mapping[Any, Any]:
        parts: Sequence[Part[Any]] = getattr(manifest, name)
        reads = [partial(read_part, storage, KINDS[name], part) for part in parts]
        found = {key: value for pairs in side_by_side(reads) for key, value in pairs}
        if sorted(found) != list(found):
            raise UnusableError(f"its {name} are not in order")
        return Map(found)

    return _state(manifest, {name: whole(name) for name in KINDS})


def versions(storage: Storage) -> list[int]:
    """Return the versions that have a checkpoint, or something in its place, in order.

    Raises:
        UnavailableError: the store failed.
    """
    return [version for name in storage.list(FOLDER) if (version := version_in(name)) is not None]


def proof_of_later(storage: Storage, last: int) -> int | None:
    """Return a version after the last entry that a checkpoint is of: it is written after the version's entry.

    Raises:
        UnavailableError: the store failed.
    """
    for version in reversed(versions(storage)):
        if version <= last:
            break
        try:
            return read_manifest(storage, version).version
        except UnusableError as error:
            _log.warning(_PASSED_OVER, version, manifest_path(version), error)
    return None


class Checkpoints:
    """The checkpoints of one timeline, as far as this process has met them; safe to share between threads."""

    def __init__(self, storage: Storage, history: History | None = None) -> None:
        """Know of none; `history` keeps the entries that are read where a part cannot be."""
        self._storage = storage
        self._history = History() if history is None else history
        self._parts = PartCache(storage)
        self._newest: Manifest | None = None
        self._listing: list[int] = []
        self._lock = threading.Lock()

    def newest(self, at_most: int, candidate: int | None = None, files: Gets | None = None) -> State | None:
        """Return the newest checkpoint up to a version that can be believed; None if there is none.

        Its maps are read when somebody asks for what is in them (`lockstep.timeline.layered_map`). Where some cannot be
        believed, the steps back become longer, and the oldest is the last that is tried: what is damaged may be a part
        that many share, and to read some more entries is less than to read a thousand manifests.

        Args:
            candidate: one that is said to be there, up to that version; it is tried first, and saves a listing.
            files: where the candidate's files are read, if not in the store.

        It raises nothing: what cannot be read is passed over, and the entries say what there is.
        """
        if candidate is not None and (state := self._try(candidate, files or self._storage)) is not None:
            return state
        listing, step = self._up_to(at_most), 1
        number = len(listing) - 1
        while number >= 0:
            version = listing[number]
            if version != candidate and (state := self._try(version, self._storage)) is not None:
                return state
            number, step = max(number - step, 0) if number else -1, 2 * step
        return None

    def _up_to(self, at_most: int) -> list[int]:
        """Return the versions up to one that have a checkpoint; those that are known already, if a newer one is."""
        listing = self._listing
        if not listing or listing[-1] <= at_most:
            try:
                self._listing = listing = versions(self._storage)
            except UnavailableError as error:
                _log.warning("the timeline's checkpoints cannot be listed; its entries are read instead: %s", error)
        return [version for version in listing if version <= at_most]

    def _try(self, version: int, files: Gets) -> State | None:
        try:
            manifest = read_manifest(files, version)
            if hit := next(iter(manifest.digests() & self._parts.bad), None):
                raise UnusableError(f"part {hit} was missing or damaged before")
            check_entry(files, manifest)
            state = self.state(manifest)
        except (UnusableError, LockstepError) as error:
            _log.warning(_PASSED_OVER, version, manifest_path(version), error)
            return None
        self._note(manifest)
        return state

    def _note(self, manifest: Manifest) -> None:
        with self._lock:
            if self._newest is None or self._newest.version <= manifest.version:
                self._newest = manifest

    def state(self, manifest: Manifest) -> State:
        """Return what a checkpoint says, each part of which is read when somebody asks for it.

        Raises:
            UnavailableError, CorruptTimelineError: the moved commits, which are read now, cannot be.
        """
        instead = _FromEntries(self, manifest.version)

        def layered(name: str) -> LayeredMap[Any, Any]:
            parts = getattr(manifest, name)
            return LayeredMap(
                SortedParts(KINDS[name], parts, self._parts, manifest.version, partial(instead.whole, name))
            )

        return _state(manifest, {name: layered(name) for name in KINDS})

    def from_entries(self, version: int) -> State:
        """Return the state of a version without its checkpoint: of an older one, or none, and the entries since.

        Raises:
            UnavailableError, CorruptTimelineError: an entry cannot be read, or is gone.
        """
        state = self.newest(version - 1) if version else None
        since = range(0 if state is None else state.database.version + 1, version + 1)
        entries = self._history.scan(self._storage, since, last=version)
        return state_after(state, entries, self._history, self._storage)

    def write(self, state: State, file: File) -> Manifest:
        """Write a checkpoint: the parts in which something changed since the one that it comes from, and its manifest.

        Where it is there already, by another process, nothing is written.

        Args:
            file: it holds the version's entry.

        Raises:
            UnavailableError: the store failed. Parts may be there that no manifest names; they do no harm.
            CorruptTimelineError: a part in which something changed cannot be read, nor made of entries.
        """
        if (manifest := self._written(state, digest_of(file.data))) is None:
            manifest = self._write(state, file)
        self._note(manifest)
        return manifest

    def _written(self, state: State, entry: str) -> Manifest | None:
        """Return the manifest of a checkpoint that another process wrote."""
        try:
            manifest = read_manifest(self._storage, state.database.version)
        except UnusableError:
            return None
        is_ours = (manifest.entry, manifest.committed_at) == (entry, state.database.committed_at)
        return manifest if is_ours and not manifest.digests() & self._parts.bad else None

    def _write(self, state: State, file: File) -> Manifest:
        maps = maps_of(state)
        newest, bad = self._newest, set(self._parts.bad)
        origins = {
            v.base.origin for v in maps.values() if isinstance(v, LayeredMap) and isinstance(v.base, SortedParts)
        }
        versions = origins | ({newest.version} if newest is not None else set())
        there = {version for version in versions if self._storage.exists(manifest_path(version))}
        shared = newest.digests() - bad if newest is not None and newest.version in there else set()

        def may_share(base: SortedParts[Any, Any], part: Part[Any]) -> bool:
            return base.origin in there and part.digest not in bad  # somebody may have deleted them all

        parts = {name: [*cut(kind, maps[name], may_share)] for name, kind in KINDS.items()}
        new = [part for found in parts.values() for part in found if isinstance(part, NewPart)]
        unwritten = {part.part.digest: part.data for part in new if part.part.digest not in shared}
        side_by_side([partial(_put, self._storage, part_path(digest), data) for digest, data in unwritten.items()])
        manifest = Manifest(
            format=FORMAT,
            version=state.database.version,
            committed_at=state.database.committed_at,
            entry=digest_of(file.data),
            first=None if file.first == state.database.version else file.first,
            **{name: [_said(part) for part in found] for name, found in parts.items()},
        )
        _put(self._storage, manifest_path(manifest.version), sealed(manifest))
        for part in new:
            self._parts.keep(part.part.digest, Pairs(part.kind, part.data), evict=False)
        self._parts.bad -= unwritten.keys()
        return manifest


def _said(part: Part[Any] | NewPart[Any, Any]) -> Part[Any]:
    return part.part if isinstance(part, NewPart) else part


class _FromEntries:
    """What a checkpoint should say, made of the entries once somebody meets a part that cannot be read."""

    def __init__(self, checkpoints: Checkpoints, version: int) -> None:
        self._checkpoints = checkpoints
        self._version = version
        self._maps: Mapping[str, Mapping[Any, Any]] | None = None
        self._sorted: dict[str, list[tuple[Any, Any]]] = {}
        self._lock = threading.Lock()

    def whole(self, name: str) -> list[tuple[Any, Any]]:
        """Return the pairs of one of its maps, in order; who else asks meanwhile waits.

        Raises:
            UnavailableError, CorruptTimelineError: an entry cannot be read, or is gone.
        """
        with self._lock:
            if self._maps is None:
                self._maps = maps_of(self._checkpoints.from_entries(self._version))
            if name not in self._sorted:
                self._sorted[name] = sorted(self._maps[name].items(), key=itemgetter(0))
            return self._sorted[name]


def _put(storage: Storage, path: str, data: bytes) -> None:
    """Write a file that anybody else would write so too; what is there instead is damaged, or of another history."""
    if not isinstance(storage.put_if_absent(path, data), Mine):
        storage.put(path, data)
