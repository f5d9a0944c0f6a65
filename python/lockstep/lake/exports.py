"""Records of exports: which database versions others need, because an export names files of this lake.

    <root>/_lockstep/exports/<id>.json      one `ExportRecord`
    <root>/_lockstep/exports/<id>.begun     beside it until the export has its target, and nothing of it is anywhere

It is written before anything of the export is, and stays until the export is dropped; that of a full export, which
needs nothing of this lake once it is whole, until then. What deletes files keeps what such a version needs, as it keeps
what a tag names. So a record that cannot be read is an error, and never passed over: it may be all that keeps data.

One that was interrupted before it had its target is nobody's: after a day its record keeps nothing. Who goes on with it
later looks whether its version is there yet, once the mark is gone (`lockstep.exports.export`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from lockstep.errors import CorruptTimelineError, UndefinedError
from lockstep.storage import Found, Storage
from lockstep.timeline.entry import ExportMode, Value
from lockstep.timeline.files import READERS, UNREADABLE
from lockstep.workers import Threads

FOLDER = "_lockstep/exports"
FORMAT = 1
NO_EXPORT = "42704"
ABANDONED = timedelta(days=1)
"""An export that has not got its target for so long was interrupted."""
_BEGUN = ".begun"
_NAME = re.compile(r"([A-Za-z0-9_-]{1,64})\.json")


class ExportRecord(Value, frozen=True):
    """What a lake is told of an export.

    Attributes:
        format: 1.
        id: the export's.
        database_version: the version that it holds, whose files stay for it.
        mode: what it takes along.
        source: this lake's URL, as the export names its files.
        target: the URL of the new lake, or of the file.
        created_at: when it was begun, UTC.
        author, statement: who asked for it, and in which words.
    """

    format: int
    id: str
    database_version: Annotated[int, msgspec.Meta(ge=0)]
    mode: ExportMode
    source: str
    target: str
    created_at: datetime
    author: str = ""
    statement: str = ""


_decode = msgspec.json.Decoder(ExportRecord).decode
encode_record = msgspec.json.encode
"""Writes a record."""


def application_of(record: ExportRecord) -> str:
    """Return under which name a lake records, as it does for micro-batches, how far a clone was promoted to it."""
    return f"lockstep clone {record.id}"


def record_path(id: str) -> str:
    """Return where the record of an export lies."""
    return f"{FOLDER}/{id}.json"


def begun_path(id: str) -> str:
    """Return where it is marked that an export has not got its target."""
    return f"{FOLDER}/{id}{_BEGUN}"


def decode_record(data: bytes, path: str) -> ExportRecord:
    """Read a record.

    Raises:
        CorruptTimelineError: it is none that this Lockstep reads.
    """
    try:
        record = _decode(data)
    except UNREADABLE as error:
        raise CorruptTimelineError(
            f"{path}: expected the record of an export: {error}. It may be what keeps files that the export needs: "
            "restore it, or, if no such export is in use, delete it"
        ) from error
    if record.format != FORMAT:
        raise CorruptTimelineError(
            f"{path}: format {record.format}, expected {FORMAT}. If a newer Lockstep wrote it, upgrade this one"
        )
    return record


def read_exports(storage: Storage) -> list[ExportRecord]:
    """Return the records of a lake's exports, the oldest first; one listing where there are none.

    Raises:
        UnavailableError: the store failed.
        CorruptTimelineError: a record cannot be read.
    """
    return _read(storage, storage.list(FOLDER))


def needed_versions(storage: Storage, now: datetime) -> frozenset[int]:
    """Return the database versions that exports need, those among them that have just begun.

    Raises:
        UnavailableError, CorruptTimelineError: see `read_exports`.
    """
    names = [*storage.list(FOLDER)]
    marked = {name.removesuffix(_BEGUN) for name in names if name.endswith(_BEGUN)}
    return frozenset(
        record.database_version
        for record in _read(storage, names)
        if record.id not in marked or now - record.created_at < ABANDONED
    )


def _read(storage: Storage, listed: Iterable[str]) -> list[ExportRecord]:
    names = [name for name in listed if _NAME.fullmatch(name)]

    def read(name: str) -> ExportRecord | None:
        data = storage.get(f"{FOLDER}/{name}")
        return None if data is None else decode_record(data, f"{FOLDER}/{name}")  # None: dropped meanwhile

    if not names:
        return []
    with Threads(min(READERS, len(names)), thread_name_prefix="lockstep-exports") as pool:
        found = [record for record in pool.map(read, names) if record is not None]
    return sorted(found, key=lambda record: (record.created_at, record.id))


def lone_marks(storage: Storage) -> list[Found]:
    """Return the marks that an export was begun of which there is no record: who wrote it died between the two.

    A process that is merely slow may write the record yet; without its mark that keeps what it names for good.

    Raises:
        UnavailableError: the store failed.
    """
    found = [*storage.walk(FOLDER)]
    there = {each.path for each in found}
    return [each for each in found if each.path.endswith(_BEGUN) and _record_of(each.path) not in there]


def _record_of(mark: str) -> str:
    return f"{mark.removesuffix(_BEGUN)}.json"


def is_recorded(storage: Storage, record: ExportRecord) -> bool:
    """Tell whether a record is there and keeps what it names, however old it is.

    Raises:
        UnavailableError: the store failed.
    """
    names = {*storage.list(FOLDER)}
    return f"{record.id}.json" in names and f"{record.id}{_BEGUN}" not in names


def find_export(storage: Storage, id: str) -> ExportRecord:
    """Return the record of an export.

    Raises:
        UndefinedError (42704): there is none.
        UnavailableError, CorruptTimelineError: see `read_exports`.
    """
    data = storage.get(record_path(id)) if _NAME.fullmatch(f"{id}.json") else None
    if data is None:
        raise UndefinedError(f"no export {id}: CALL system.exports() lists those that there are", sqlstate=NO_EXPORT)
    return decode_record(data, record_path(id))


def drop_export(storage: Storage, id: str) -> ExportRecord:
    """Forget an export, and return what its record was: what it needs of the lake is kept no more for it.

    Raises:
        UndefinedError (42704): there is none.
        UnavailableError, CorruptTimelineError: see `read_exports`.
    """
    record = find_export(storage, id)
    forget_export(storage, id)
    return record


def forget_export(storage: Storage, id: str) -> None:
    """Remove the record of an export, and that it was begun.

    Raises:
        UnavailableError: the store failed.
    """
    storage.delete(record_path(id))
    storage.delete(begun_path(id))
