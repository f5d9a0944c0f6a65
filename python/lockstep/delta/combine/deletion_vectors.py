"""Deletion vectors: which rows of a data file are gone, read and written as Delta does.

    descriptor   storageType  u  a file below the table, <prefix>/deletion_vector_<uuid>.bin
                              p  a file anywhere, by its URL
                              i  in the log itself, Z85
    file         version (1 byte: 1), then for each vector  size (4)  data (size)  CRC-32 of data (4)      big endian
    data         magic (4), then a 64-bit Roaring bitmap in the portable format                            little endian

Protocol, "Deletion Vectors" and "Deletion Vector Format". Delta's own are DeletionVectorStore, RoaringBitmapArray and
Codec.Base85Codec. Row numbers are physical positions in the data file, from 0.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote
from uuid import UUID

from lockstep.delta.places import below_root, is_absolute, may_mean
from lockstep.errors import CorruptTimelineError

if TYPE_CHECKING:
    from pyroaring import BitMap64

Descriptor: TypeAlias = dict[str, Any]
RowSet: TypeAlias = "BitMap64"
Read: TypeAlias = Callable[[str], bytes | None]
"""Return the whole object at a path relative to the lake's root, None if there is none: `Storage.get`."""

MAGIC = 1681511377
FILE_VERSION = 1
MAX_VECTOR_BYTES = 16 * 1024 * 1024
"""A vector larger than this, serialized, is not read: it would take rows by the hundred million."""

_MAGIC_BYTES = MAGIC.to_bytes(4, "little")
_UUID_CHARACTERS = 20
_PREFIX = re.compile(r"[^/\\]*")
# Z85 is Python's base85 with another alphabet (https://rfc.zeromq.org/spec/32/); base64.z85encode is of Python 3.13.
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_Z85 = str.maketrans(_B85, _Z85)
# What is no Z85 becomes a character that is no base85 either, so that the decoder refuses it.
_FROM_Z85: dict[int, int | str] = {**{ord(c): '"' for c in set(_B85) - set(_Z85)}, **str.maketrans(_Z85, _B85)}


# --- reading ----------------------------------------------------------------------------------------------------------


def decode(descriptor: Descriptor | None, read: Read, *, location: str, root: str) -> RowSet:
    """Return the rows that a file's deletion vector takes out of it; none where it has no vector.

    Args:
        descriptor: the `deletionVector` of an add or a remove.
        read: how to read a vector's file.
        location: the table's folder, relative to the lake's root.
        root: the lake's root as a URL, `Storage.url`.

    Raises:
        CorruptTimelineError: the vector is not what the protocol or its own descriptor says, or its file is gone, or is
            not in this lake, see `is_readable`.
        UnavailableError: the store failed.
    """
    from pyroaring import BitMap64

    if descriptor is None:
        return BitMap64()
    name = _name(descriptor)
    size, cardinality = _number(descriptor, "sizeInBytes"), _number(descriptor, "cardinality")
    if size > MAX_VECTOR_BYTES:
        raise _corrupt(name, f"at most {MAX_VECTOR_BYTES} bytes", f"{size}")
    data = (
        _inline(descriptor, size) if descriptor["storageType"] == "i" else _from_file(descriptor, read, location, root)
    )
    rows = deserialize(data, name)
    if len(rows) != cardinality:
        raise _corrupt(name, f"{cardinality} rows, as its descriptor says", f"{len(rows)}")
    return rows


def is_readable(descriptor: Descriptor | None, *, root: str) -> bool:
    """Return whether a vector is small enough to read (`MAX_VECTOR_BYTES`), and not in a file outside this lake."""
    if descriptor is None:
        return True
    outside = descriptor["storageType"] == "p" and _below(descriptor["pathOrInlineDv"], root) is None
    return not outside and _number(descriptor, "sizeInBytes") <= MAX_VECTOR_BYTES


def file_path(descriptor: Descriptor, *, location: str, root: str) -> str:
    """Return where a stored vector's file lies, relative to the lake's root (Protocol, "Derived Fields").

    Raises:
        CorruptTimelineError: the descriptor names no file of this lake.
    """
    name, path = _name(descriptor), descriptor["pathOrInlineDv"]
    match descriptor["storageType"]:
        case "u":
            prefix, encoded = path[:-_UUID_CHARACTERS], path[-_UUID_CHARACTERS:]
            id_bytes = _from_z85(encoded, name)
            if len(id_bytes) != 16 or not _PREFIX.fullmatch(prefix) or prefix in (".", ".."):
                raise _corrupt(name, "a prefix and 20 characters of a UUID", repr(path))
            return "/".join([location, *([prefix] if prefix else []), file_name(UUID(bytes=id_bytes))])
        case "p":
            if (below := _below(path, root)) is None:
                raise _corrupt(name, f"a file below {root}", repr(path))
            return below
        case other:
            raise _corrupt(name, "the storage type u, p or i", repr(other))


def may_mean_of(file: Mapping[str, Any], location: str, root: str) -> list[str]:
    """Return all files that an `add` or a `remove` may mean, and its vector, see `lockstep.delta.places.may_mean`.

    Raises:
        CorruptTimelineError: it has a vector of a kind that nobody knows how to find.
    """
    found, vector = may_mean(file["path"], location, root), file.get("deletionVector")
    if vector is None or vector.get("storageType") == "i":
        return found
    if vector.get("storageType") == "p":
        return found + may_mean(vector["pathOrInlineDv"], location, root)
    return [*found, file_path(vector, location=location, root=root)]


def file_name(id: UUID) -> str:
    """Return the name of a vector's file."""
    return f"deletion_vector_{id}.bin"


def deserialize(data: bytes, name: str) -> RowSet:
    """Read a vector's data.

    Args:
        data: magic and bitmap.
        name: what to call it in an error.

    Raises:
        CorruptTimelineError: another magic, or no bitmap.
    """
    from pyroaring import BitMap64

    if data[:4] != _MAGIC_BYTES:
        raise _corrupt(name, f"the magic {MAGIC}", f"{int.from_bytes(data[:4], 'little')}")
    if len(data) == len(_MAGIC_BYTES):
        raise _corrupt(name, "a 64-bit Roaring bitmap", "nothing")
    try:
        return BitMap64.deserialize(data[4:])
    except ValueError as error:
        raise _corrupt(name, "a 64-bit Roaring bitmap", f"{len(data)} bytes that are none ({error})") from error


def _inline(descriptor: Descriptor, size: int) -> bytes:
    name = _name(descriptor)
    padded = _from_z85(descriptor["pathOrInlineDv"], name)
    if len(padded) != size + -size % 4:
        raise _corrupt(name, f"{size} bytes and their padding", f"{len(padded)}")
    return padded[:size]


def _from_file(descriptor: Descriptor, read: Read, location: str, root: str) -> bytes:
    path = file_path(descriptor, location=location, root=root)
    content = read(path)
    if content is None:
        raise CorruptTimelineError(
            f"{path} is gone: expected the deletion vectors of files of the table {location}. Restore it from a "
            "backup, or DROP TABLE"
        )
    if content[:1] != bytes([FILE_VERSION]):
        raise _corrupt(path, f"the format version {FILE_VERSION}", repr(content[:1]))
    start, size = _number(descriptor, "offset"), _number(descriptor, "sizeInBytes")
    end = start + 4 + size
    if len(content) < end + 4:
        raise _corrupt(path, f"a vector of {size} bytes at {start}", f"a file of {len(content)} bytes")
    length = int.from_bytes(content[start : start + 4], "big")
    if length != size:
        raise _corrupt(path, f"a vector of {size} bytes at {start}", f"one of {length}")
    data = content[start + 4 : end]
    expected_crc, crc = int.from_bytes(content[end : end + 4], "big"), zlib.crc32(data)
    if expected_crc != crc:
        raise _corrupt(path, f"data at {start} with the CRC-32 {expected_crc:08x}", f"{crc:08x}")
    return data


def _below(url: str, root: str) -> str | None:
    """Return the path of a vector's URL relative to the root's, None where it is not below it."""
    path = unquote(url)  # the log's paths are URL-encoded; the root is taken as written, see `open_storage`
    return below_root(path, "", root) if is_absolute(path) else None


# --- writing ----------------------------------------------------------------------------------------------------------


def serialize(rows: RowSet) -> bytes:
    """Return a vector's data: magic and bitmap."""
    from pyroaring import BitMap64

    return _MAGIC_BYTES + BitMap64(rows, optimize=True).serialize()


def in_a_file(vectors: Iterable[tuple[bytes, int]], id: UUID) -> tuple[list[Descriptor], bytes]:
    """Return the descriptors of vectors that are kept in the file of this id in the table's folder, and the file.

    None is kept in the log, where the protocol has a place for small ones: a table with one there cannot be vacuumed
    (Delta 4.4, `VacuumCommand.getDeletionVectorRelativePathAndSize`: a MatchError).

    Args:
        vectors: of each what `serialize` returns, and how many rows it has.
        id: new, or given to the same vectors only.
    """
    content = bytearray([FILE_VERSION])
    descriptors = []
    for data, cardinality in vectors:
        descriptors.append(
            {
                "storageType": "u",
                "pathOrInlineDv": _to_z85(id.bytes),
                "offset": len(content),
                "sizeInBytes": len(data),
                "cardinality": cardinality,
            }
        )
        content += len(data).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big")
    return descriptors, bytes(content)


def placed(descriptor: Descriptor, id: UUID) -> Descriptor:
    """Return the descriptor of a vector whose file is, under this id, in the table's folder."""
    return {**descriptor, "storageType": "u", "pathOrInlineDv": _to_z85(id.bytes)}


# --- parts ------------------------------------------------------------------------------------------------------------


def _to_z85(data: bytes) -> str:
    return base64.b85encode(data).decode().translate(_TO_Z85)


def _from_z85(text: str, name: str) -> bytes:
    try:
        if len(text) % 5 == 0:
            return base64.b85decode(text.translate(_FROM_Z85))
    except (ValueError, binascii.Error):
        pass
    raise _corrupt(name, "Z85, five characters for four bytes", repr(text[:40]))


def _number(descriptor: Descriptor, field: str) -> int:
    value = descriptor.get(field)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _corrupt(_name(descriptor), f"a number {field} that is not negative", repr(value))
    return value


def _name(descriptor: Descriptor) -> str:
    return f"deletion vector {descriptor.get('storageType')}{str(descriptor.get('pathOrInlineDv'))[:40]}"


def _corrupt(name: str, expectation: str, finding: str) -> CorruptTimelineError:
    return CorruptTimelineError(f"{name}: expected {expectation}, found {finding}")
