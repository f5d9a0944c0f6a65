"""Files that are packed by gzip, unpacked up to a bound: some kilobytes can unpack to gigabytes."""

from __future__ import annotations

import zlib

MAX_UNPACKED_BYTES = 1024 * 1024 * 1024
"""So much is unpacked at most: a base of millions of tables has less, and so has a segment of a thousand entries."""

_GZIP = 16 + zlib.MAX_WBITS


def unpack(data: bytes, *, at_most: int = MAX_UNPACKED_BYTES) -> bytes:
    """Return what a gzip file of one member holds.

    Raises:
        ValueError: it holds more than `at_most` bytes, or is not whole, or something follows it.
        zlib.error: it is no such file.
    """
    unpacker = zlib.decompressobj(_GZIP)
    content = unpacker.decompress(data, at_most + 1)
    if len(content) > at_most:
        raise ValueError(f"unpacks to more than {at_most} bytes")
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("expected one whole gzip file")
    return content
