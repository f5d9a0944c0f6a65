"""Folders below a lake's root that are not the lake's to delete: of tables that it adopted, and of those it gave back.

    <root>/_lockstep/guests/<id>.json      one `Guests`, of one transaction that adopted or released tables

It is written by COMMIT, before the entry, and goes only if that transaction is certain not to commit: then the folders
are whose they were. Else it stays for ever: entries of the timeline expire, and a table that was made by somebody else,
or that somebody else goes on with, is his for longer than that. So a record that cannot be read is an error, and never
passed over. A table outside of the root needs none: what deletes files does not look there.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from lockstep.errors import CorruptTimelineError
from lockstep.storage import Storage
from lockstep.storage.urls import is_outside
from lockstep.timeline.entry import Value
from lockstep.timeline.files import READERS, UNREADABLE
from lockstep.workers import Threads

FOLDER = "_lockstep/guests"
FORMAT = 1


class Guests(Value, frozen=True):
    """What one transaction found to be somebody else's, or gave to somebody else.

    Attributes:
        format: 1.
        locations: folders, relative to the lake's root.
    """

    format: int
    locations: list[str]


_decode = msgspec.json.Decoder(Guests).decode


def note_guests(storage: Storage, id: str, locations: Iterable[str]) -> None:
    """Write down that folders are not the lake's to delete; those outside of its root are left out.

    Args:
        id: of the record, new, or of one that the same transaction has written: that is written over.

    Raises:
        UnavailableError: the store failed.
    """
    if inside := sorted({each for each in locations if not is_outside(each)}):
        storage.put_durably(path_of(id), msgspec.json.encode(Guests(format=FORMAT, locations=inside)))


def path_of(id: str) -> str:
    """Return where a record is, relative to the lake's root."""
    return f"{FOLDER}/{id}.json"


def guests(storage: Storage) -> frozenset[str]:
    """Return the folders that are not the lake's to delete, relative to its root; one listing where there are none.

    Raises:
        UnavailableError: the store failed.
        CorruptTimelineError: a record cannot be read, so nobody knows.
    """
    names = [name for name in storage.list(FOLDER) if name.endswith(".json")]
    if not names:
        return frozenset()
    with Threads(min(READERS, len(names)), thread_name_prefix="lockstep-guests") as pool:
        return frozenset[str]().union(*pool.map(lambda name: _read(storage, f"{FOLDER}/{name}"), names))


def _read(storage: Storage, path: str) -> list[str]:
    if (data := storage.get(path)) is None:
        return []  # it was removed since it was listed: its transaction is certain not to commit
    try:
        record = _decode(data)
    except UNREADABLE as error:
        raise CorruptTimelineError(
            f"{path}: expected folders that are not the lake's to delete: {error}. Nothing was deleted; restore it "
            "from a backup"
        ) from error
    if record.format != FORMAT:
        raise CorruptTimelineError(
            f"{path}: format {record.format}, expected {FORMAT}. If a newer Lockstep wrote it, upgrade this one"
        )
    return record.locations
