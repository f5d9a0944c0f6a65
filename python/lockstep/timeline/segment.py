"""Segments: the entries of consecutive versions in one file, without what their commits say.

    <root>/_lockstep/history/<first>-<last>-<milliseconds>.jsonl.gz     20 digits each; when the last was committed

A line is an entry, in JSON: who, when, why, from where, which tables, how many rows. What it lacks are the Delta
commits (their SHA-256 stay), the definitions of views, and what was read. So a thousand versions are one small file,
which Spark and DuckDB read as it is, and the folder's listing alone says which times a file is of.

Of versions whose entries are there segments are advice, as checkpoints are; of expired ones they are all that tells. No
commit needs one, and upkeep, which asks whether the lake made a folder that no version has, keeps it where they do not
tell. Nothing deletes one. They are made of entries behind a commit's
answer, or before entries expire; all who write the segment of the same versions write the same bytes, and nobody
changes one. A damaged one is passed over, and the entries are read, if there are any.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import TypeVar

import msgspec
from msgspec import structs

from lockstep.storage import Mine, Storage
from lockstep.timeline.entry import Commit, Entry, Value
from lockstep.timeline.files import UNREADABLE, encode
from lockstep.timeline.packed import unpack
from lockstep.timeline.parts import UnusableError

FOLDER = "_lockstep/history"

SEGMENT_VERSIONS = 1_000
"""A segment ends before a multiple of this."""

_NAME = re.compile(r"(\d{20})-(\d{20})-(\d{20})\.jsonl\.gz")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_LEVEL = 6


class Line(Value, frozen=True):
    """What a segment has of an entry.

    Attributes:
        entry: see `bare`.
        sha256: of the entry's JSON.
        commits: for each write, the SHA-256 of each of its commits as it was ratified; none of one that is staged: its
            file had its name by its content.
    """

    entry: Entry
    sha256: str
    commits: list[list[str | None]]


class _Stamp(msgspec.Struct):
    """When an entry was committed."""

    version: int
    committed_at: datetime


class _Stamped(msgspec.Struct):
    """What of a line tells when: the rest is passed over, which takes a fraction of the time."""

    entry: _Stamp


L = TypeVar("L", Line, _Stamped)

_decode_line = msgspec.json.Decoder(Line).decode
_decode_stamped = msgspec.json.Decoder(_Stamped).decode


class Segment(msgspec.Struct, frozen=True, order=True):
    """A segment, as its name tells: its first and last version, and when the last was committed.

    A long history has thousands, all of which are listed at once: hence a struct of msgspec's, which is made and
    compared in C.
    """

    first: int
    last: int
    committed_at: datetime

    @property
    def path(self) -> str:
        """Where it lies, relative to the lake's root."""
        milliseconds = (self.committed_at - _EPOCH) // _MILLISECOND
        return f"{FOLDER}/{self.first:020d}-{self.last:020d}-{milliseconds:020d}.jsonl.gz"


def bare(entry: Entry) -> Entry:
    """Return an entry without what its commits say, the definitions of views, and what was read."""
    return structs.replace(
        entry,
        views=[structs.replace(ddl, definition=None) for ddl in entry.views],
        writes=[structs.replace(write, commits=[]) for write in entry.writes],
        reads=[],
        view_reads=[],
    )


def list_segments(storage: Storage) -> list[Segment]:
    """Return the segments that there are, by their first versions.

    Raises:
        UnavailableError: the store failed.
    """
    matches = map(_NAME.fullmatch, storage.list(FOLDER))
    found = [tuple(int(match[number]) for number in (1, 2, 3)) for match in matches if match is not None]
    return sorted(Segment(first, last, _EPOCH + at * _MILLISECOND) for first, last, at in found if first <= last)


def write_segment(storage: Storage, entries: Sequence[Entry]) -> Segment:
    """Write the segment of some entries, which follow one another; what is there is as good, or damaged.

    Raises:
        UnavailableError: the store failed.
    """
    segment = Segment(entries[0].version, entries[-1].version, entries[-1].committed_at)
    out = BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=out, mtime=0) as packed:
        for entry in entries:
            packed.write(encode(_line(entry)) + b"\n")
    data = out.getvalue()
    if not isinstance(storage.put_if_absent(segment.path, data), Mine):
        try:
            read_segment(storage, segment)
        except UnusableError:
            storage.put_durably(segment.path, data)
    return segment


def _line(entry: Entry) -> Line:
    commits = [[_digest(commit) for commit in write.commits] for write in entry.writes]
    return Line(entry=bare(entry), sha256=hashlib.sha256(encode(entry)).hexdigest(), commits=commits)


def _digest(commit: Commit) -> str | None:
    if commit.inline is None:
        return None
    return hashlib.sha256(b"".join(bytes(line) + b"\n" for line in commit.inline)).hexdigest()


def read_lines(storage: Storage, segment: Segment) -> list[Line]:
    """Return what a segment has, oldest first.

    Raises:
        UnusableError: it is missing or damaged.
        UnavailableError: the store failed.
    """
    return _read(storage, segment, _decode_line)


def read_times(storage: Storage, segment: Segment) -> list[datetime]:
    """Return when the versions of a segment were committed, oldest first.

    Raises:
        UnusableError: it is missing, or damaged in what is read of it.
        UnavailableError: the store failed.
    """
    return [line.entry.committed_at for line in _read(storage, segment, _decode_stamped)]


def _read(storage: Storage, segment: Segment, decode: Callable[[bytes], L]) -> list[L]:
    data = storage.get(segment.path)
    if data is None:
        raise UnusableError("it is not there")
    try:
        lines = [decode(line) for line in unpack(data).splitlines()]
    except (*UNREADABLE, zlib.error, ValueError) as error:
        raise UnusableError(f"expected a segment of the history: {error}") from error
    if [line.entry.version for line in lines] != [*range(segment.first, segment.last + 1)]:
        raise UnusableError("it is not of the versions that its name says")
    if lines[-1].entry.committed_at != segment.committed_at:
        raise UnusableError("it is not of the time that its name says")
    return lines


def read_segment(storage: Storage, segment: Segment) -> list[Entry]:
    """Return the entries of a segment, oldest first and as `bare` has them.

    Raises:
        UnusableError: it is missing or damaged.
        UnavailableError: the store failed.
    """
    return [line.entry for line in read_lines(storage, segment)]
