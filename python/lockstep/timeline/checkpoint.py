"""Checkpoints: the database as it was at a version, so that nobody has to read the entries before it.

    <root>/_lockstep/checkpoints/00000000000000000100.json   a manifest: the checkpoint of database version 100
    <root>/_lockstep/checkpoints/parts/<digest>.jsonl        a part: see `lockstep.timeline.parts`

A checkpoint is advice. It says nothing that the entries do not, or the bases where entries have expired
(`lockstep.timeline.base`), and any of them may be missing. One whose manifest
cannot be read, or that is of another history than the entries are, is passed over. Its parts are read when somebody
needs what is in them; one that turns out to be missing or damaged then is made of the entries.

What the database has, and what finds it by another key, are maps. Each is put in order and cut into parts. All who
write the checkpoint of a version write the same bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from immutables import Map

from lockstep.errors import CorruptTimelineError, LockstepError, SnapshotTooOldError, UnavailableError
from lockstep.forks import Lock
from lockstep.storage import Mine, Storage
from lockstep.timeline.base import base_path, base_versions, read_base
from lockstep.timeline.database import NOTHING_EXPIRED, Database
from lockstep.timeline.entry import Expired
from lockstep.timeline.fence import fence
from lockstep.timeline.files import RESTORE, File, Gets, version_in
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
from lockstep.timeline.state import State, maps_of, state_after, state_of, whole

_PASSED_OVER = (
    "the checkpoint of database version %d is passed over (%s): %s. An older one, or the timeline's entries, are read "
    "instead, and all that the database holds is in these"
)

_log = logging.getLogger(__name__)


def read_state(storage: Storage, manifest: Manifest) -> State:
    """Read a checkpoint whole, and see that its entry is the one that the timeline has.

    Raises:
        UnusableError: a part is missing or damaged, or the entry is another one.
        UnavailableError, CorruptTimelineError: the store failed, or the entry cannot be read.
    """
    check_entry(storage, manifest)

    def pairs(name: str) -> Mapping[Any, Any]:
        parts: Sequence[Part[Any]] = getattr(manifest, name)
        reads = [partial(read_part, storage, KINDS[name], part) for part in parts]
        found = {key: value for part in side_by_side(reads) for key, value in part}
        if sorted(found) != list(found):
            raise UnusableError(f"its {name} are not in order")
        return Map(found)

    return whole(state_of(manifest, {name: pairs(name) for name in KINDS if getattr(manifest, name) is not None}))


def versions(storage: Storage) -> list[int]:
    """Return the versions that have a checkpoint, or something in its place, in order.

    Raises:
        UnavailableError: the store failed.
    """
    return [version for name in storage.list(FOLDER) if (version := version_in(name)) is not None]


def versions_after(storage: Storage, version: int) -> list[int]:
    """Return the versions after one that have a checkpoint, or something in its place, in order.

    Raises:
        UnavailableError: the store failed.
    """
    names = storage.list(FOLDER, f"{version:020d}.json")
    return [found for name in names if (found := version_in(name)) is not None]


def proof_of_later(storage: Storage, last: int) -> int | None:
    """Return a version after the last entry that a checkpoint is of: it is written after the version's entry.

    Raises:
        UnavailableError: the store failed.
    """
    for version in reversed(versions_after(storage, last)):
        try:
            return read_manifest(storage, version).version
        except UnusableError as error:
            _log.warning(_PASSED_OVER, version, manifest_path(version), error)
    return None


class Checkpoints:
    """The checkpoints of one timeline, as far as this process has met them; safe to share between threads.

    Attributes:
        expired: which versions have expired, as far as is known.
    """

    def __init__(self, storage: Storage, history: History | None = None, *, every: int = 0) -> None:
        """Know of none.

        Args:
            history: keeps the entries that are read where a part cannot be.
            every: where checkpoints are most likely to be found: at multiples of this. 0 is nowhere.
        """
        self._every = every
        self._storage = storage
        self._history = History() if history is None else history
        self._parts = PartCache(storage)
        self._newest: Manifest | None = None
        self.expired = NOTHING_EXPIRED
        self._listing: list[int] = []
        self._lock = Lock()

    def expire(self, expired: Expired) -> None:
        """Note which versions have expired."""
        if expired.first_kept >= self.expired.first_kept:
            self.expired = expired

    def newest(
        self, at_most: int, candidate: int | None = None, files: Gets | None = None, *, at_least: int = 0
    ) -> State | None:
        """Return the newest checkpoint up to a version that can be believed; None if there is none.

        Its maps are read when somebody asks for what is in them (`lockstep.timeline.layered_map`). Where some cannot be
        believed, the steps back become longer, and the oldest is the last that is tried: what is damaged may be a part
        that many share, and to read some more entries is less than to read a thousand manifests.

        Args:
            candidate: one that is said to be there, up to that version; it is tried first, and saves a listing.
            files: where the candidate's files are read, if not in the store.
            at_least: no older one is of use, for entries after it have expired.

        It raises nothing: what cannot be read is passed over, and the entries say what there is.
        """
        if candidate is not None and candidate < at_least:
            candidate = None  # of a version that is kept alone: whoever wrote the hint stood on it
        if candidate is not None and (state := self._try(candidate, files or self._storage)) is not None:
            return state
        guess = self._guess(at_most, at_least)
        if guess is not None and guess != candidate and (state := self._try(guess, self._storage)) is not None:
            return state
        listing, step = [version for version in self._up_to(at_most) if version >= at_least], 1
        number = len(listing) - 1
        while number >= 0:
            version = listing[number]
            if version != candidate and (state := self._try(version, self._storage)) is not None:
                return state
            number, step = max(number - step, 0) if number else -1, 2 * step
        return None

    def _guess(self, at_most: int, at_least: int) -> int | None:
        """Return a late version up to one that has a checkpoint, found where it is likely to be: that costs no listing.

        A listing is a request for every thousand checkpoints, so it grows with the history.
        """
        if not self._every or (self._listing and self._listing[-1] > at_most):
            return None
        last = at_most - at_most % self._every
        guesses = [version for version in (last, last - self._every) if version > 0 and version >= at_least]
        guesses += [at_least] if 0 < at_least <= at_most else []
        try:
            return next((version for version in guesses if self._storage.exists(manifest_path(version))), None)
        except UnavailableError:
            return None  # the listing tells of it

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

        return state_of(manifest, {name: layered(name) for name in KINDS if getattr(manifest, name) is not None})

    def state_at(self, version: int) -> State:
        """Return the state of a version that has not expired: of the checkpoint before it, and the entries since.

        Raises:
            UnavailableError, CorruptTimelineError: an entry, or the base that the entries begin with, cannot be read.
        """
        floor = self.expired.floor(version)
        return self._since(self.newest(version, at_least=floor) or self.begin(version), version)

    def from_entries(self, version: int) -> State:
        """Return the state of a version without its checkpoint: of an older one, or none, and the entries since.

        Raises:
            UnavailableError, CorruptTimelineError: see `state_at`.
        """
        floor = self.expired.floor(version)
        state = self.newest(version - 1, at_least=floor) if version > floor else None
        return self._since(state or self.begin(version), version)

    def _since(self, state: State | None, version: int) -> State:
        since = range(0 if state is None else state.database.version + 1, version + 1)
        if state is not None and not since:
            return state
        entries = self._history.scan(self._storage, since, last=version)
        return state_after(state, entries, self._history, self._storage)

    def begin(self, version: int) -> State | None:
        """Return what the entries up to a version that has not expired begin with: None is nothing, and entry 0.

        Raises:
            UnavailableError: the store failed.
            SnapshotTooOldError: it is a base that is gone, and more has expired than is known here; or the version has.
            CorruptTimelineError: it is a base, and that is missing or damaged.
        """
        known = self.expired
        floor = known.floor(version)
        if not floor:
            return None
        try:
            return read_base(self._storage, floor)
        except UnusableError as error:
            if known.has(version):
                raise SnapshotTooOldError(
                    f"what database version {version} said is not known any more, for it has expired, and so has what "
                    f"stands on its checkpoint: entries below {known.first_kept} are gone. Nothing of this was "
                    "committed: run it again"
                ) from error
            if first_kept := fence(self._storage, known.first_kept):
                raise SnapshotTooOldError(
                    f"what database version {version} stands on may have expired since this process last looked: "
                    f"entries below {first_kept} are gone. Nothing of this was committed: run it again"
                ) from error
            raise CorruptTimelineError(
                f"{base_path(floor)} cannot be used: {error}. It says what entries said that have expired. {RESTORE}"
            ) from error

    def is_left(self, database: Database) -> bool:
        """Tell whether a database stands on a checkpoint of a version that has expired.

        Its parts go an hour later, but for those that other checkpoints name, and nothing says then what they said.
        """
        base = database.tables.base if isinstance(database.tables, LayeredMap) else None
        return isinstance(base, SortedParts) and self.expired.has(base.origin)

    def instead_of(self, database: Database) -> State | None:
        """Return on what a database may stand whose checkpoint `is_left`: another checkpoint, or a base.

        Raises:
            UnavailableError, SnapshotTooOldError, CorruptTimelineError: see `begin`.
        """
        first_kept = self.expired.first_kept
        return self.newest(database.version, at_least=first_kept) or self.begin(first_kept)

    def newest_base(self, wanted: range) -> State | None:
        """Return the newest base, of some versions, that can be used: of a lake whose checkpoints are all lost.

        Raises:
            UnavailableError, CorruptTimelineError: the store failed, or an entry cannot be read.
        """
        for version in reversed(base_versions(self._storage)):
            if version in wanted:
                try:
                    return read_base(self._storage, version)
                except UnusableError as error:
                    _log.warning("%s is passed over: %s", base_path(version), error)
        return None

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
            expired=state.database.expired,
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
        self._lock = Lock()

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
