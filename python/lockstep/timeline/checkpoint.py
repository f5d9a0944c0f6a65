"""Checkpoints: the database as it was at a version, so that nobody has to read the entries before it.

    <root>/_lockstep/checkpoints/00000000000000000100.json   a manifest: the checkpoint of database version 100
    <root>/_lockstep/checkpoints/parts/<digest>.jsonl        a part: some of what the database has, one thing a line

A checkpoint is advice. It says nothing that the entries do not, and any of them may be missing. One that cannot be read
whole, or is of another history than the entries are, is passed over.

What the database has is put in order (tables, views, namespaces, batches, moved commits, each by name) and cut into
parts. Where it is cut follows from the names: after one whose hash says so. A part is called by the digest of its
bytes, so checkpoints share the parts in which nothing changed, and all who write the checkpoint of a version write the
same bytes.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from immutables import Map

from lockstep.errors import LockstepError, UnavailableError
from lockstep.storage import Mine, Storage
from lockstep.timeline.entry import Batch, Database, Namespace, Table, Value, View
from lockstep.timeline.files import READERS, UNREADABLE, decode, entry_path, version_in
from lockstep.timeline.fold import Placements
from lockstep.timeline.hint import CHECKPOINTS
from lockstep.workers import Threads

FORMAT = 1
FOLDER = CHECKPOINTS
PARTS = f"{FOLDER}/parts"

PART_ITEMS = 512
"""How many things a part has on average."""

PART_BYTES = 1024 * 1024
"""A part that has as many bytes ends, whatever the names say."""

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


class UnusableError(Exception):
    """A checkpoint cannot be believed; the text says why."""


class _Namespace(Value, frozen=True):
    name: Namespace
    properties: dict[str, str]


class _Placed(Value, frozen=True):
    """Where the commits are now that an entry made of a table."""

    id: str
    entry: int
    versions: tuple[int, ...]


class _Item(Value, frozen=True):
    """One line of a part: exactly one of the fields is there."""

    table: Table | None = None
    view: View | None = None
    namespace: _Namespace | None = None
    batch: Batch | None = None
    placed: _Placed | None = None


class Manifest(Value, frozen=True):
    """What a checkpoint is of: the version, its time, the SHA-256 of its entry's file; and its parts' digests."""

    format: int
    version: int
    committed_at: datetime
    entry: str
    parts: list[str]


class _Sealed(Value, frozen=True):
    """A manifest's file; `digest` is the SHA-256 of the manifest's bytes, so that nothing of a damaged one counts."""

    digest: str
    manifest: msgspec.Raw


_decode_sealed = msgspec.json.Decoder(_Sealed).decode
_decode_manifest = msgspec.json.Decoder(Manifest).decode
_decode_items = msgspec.json.Decoder(_Item).decode_lines
_encode = msgspec.json.encode


def manifest_path(version: int) -> str:
    """Return where the checkpoint of a version lies, relative to the lake's root."""
    return f"{FOLDER}/{version:020d}.json"


def part_path(digest: str) -> str:
    """Return where a part lies, relative to the lake's root."""
    return f"{PARTS}/{digest}.jsonl"


def digest_of(data: bytes) -> str:
    """Return the SHA-256 of bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


# --- what is written --------------------------------------------------------------------------------------------------


def parts_of(state: State) -> Iterator[bytes]:
    """Yield the parts of a checkpoint, in order."""
    lines: list[bytes] = []
    size = 0
    for key, item in _items(state):
        line = _encode(item) + b"\n"
        lines.append(line)
        size += len(line)
        if size >= PART_BYTES or zlib.crc32(_encode(key)) % PART_ITEMS == 0:
            yield b"".join(lines)
            lines, size = [], 0
    if lines:
        yield b"".join(lines)


def _items(state: State) -> Iterator[tuple[Any, _Item]]:
    """Yield what a checkpoint says, in its order, each with what it is called."""
    database = state.database
    for name, table in sorted(database.tables.items()):
        yield name, _Item(table=table)
    for name, view in sorted(database.views.items()):
        yield name, _Item(view=view)
    for namespace, properties in sorted(database.namespaces.items()):
        yield namespace, _Item(namespace=_Namespace(name=namespace, properties=properties))
    for application, number in sorted(database.batches.items()):
        yield application, _Item(batch=Batch(application=application, number=number))
    for (id_, entry), versions in sorted(state.placements.items()):
        yield (id_, entry), _Item(placed=_Placed(id=id_, entry=entry, versions=versions))


def manifest_of(state: State, entry: str, parts: Sequence[str]) -> bytes:
    """Return the file that makes parts a checkpoint; `entry` is the digest of the version's entry."""
    database = state.database
    manifest = Manifest(
        format=FORMAT,
        version=database.version,
        committed_at=database.committed_at,
        entry=entry,
        parts=list(parts),
    )
    data = _encode(manifest)
    return _encode(_Sealed(digest=digest_of(data), manifest=msgspec.Raw(data)))


# --- what is read -----------------------------------------------------------------------------------------------------


def read_manifest(storage: Storage, version: int) -> Manifest:
    """Read the manifest of the checkpoint of a version, and see that it is as it was written.

    Raises:
        UnusableError: there is none, or it is damaged, or of a format that this Lockstep does not know.
        UnavailableError: the store failed.
    """
    data = storage.get(manifest_path(version))
    if data is None:
        raise UnusableError("it is not there")
    try:
        sealed = _decode_sealed(data)
        if digest_of(bytes(sealed.manifest)) != sealed.digest:
            raise UnusableError("its digest is another one")
        manifest = _decode_manifest(sealed.manifest)
    except UNREADABLE as error:
        raise UnusableError(f"expected a checkpoint: {error}") from error
    if (manifest.format, manifest.version) != (FORMAT, version):
        raise UnusableError(f"it is of format {manifest.format} and version {manifest.version}")
    return manifest


def read_state(storage: Storage, manifest: Manifest, bad: set[str]) -> State:
    """Read the parts of a checkpoint, and see that its entry is the one that the timeline has.

    Args:
        bad: the digests of parts that were found missing or damaged; more are added.

    Raises:
        UnusableError: a part is missing or damaged, or the entry is.
        UnavailableError, CorruptTimelineError: the store failed, or the entry cannot be read.
    """
    if hit := next((digest for digest in manifest.parts if digest in bad), None):
        raise UnusableError(f"part {hit} was missing or damaged before")
    data = storage.get(entry_path(manifest.version))
    if data is None:
        raise UnusableError("its entry is not there")
    if digest_of(data) != manifest.entry:
        raise UnusableError("its entry is another one: it is of another history")
    if decode(data, manifest.version).committed_at != manifest.committed_at:
        raise UnusableError("its entry has another time")

    def part(digest: str) -> bytes | None:
        return storage.get(part_path(digest))

    items: list[_Item] = []
    with Threads(READERS, thread_name_prefix="lockstep-checkpoint") as pool:
        for digest, content in zip(manifest.parts, pool.map(part, manifest.parts), strict=True):
            if content is None or digest_of(content) != digest:
                bad.add(digest)
                raise UnusableError(f"part {digest} is {'missing' if content is None else 'damaged'}")
            try:
                items += _decode_items(content)
            except UNREADABLE as error:
                bad.add(digest)
                raise UnusableError(f"part {digest}: {error}") from error
    return _state(manifest, items)


def _state(manifest: Manifest, items: Iterable[_Item]) -> State:
    tables: dict[Any, Table] = {}
    views: dict[Any, View] = {}
    namespaces: dict[Namespace, dict[str, str]] = {}
    batches: dict[str, int] = {}
    placements: dict[tuple[str, int], tuple[int, ...]] = {}
    for item in items:
        if item.table is not None:
            tables[item.table.name] = item.table
        elif item.view is not None:
            views[item.view.name] = item.view
        elif item.namespace is not None:
            namespaces[item.namespace.name] = item.namespace.properties
        elif item.batch is not None:
            batches[item.batch.application] = item.batch.number
        elif item.placed is not None:
            placements[item.placed.id, item.placed.entry] = item.placed.versions
        else:
            raise UnusableError("a line says nothing")
    database = Database(
        version=manifest.version,
        committed_at=manifest.committed_at,
        namespaces=namespaces,
        tables=tables,
        views=views,
        batches=batches,
    )
    return State(database, Map(placements))


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
            _log.warning("the checkpoint of database version %d is passed over: %s", version, error)
    return None


class Checkpoints:
    """The checkpoints of one timeline, as far as this process has met them; safe to share between threads."""

    def __init__(self) -> None:
        """Know of none."""
        self._whole: tuple[int, frozenset[str]] | None = None
        self._bad: set[str] = set()
        self._listing: list[int] = []
        self._lock = threading.Lock()

    def newest(self, storage: Storage, at_most: int, candidate: int | None = None) -> State | None:
        """Return the newest checkpoint up to a version that can be believed; None if there is none.

        Args:
            candidate: one that is said to be there, up to that version; it is tried first, and saves a listing.

        It raises nothing: what cannot be read is passed over, and the entries say what there is.
        """
        if candidate is not None and (state := self._try(storage, candidate)) is not None:
            return state
        for version in reversed(self._up_to(storage, at_most)):
            if version != candidate and (state := self._try(storage, version)) is not None:
                return state
        return None

    def _up_to(self, storage: Storage, at_most: int) -> list[int]:
        """Return the versions up to one that have a checkpoint; those that are known already, if a newer one is."""
        listing = self._listing
        if not listing or listing[-1] <= at_most:
            try:
                self._listing = listing = versions(storage)
            except UnavailableError as error:
                _log.warning("the timeline's checkpoints cannot be listed; its entries are read instead: %s", error)
        return [version for version in listing if version <= at_most]

    def _try(self, storage: Storage, version: int) -> State | None:
        try:
            manifest = read_manifest(storage, version)
            state = read_state(storage, manifest, self._bad)
        except (UnusableError, LockstepError) as error:
            _log.warning("the checkpoint of database version %d is passed over: %s", version, error)
            return None
        with self._lock:
            if self._whole is None or self._whole[0] < version:
                self._whole = version, frozenset(manifest.parts)
        return state

    def write(self, storage: Storage, state: State, entry: bytes) -> None:
        """Write a checkpoint: its parts, of those that it does not share with the last one, and then its manifest.

        Args:
            entry: the file of the version's entry.

        Raises:
            UnavailableError: the store failed. Parts may be there that no manifest names; they do no harm.
        """
        parts = {digest_of(part): part for part in parts_of(state)}
        version = state.database.version
        manifest = manifest_of(state, digest_of(entry), list(parts))
        with self._lock:
            whole, bad = self._whole, self._bad & parts.keys()
        is_there = storage.get(manifest_path(version)) == manifest
        if is_there:  # another process was first
            known_parts = set(parts) - bad
        elif whole is not None and storage.exists(manifest_path(whole[0])):
            known_parts = set(whole[1] & parts.keys()) - bad
        else:  # somebody may have deleted them all
            known_parts = set()
        for digest in [digest for digest in parts if digest not in known_parts]:
            _put(storage, part_path(digest), parts[digest])
        if not is_there:
            _put(storage, manifest_path(version), manifest)
        with self._lock:
            self._whole = version, frozenset(parts)
            self._bad -= parts.keys()


def _put(storage: Storage, path: str, data: bytes) -> None:
    """Write a file that anybody else would write so too; what is there instead is damaged, or of another history."""
    if not isinstance(storage.put_if_absent(path, data), Mine):
        storage.put(path, data)
