"""Where an export goes: what is refused there, and how it is told that it is somebody's already.

    <root>/_lockstep/export.json       the record of the export, which is written first: whose the folder is

The timeline's entry 0 is written last. Until then the folder is no lake to anybody.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lockstep.errors import CorruptTimelineError, DuplicateError, InvalidError
from lockstep.lake.exports import ExportRecord, decode_record, encode_record
from lockstep.lake.roots import refuse_unless_free, what_is_around
from lockstep.storage import Mine, Storage, Theirs
from lockstep.storage.urls import comparable
from lockstep.timeline.entry import Entry, ExportMode
from lockstep.timeline.files import FOLDER, decode, find
from lockstep.timeline.fold import apply
from lockstep.transactions.folders import check_root

_OWN = "_lockstep"
CLAIM = f"{_OWN}/export.json"


def check_target(source: str, target: str) -> None:
    """Refuse a target that is the source, or in it, or around it: neither may be in the other.

    Args:
        source, target: URLs, as `lockstep.storage.url_of` gives them.

    Raises:
        InvalidError: it is.
    """
    check_root(target)
    one, other = comparable(source), comparable(target)
    if one == other:
        raise InvalidError(f"{target} is the lake itself: choose a folder of its own for the export")
    if other.startswith(f"{one}/"):
        raise InvalidError(f"{target} is inside the lake {source}: choose a folder of its own for the export")
    if one.startswith(f"{other}/"):
        raise InvalidError(f"the lake {source} is inside {target}: choose a folder of its own for the export")


def refuse_unless_empty(url: str, storage: Storage | None, open_at: Callable[[str], Storage]) -> None:
    """Refuse a folder that has anything in it, or that is in a lake or a table.

    That tells, too, where the lake of the export itself is meant by another name of its server, which a URL does not.

    Args:
        storage: of that folder, in which no export has begun; None if that is a local folder which is not there.
        open_at: opens the folders above it.

    Raises:
        InvalidError: it has, or is.
        UnavailableError: the store failed.
    """
    refuse_unless_free(url, open_at)
    if storage is not None and not _is_empty(storage):
        raise InvalidError(f"{url} is not empty: choose a folder of its own for the export")


def _is_empty(storage: Storage) -> bool:
    # A folder of Lockstep's may be there, from an export that was told of another one before it claimed the folder.
    if storage.url.startswith("file://"):  # where folders may be that have nothing in them
        return not {path.name for path in Path(storage.url.removeprefix("file://")).iterdir()} - {_OWN}
    return all(found.path.startswith(f"{_OWN}/") for found in storage.walk("") if found.path)


def refuse_inside(url: str, open_at: Callable[[str], Storage]) -> None:
    """Refuse a file that would be in a lake or in a table, which may delete what it does not know.

    Args:
        url: of the file; nothing need be there.
        open_at: opens the folders above it.

    Raises:
        InvalidError: it would.
    """
    if (what := what_is_around(url, open_at)) is not None:
        raise InvalidError(f"{url} is inside {what}, whose upkeep may delete it: choose another folder for the export")


def claimed(storage: Storage) -> ExportRecord | None:
    """Return the export that a folder is of, as far as one has begun there."""
    data = storage.get(CLAIM)
    return None if data is None else decode_record(data, f"{storage.url}/{CLAIM}")


def claim(storage: Storage, record: ExportRecord) -> ExportRecord:
    """Make a folder this export's, and return the record of the export that has it now."""
    match storage.put_if_absent(CLAIM, encode_record(record)):
        case Theirs(data):
            return decode_record(data, f"{storage.url}/{CLAIM}")
        case Mine():
            return record


def is_same(one: ExportRecord, other: ExportRecord) -> bool:
    """Tell whether two records are of the same thing: then whoever comes later helps the first, or goes on with it."""
    return (one.source, one.database_version, one.mode, one.target) == (
        *(other.source, other.database_version, other.mode, other.target),
    )


def taken(by: ExportRecord) -> DuplicateError:
    """Return what to say when a target is another export's."""
    return DuplicateError(
        f"{by.target} is the target of export {by.id}, {by.mode}, of database version {by.database_version} of "
        f"{by.source}. To go on with that one, ask for the same version and mode; else choose another target, or drop "
        "that export and delete its folder"
    )


def first_entry(storage: Storage) -> Entry | None:
    """Return entry 0 of the lake in a folder; None if there is no lake."""
    file = find(storage, 0)
    return None if file is None else file.entry(0)


def made_as(storage: Storage) -> tuple[ExportMode, str] | None:
    """Return as which kind of export a lake was made, and of which root; None if it was not made as one.

    The claim is asked first: it stays, and entry 0 may have expired.
    """
    if (record := claimed(storage)) is not None:
        return record.mode, record.source
    entry = first_entry(storage)
    return None if entry is None or entry.origin is None else (entry.origin.mode, entry.origin.root)


def is_lake(storage: Storage, record: ExportRecord) -> bool:
    """Tell whether a folder is the lake that an export has made there.

    It may have gone on since, and its first entries may have expired: then the claim alone says whose it is.

    Raises:
        DuplicateError: it is another lake.
        UnavailableError, CorruptTimelineError: as the store and the timeline say.
    """
    if not storage.list(FOLDER):
        return False
    if (entry := first_entry(storage)) is not None:
        refuse_other(entry, record)
    elif claimed(storage) != record:
        raise DuplicateError(f"there is a lake at {record.target} already: choose another target")
    return True


def refuse_other(entry: Entry, record: ExportRecord) -> None:
    """Raise DuplicateError unless an entry 0 is the one that an export makes."""
    if entry.transaction.id != record.id:
        what = "another export" if entry.origin else "a lake"
        raise DuplicateError(f"there is {what} at {record.target} already: choose another target")


def read_minimal(data: bytes, url: str) -> Entry:
    """Read the file that a minimal export is.

    Raises:
        InvalidError: it is another file, or of a newer Lockstep.
    """
    try:
        entry = decode(data, 0)
        apply(None, entry)
    except CorruptTimelineError as error:
        raise InvalidError(f"{url} is no minimal export of this Lockstep's: {error.message}") from error
    if entry.origin is None or entry.origin.mode != "minimal":
        raise InvalidError(f"{url} is no minimal export: a full or a partial one is a lake, which needs no import")
    return entry
