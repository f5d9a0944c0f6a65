"""Bases: the database at the versions that the entries begin with, once those before them are deleted.

    <root>/_lockstep/bases/00000000000000000900.jsonl.gz     the database at version 900, whole

A checkpoint is advice, and a base is not: it says what entries said that are gone. So it is one file that needs no
other, it is never changed, and it is only deleted when nobody can read its version any more. It is read where there is
no checkpoint to be believed, which is almost never: a lake that lost its checkpoints, or the hint, opens from it.

    line 1      a header: which entry it is of, and how many pairs each map has
    then        for each map, in the order of the header, its pairs in the order of the keys, as parts have them
    last line   {"digest": the SHA-256 of all lines before}
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from io import BytesIO
from itertools import islice
from operator import itemgetter

import msgspec
from immutables import Map

from lockstep.storage import Storage, Theirs
from lockstep.timeline.entry import Value
from lockstep.timeline.files import UNREADABLE, File
from lockstep.timeline.manifest import KINDS, check_entry
from lockstep.timeline.packed import unpack
from lockstep.timeline.parts import UnusableError, digest_of
from lockstep.timeline.state import Header, State, maps_of, state_of, whole

FOLDER = "_lockstep/bases"
FORMAT = 1
SUFFIX = ".jsonl.gz"

_LEVEL = 6
_encode = msgspec.json.encode


class _Header(Header, frozen=True, kw_only=True):
    """What a base is of, and how many pairs each of its maps has."""

    maps: dict[str, int]


class _Seal(Value, frozen=True):
    digest: str


_decode_header = msgspec.json.Decoder(_Header).decode
_decode_seal = msgspec.json.Decoder(_Seal).decode


def base_path(version: int) -> str:
    """Return where the base of a version lies, relative to the lake's root."""
    return f"{FOLDER}/{version:020d}{SUFFIX}"


def base_versions(storage: Storage) -> list[int]:
    """Return the versions that have a base, or something in its place, in order.

    Raises:
        UnavailableError: the store failed.
    """
    names = storage.list(FOLDER)
    return [int(name[:20]) for name in names if name[:20].isdecimal() and name[20:] == SUFFIX]


def encoded(state: State, file: File) -> bytes:
    """Return the file of a base.

    Args:
        state: what the entries up to the version say together.
        file: it holds the version's entry.
    """
    maps, database = maps_of(state), state.database
    header = _Header(
        format=FORMAT,
        version=database.version,
        committed_at=database.committed_at,
        entry=digest_of(file.data),
        maps={name: len(maps[name]) for name in KINDS},
        first=None if file.first == database.version else file.first,
        expired=database.expired,
    )
    out, digest = BytesIO(), hashlib.sha256()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=out, mtime=0) as packed:

        def add(line: bytes) -> None:
            digest.update(line)
            packed.write(line)

        add(_encode(header) + b"\n")
        for name, kind in KINDS.items():
            for key, value in sorted(maps[name].items(), key=itemgetter(0)):
                add(kind.encode(key, value))
        packed.write(_encode(_Seal(digest=digest.hexdigest())) + b"\n")
    return out.getvalue()


def read_base(storage: Storage, version: int) -> State:
    """Read the base of a version whole, and see that it is as it was written, and of the entry that the timeline has.

    Raises:
        UnusableError: it is missing or damaged, or of another entry.
        UnavailableError, CorruptTimelineError: the store failed, or the entry cannot be read.
    """
    data = storage.get(base_path(version))
    if data is None:
        raise UnusableError("it is not there")
    try:
        header, state = _decoded(unpack(data))
    except (*UNREADABLE, zlib.error, ValueError, LookupError) as error:
        raise UnusableError(f"expected a base: {error}") from error
    if header.version != version:
        raise UnusableError(f"it is of version {header.version}")
    check_entry(storage, header)
    return state


def _decoded(data: bytes) -> tuple[_Header, State]:
    body, seal = data[: (end := data.rindex(b"\n", 0, -1) + 1)], data[end:]
    if _decode_seal(seal).digest != digest_of(body):
        raise UnusableError("its digest is another one")
    lines = iter(body.splitlines())
    header = _decode_header(next(lines))
    if header.format != FORMAT:
        raise UnusableError(f"it is of format {header.format}, this Lockstep reads {FORMAT}")
    maps = {}
    for name, count in header.maps.items():
        kind = KINDS[name]
        maps[name] = Map(kind.pair(kind.decoder.decode(line)) for line in islice(lines, count))
        if len(maps[name]) != count:
            raise UnusableError(f"it has {len(maps[name])} {name}, expected {count}")
    return header, state_of(header, maps)


def write_base(storage: Storage, state: State, file: File) -> int:
    """Write the base of a version, unless a good one is there, see that it can be read, and return its bytes.

    Raises:
        UnavailableError: the store failed.
        UnusableError: what was written cannot be read.
        CorruptTimelineError: the version's entry cannot be read.
    """
    state, version = whole(state), state.database.version
    try:
        if read_base(storage, version) == state:
            return 0
    except UnusableError:
        pass  # most often none is there; a damaged one is written over
    data = encoded(state, file)
    if isinstance(storage.put_if_absent(base_path(version), data), Theirs):
        storage.put_durably(base_path(version), data)
    if read_base(storage, version) != state:
        raise UnusableError("it says something else than what was written")
    return len(data)
