"""How files come into a folder, as Linux tells it."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MADE, MOVED = 0x100, 0x80
_NONBLOCK = 0o4000
_HEADER = struct.Struct("iIII")


@contextmanager
def arrivals(folder: Path) -> Iterator[Callable[[], list[tuple[str, str]]]]:
    """Watch a folder; what is given returns the names that came, each with "made" or "moved"."""
    if sys.platform != "linux":
        pytest.skip("only Linux tells how a file came to be")
    libc = ctypes.CDLL(None, use_errno=True)
    queue = libc.inotify_init1(_NONBLOCK)
    assert queue >= 0, os.strerror(ctypes.get_errno())
    assert libc.inotify_add_watch(queue, os.fsencode(folder), MADE | MOVED) >= 0, os.strerror(ctypes.get_errno())
    found: list[tuple[str, str]] = []
    yield lambda: found
    while data := _read(queue):
        while data:
            _, mask, _, length = _HEADER.unpack_from(data)
            name = data[_HEADER.size : _HEADER.size + length].rstrip(b"\0")
            found.append((os.fsdecode(name), "made" if mask & MADE else "moved"))
            data = data[_HEADER.size + length :]
    os.close(queue)


def _read(queue: int) -> bytes:
    try:
        return os.read(queue, 1 << 16)
    except BlockingIOError:
        return b""
