"""The files of a timeline's entries: where they lie, what is in them, and how they are read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

import msgspec

from lockstep._version import __version__
from lockstep.errors import CorruptTimelineError
from lockstep.timeline.clock import to_millisecond
from lockstep.timeline.entry import FORMAT, MAX_ENTRY_BYTES, Entry
from lockstep.workers import Threads

FOLDER = "_lockstep/timeline"
READERS = 8
"""Threads that read entries when many are needed."""

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are not what they should be; the last for brackets nested without end."""

_NAME = re.compile(r"(\d{20})\.json")


RESTORE = "Nothing is guessed: restore the file from a backup, or from the store's old versions of it"
"""What to do about an entry that is damaged or missing, for nothing else says what it said."""


class Gets(Protocol):
    """What files are read from: a store, or what was read of it ahead."""

    def get(self, path: str) -> bytes | None:
        """Return a whole file, or None when there is none at this path."""
        ...


class _Format(msgspec.Struct):
    """The one field that every format of an entry has."""

    format: int


_decode_format = msgspec.json.Decoder(_Format).decode
_decode_entry = msgspec.json.Decoder(Entry).decode

encode = msgspec.json.encode
"""Writes an entry."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An entry as it was read.

    Attributes:
        entry: what it says.
        size: the bytes of its file.
    """

    entry: Entry
    size: int


def entry_path(version: int) -> str:
    """Return where an entry lies, relative to the lake's root."""
    return f"{FOLDER}/{version:020d}.json"


def version_in(name: str) -> int | None:
    """Return the version that a file's name says, twenty digits and `.json`; None for another name."""
    match = _NAME.fullmatch(name)
    return None if match is None else int(match[1])


def decode(data: bytes, version: int) -> Entry:
    """Read an entry from its file, strictly.

    Raises:
        CorruptTimelineError: the bytes are not an entry of a format this Lockstep reads, or not the one that the
            file's name says; the message names the file and what was expected.
    """
    path = entry_path(version)
    if len(data) > MAX_ENTRY_BYTES:
        raise damaged(version, f"{len(data)} bytes, expected at most {MAX_ENTRY_BYTES}")
    try:
        # The format first, and alone: a later format's new field is not an error but a reason to upgrade.
        number = _decode_format(data).format
        if number > FORMAT:
            raise CorruptTimelineError(
                f"{path}: format {number}, of a newer Lockstep than this one ({__version__}), which reads format "
                f"{FORMAT}. The file is not damaged: upgrade Lockstep here"
            )
        if number != FORMAT:
            raise damaged(version, f"format {number}, expected {FORMAT}")
        entry = _decode_entry(data)
    except UNREADABLE as error:
        raise damaged(version, f"expected a timeline entry: {error}") from error
    if entry.version != version:
        raise damaged(version, f"says it is entry {entry.version}, expected {version}")
    for name, time in (("committed_at", entry.committed_at), ("began_at", entry.transaction.began_at)):
        if time.utcoffset() != timedelta(0):
            raise damaged(version, f"{name} is {time.isoformat()}, expected a time in UTC")
    if entry.committed_at != to_millisecond(entry.committed_at):
        raise damaged(version, f"committed_at is {entry.committed_at.isoformat()}, expected milliseconds")
    return entry


def damaged(version: int, what: str) -> CorruptTimelineError:
    """Return what to say of an entry whose file is not what was expected: which, what is wrong with it, what to do."""
    return CorruptTimelineError(f"{entry_path(version)}: {what}. {RESTORE}")


def read(storage: Gets, version: int) -> Stored | None:
    """Read one entry; None when there is no such version.

    Raises:
        UnavailableError: the store failed.
        CorruptTimelineError: see `decode`.
    """
    data = storage.get(entry_path(version))
    return None if data is None else Stored(decode(data, version), len(data))


def read_known(storage: Gets, versions: Iterable[int], last: int, *, readers: int = READERS) -> list[Stored]:
    """Read entries that are known to exist.

    Args:
        last: the newest version that is known, for the message.
        readers: how many are read at a time.

    Raises:
        UnavailableError: the store failed.
        CorruptTimelineError: one is missing, or see `decode`.
    """

    def read_one(version: int) -> Stored:
        stored = read(storage, version)
        if stored is None:
            raise CorruptTimelineError(
                f"{entry_path(version)} is missing: expected every entry from 0 to {last}. {RESTORE}"
            )
        return stored

    numbers = list(versions)
    if min(len(numbers), readers) < 2:
        return [read_one(version) for version in numbers]
    with Threads(min(readers, len(numbers)), thread_name_prefix="lockstep-timeline") as pool:
        return list(pool.map(read_one, numbers))
