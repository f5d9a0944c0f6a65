"""What is in a checkpoint's files: the manifest, and which maps the parts are of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lockstep.timeline.database import tag_key
from lockstep.timeline.entry import Batch, Name, Namespace, Table, Tag, Value, View
from lockstep.timeline.files import UNREADABLE, Gets, read
from lockstep.timeline.hint import CHECKPOINTS
from lockstep.timeline.parts import Kind, Part, UnusableError, digest_of
from lockstep.timeline.state import Header

FORMAT = 2
"""Format 1 had parts that were read all at once; such a checkpoint is passed over."""

FOLDER = CHECKPOINTS


class _Namespace(Value, frozen=True):
    name: Namespace
    properties: dict[str, str]


class _Placed(Value, frozen=True):
    """Where the commits are now that an entry made of a table."""

    id: str
    entry: int
    versions: tuple[int, ...]


class _Settled(Value, frozen=True):
    """Up to which version the log is right of a table that was settled."""

    id: str
    right_through: int


class _Named(Value, frozen=True):
    """The name of the table that has this id, or lies at this location."""

    key: str
    name: Name


class _Spelled(Value, frozen=True):
    """The names with capital letters that are this one where case does not count."""

    key: Name
    names: tuple[Name, ...]


class _Inside(Value, frozen=True):
    """How many tables and views a namespace has."""

    namespace: Namespace
    count: int


_NAMED: Kind[str, Name] = Kind(
    msgspec.json.Decoder(_Named), lambda k, v: _Named(key=k, name=v), lambda x: (x.key, x.name)
)

KINDS: Mapping[str, Kind[Any, Any]] = {
    "tables": Kind(msgspec.json.Decoder(Table), lambda _, v: v, lambda x: (x.name, x)),
    "views": Kind(msgspec.json.Decoder(View), lambda _, v: v, lambda x: (x.name, x)),
    "namespaces": Kind(
        msgspec.json.Decoder(_Namespace),
        lambda k, v: _Namespace(name=k, properties=v),
        lambda x: (x.name, x.properties),
    ),
    "batches": Kind(
        msgspec.json.Decoder(Batch), lambda k, v: Batch(application=k, number=v), lambda x: (x.application, x.number)
    ),
    "tags": Kind(msgspec.json.Decoder(Tag), lambda _, v: v, lambda x: (tag_key(x.name), x)),
    "ids": _NAMED,
    "locations": _NAMED,
    "inside": Kind(
        msgspec.json.Decoder(_Inside), lambda k, v: _Inside(namespace=k, count=v), lambda x: (x.namespace, x.count)
    ),
    "spelled": Kind(msgspec.json.Decoder(_Spelled), lambda k, v: _Spelled(key=k, names=v), lambda x: (x.key, x.names)),
    "moved": Kind(
        msgspec.json.Decoder(_Placed),
        lambda k, v: _Placed(id=k[0], entry=k[1], versions=v),
        lambda x: ((x.id, x.entry), x.versions),
    ),
    "settled": Kind(
        msgspec.json.Decoder(_Settled),
        lambda k, v: _Settled(id=k, right_through=v),
        lambda x: (x.id, x.right_through),
    ),
}
"""How the maps of a state are written, by the names that they have in a manifest."""


class Manifest(Header, frozen=True, kw_only=True):
    """What a checkpoint is of, and the parts of each map.

    Older ones have no `spelled`: who reads one has to look at all names, until the next one is written.
    """

    tables: list[Part[Name]]
    views: list[Part[Name]]
    namespaces: list[Part[Namespace]]
    batches: list[Part[str]]
    ids: list[Part[str]]
    locations: list[Part[str]]
    inside: list[Part[Namespace]]
    moved: list[Part[tuple[str, int]]]
    tags: list[Part[str]] = msgspec.field(default_factory=list)
    spelled: list[Part[Name]] | None = None
    settled: list[Part[str]] = msgspec.field(default_factory=list)

    def digests(self) -> set[str]:
        """Return the digests of all parts."""
        return {part.digest for name in KINDS for part in getattr(self, name) or ()}


class _Format(msgspec.Struct):
    """The one field that every format of a manifest has."""

    format: int


class _Sealed(Value, frozen=True):
    """A manifest's file; `digest` is the SHA-256 of the manifest's bytes, so that nothing of a damaged one counts."""

    digest: str
    manifest: msgspec.Raw


_decode_sealed = msgspec.json.Decoder(_Sealed).decode
_decode_format = msgspec.json.Decoder(_Format).decode
_decode_manifest = msgspec.json.Decoder(Manifest).decode
_encode = msgspec.json.encode


def manifest_path(version: int) -> str:
    """Return where the checkpoint of a version lies, relative to the lake's root."""
    return f"{FOLDER}/{version:020d}.json"


def sealed(manifest: Manifest) -> bytes:
    """Return the file that makes parts a checkpoint."""
    data = _encode(manifest)
    return _encode(_Sealed(digest=digest_of(data), manifest=msgspec.Raw(data)))


def read_manifest(storage: Gets, version: int) -> Manifest:
    """Read the manifest of the checkpoint of a version, and see that it is as it was written.

    Raises:
        UnusableError: there is none, or it is damaged, or of a format that this Lockstep does not know.
        UnavailableError: the store failed.
    """
    data = storage.get(manifest_path(version))
    if data is None:
        raise UnusableError("it is not there")
    try:
        file = _decode_sealed(data)
        if digest_of(bytes(file.manifest)) != file.digest:
            raise UnusableError("its digest is another one")
        number = _decode_format(file.manifest).format
        if number != FORMAT:
            newer = ": a newer one wrote it, and to upgrade makes use of it" if number > FORMAT else ""
            raise UnusableError(f"it is of format {number}, this Lockstep reads {FORMAT}{newer}")
        manifest = _decode_manifest(file.manifest)
    except UNREADABLE as error:
        raise UnusableError(f"expected a checkpoint: {error}") from error
    if manifest.version != version:
        raise UnusableError(f"it is of version {manifest.version}")
    return manifest


def check_entry(storage: Gets, of: Header) -> None:
    """See that the entry of a checkpoint, or of a base, is the one that the timeline has.

    Raises:
        UnusableError: it is not.
        UnavailableError, CorruptTimelineError: the store failed, or the entry cannot be read.
    """
    file = read(storage, of.version if of.first is None else of.first)
    if file is None or (entry := file.entry(of.version)) is None:
        raise UnusableError("its entry is not there")
    if digest_of(file.data) != of.entry:
        raise UnusableError("its entry is another one: it is of another history")
    if entry.committed_at != of.committed_at:
        raise UnusableError("its entry has another time")
