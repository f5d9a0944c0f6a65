"""The files of a timeline's entries: where they lie, what is in them, and how they are read.

A file holds one entry, or the consecutive entries of a group commit (`lockstep.timeline.group`), and has the name of
the first. So an entry whose own file is not there may be in one of the `MAX_GROUP` - 1 before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Annotated, Protocol

import msgspec

from lockstep._version import __version__
from lockstep.errors import CorruptTimelineError, ExpiredError
from lockstep.storage import Names
from lockstep.timeline.clock import to_millisecond
from lockstep.timeline.entry import (
    EXPIRY_FORMAT,
    FORMAT,
    GROUP_FORMAT,
    MAX_ENTRY_BYTES,
    NEWEST_FORMAT,
    Entry,
    Value,
)
from lockstep.timeline.fence import fence
from lockstep.workers import Threads

FOLDER = "_lockstep/timeline"
READERS = 8
"""Threads that read entries when many are needed."""

MAX_GROUP = 32
"""So many entries may be in one file."""

ENTRY_BYTES = 2_000
WRITE_BYTES = 500
"""What an entry, and each write of it, takes in memory beside twice its JSON, as measured."""

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are not what they should be; the last for brackets nested without end."""

_WRAPPED = b'{"format":%d,"first":' % EXPIRY_FORMAT
"""How entry 0 begins in a lake in which versions expired."""

_NAME = re.compile(r"(\d{20})\.json")


RESTORE = "Nothing is guessed: restore the file from a backup, or from the store's old versions of it"
"""What to do about an entry that is damaged or missing, for nothing else says what it said."""


class Gets(Protocol):
    """What files are read from: a store, or what was read of it ahead."""

    @property
    def quick(self) -> bool:
        """Whether to have a thread read a file takes longer than to read it."""
        ...

    def get(self, path: str) -> bytes | None:
        """Return a whole file, or None when there is none at this path."""
        ...

    def list(self, folder: str, after: str | None = None) -> Names:
        """Return the names in a folder, sorted, that sort after one."""
        ...


class _Format(msgspec.Struct):
    """The one field that every format of an entry has."""

    format: int


class _Group(Value, frozen=True):
    """What is in a file of several entries."""

    format: int
    entries: Annotated[list[Entry], msgspec.Meta(min_length=2, max_length=MAX_GROUP)]


_decode_format = msgspec.json.Decoder(_Format).decode
_decode_entry = msgspec.json.Decoder(Entry).decode
_decode_group = msgspec.json.Decoder(_Group).decode

encode = msgspec.json.encode
"""Writes an entry."""


def encode_all(entries: Sequence[bytes]) -> bytes:
    """Return the file of some entries, each of which is encoded already: one alone is as it was before groups."""
    if len(entries) == 1:
        return entries[0]
    return b'{"format":%d,"entries":[%b]}' % (GROUP_FORMAT, b",".join(entries))


def wrapped(first: bytes) -> bytes:
    """Return the file of entry 0 in a lake in which versions expired, which has it as it was written.

    A Lockstep that does not know that versions can expire reads its format first, and says that it is to be upgraded.
    """
    return first if is_wrapped(first) else b"%b%b}" % (_WRAPPED, first)


def is_wrapped(data: bytes) -> bool:
    """Tell whether the file of entry 0 is that of a lake in which versions expired."""
    return data.startswith(_WRAPPED)


@dataclass(frozen=True, slots=True)
class Stored:
    """An entry as it was read.

    Attributes:
        entry: what it says.
        size: about how many bytes it takes in memory.
    """

    entry: Entry
    size: int


def entry_path(version: int) -> str:
    """Return where the file lies whose first entry is of a version, relative to the lake's root."""
    return f"{FOLDER}/{version:020d}.json"


def version_in(name: str) -> int | None:
    """Return the version that a file's name says, twenty digits and `.json`; None for another name."""
    match = _NAME.fullmatch(name)
    return None if match is None else int(match[1])


def decode(data: bytes, version: int) -> Entry:
    """Read the one entry of a file; see `decode_all`.

    Raises:
        CorruptTimelineError: as `decode_all` says, or there are several.
    """
    entry, *others = decode_all(data, version)
    if others:
        raise CorruptTimelineError(f"{entry_path(version)}: {1 + len(others)} entries, expected one")
    return entry


def decode_all(data: bytes, first: int) -> list[Entry]:
    """Read the entries of a file, strictly: one, or several that follow one another.

    Args:
        data: the file.
        first: the version that its name says.

    Raises:
        CorruptTimelineError: the bytes are not entries of a format this Lockstep reads, or not those that the file's
            name says; the message names the file and what was expected.
    """
    path = entry_path(first)
    if len(data) > MAX_ENTRY_BYTES:
        raise damaged(first, f"{len(data)} bytes, expected at most {MAX_ENTRY_BYTES}")
    try:
        # The format first, and alone: a later format's new field is not an error but a reason to upgrade.
        number = _decode_format(data).format
        if number > NEWEST_FORMAT:
            raise CorruptTimelineError(
                f"{path}: format {number}, of a newer Lockstep than this one ({__version__}), which reads formats "
                f"{FORMAT} to {NEWEST_FORMAT}. The file is not damaged: upgrade Lockstep here"
            )
        if number < FORMAT:
            raise damaged(first, f"format {number}, expected {FORMAT} to {NEWEST_FORMAT}")
        entries = _decode_group(data).entries if number == GROUP_FORMAT else [_decode_entry(data)]
    except UNREADABLE as error:
        raise damaged(first, f"expected a timeline entry: {error}") from error
    for version, entry in enumerate(entries, first):
        if number == GROUP_FORMAT and entry.format != FORMAT:
            raise damaged(first, f"an entry of format {entry.format} in a group, expected {FORMAT}")
        _check(entry, version, first)
    return entries


def _check(entry: Entry, version: int, first: int) -> None:
    if entry.format != entry.needed_format:
        raise damaged(first, f"format {entry.format}, expected {entry.needed_format} of what it says")
    if entry.version != version:
        raise damaged(first, f"says it is entry {entry.version}, expected {version}")
    for name, time in (("committed_at", entry.committed_at), ("began_at", entry.transaction.began_at)):
        if time.utcoffset() != timedelta(0):
            raise damaged(first, f"{name} is {time.isoformat()}, expected a time in UTC")
    if entry.committed_at != to_millisecond(entry.committed_at):
        raise damaged(first, f"committed_at is {entry.committed_at.isoformat()}, expected milliseconds")


def damaged(first: int, what: str) -> CorruptTimelineError:
    """Return what to say of a file that is not what was expected: which, what is wrong with it, what to do.

    Args:
        first: the version that gives the file its name.
        what: is wrong with it.
    """
    return CorruptTimelineError(f"{entry_path(first)}: {what}. {RESTORE}")


@dataclass(frozen=True, slots=True)
class File:
    """A file of the timeline: the version of its first entry, its bytes, and its entries."""

    first: int
    data: bytes
    entries: Sequence[Entry]

    @property
    def last(self) -> int:
        """The version of its last entry."""
        return self.first + len(self.entries) - 1

    def entry(self, version: int) -> Entry | None:
        """Return the entry of a version, if it is one of these."""
        return self.entries[version - self.first] if self.first <= version <= self.last else None

    def stored(self) -> list[Stored]:
        """Return its entries as they are kept: of several each has bytes of its own, and not those of all in it."""
        if len(self.entries) == 1:
            return [_stored(self.entries[0], len(self.data))]
        encoded = map(encode, self.entries)
        return [_stored(_decode_entry(data), len(data)) for data in encoded]


def _stored(entry: Entry, size: int) -> Stored:
    """Return an entry that has so many bytes as JSON; in memory, what its commits say is a part of them."""
    return Stored(entry, ENTRY_BYTES + WRITE_BYTES * len(entry.writes) + 2 * size)


def read(storage: Gets, first: int) -> File | None:
    """Read the file whose first entry is of a version; None when there is no such file.

    Raises:
        UnavailableError: the store failed.
        CorruptTimelineError: see `decode`.
    """
    data = storage.get(entry_path(first))
    if data is not None and first == 0 and is_wrapped(data):
        data = data[len(_WRAPPED) : -1]
    return None if data is None else File(first, data, decode_all(data, first))


def find(storage: Gets, version: int) -> File | None:
    """Read the file that holds an entry; None when there is no such version.

    Raises:
        UnavailableError: the store failed.
        CorruptTimelineError: see `decode`.
    """
    if (file := read(storage, version)) is not None:
        return file
    earlier = range(version - 1, max(-1, version - MAX_GROUP), -1)
    for begin in range(0, len(earlier), READERS):
        some = earlier[begin : begin + READERS]
        with Threads(len(some), thread_name_prefix="lockstep-timeline", quick=storage.quick) as pool:
            files = list(pool.map(partial(read, storage), some))
        if (file := next((file for file in files if file is not None), None)) is not None:
            return file if version <= file.last else None  # files follow one another, so no other can hold it
    return None


def gone(storage: Gets, version: int, last: int) -> ExpiredError | CorruptTimelineError:
    """Return what to say of an entry that is not there: that its version expired, or that it is lost.

    Args:
        last: the newest version that is known.

    Raises:
        UnavailableError: the store failed.
    """
    if first_kept := fence(storage, version):
        return ExpiredError(f"database version {version} has expired: entries below {first_kept} are gone")
    return CorruptTimelineError(
        f"{entry_path(version)} is missing: expected every entry from 0 to {last} that has not expired. {RESTORE}"
    )


def read_known(storage: Gets, versions: Iterable[int], last: int, *, readers: int = READERS) -> list[Stored]:
    """Read entries that are known to exist.

    Args:
        last: the newest version that is known, for the message.
        readers: how many are read at a time.

    Raises:
        UnavailableError: the store failed.
        ExpiredError: one is gone because its version expired.
        CorruptTimelineError: one is missing, or see `decode`.
    """
    numbers = list(versions)
    entries: dict[int, Stored] = {}

    def take(file: File | None) -> None:
        if file is not None:
            entries.update((stored.entry.version, stored) for stored in file.stored())

    read_one = partial(read, storage)
    if (most := min(len(numbers), readers)) < 2:
        for version in numbers:
            if version not in entries:
                take(read_one(version))
    else:
        with Threads(most, thread_name_prefix="lockstep-timeline", quick=storage.quick) as pool:
            for file in pool.map(read_one, numbers):
                take(file)
    for version in numbers:
        if version not in entries:
            take(find(storage, version))
        if version not in entries:
            raise gone(storage, version, last)
    return [entries[version] for version in numbers]
