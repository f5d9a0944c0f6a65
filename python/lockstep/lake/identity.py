"""Which lake this is, where the URL of its root does not say: a folder of some disk, a bucket of some server.

    <root>/_lockstep/identity      24 hexadecimal digits, drawn by whoever needs them first

Two lakes may have one URL for their roots, on two machines or at two servers. As long as the tables of both are where
the roots are, these are two tables. In a location that is reached otherwise (`lockstep.storage.locations`) the lakes
can meet, and a claim that names the root alone would be taken by each for its own.
"""

from __future__ import annotations

import re
import secrets

from lockstep.errors import CorruptTimelineError, UnsupportedError
from lockstep.storage import Mine, Storage
from lockstep.storage.outside import is_apart

PATH = "_lockstep/identity"

_IDENTITY = re.compile(rb"[0-9a-f]{24}")


def identity_for(storage: Storage, location: str) -> str:
    """Return what a claim of a table says beside the root, which the first one draws; nothing, where the root says all.

    Args:
        storage: the lake's.
        location: the table's, as the lake calls it.

    Raises:
        UnsupportedError: the root's store knows no conditional writes: of two who draw at once, each would claim tables
            for another lake than the other.
        UnavailableError: the store failed.
        CorruptTimelineError: what is kept is no identity.
    """
    if not is_apart(storage, location):
        return ""
    if storage.looks_first:
        raise UnsupportedError(
            f"{location} is in a location that is reached otherwise than the root, {storage.url}, whose store knows no "
            "conditional writes, and nothing there keeps for sure which lake has claimed a table. Copy its rows into a "
            "new table below the root"
        )
    return _identity(storage)


def is_identity(storage: Storage, said: str) -> bool:
    """Tell whether what a claim says is the lake of a store; nothing is written.

    Raises:
        UnavailableError, CorruptTimelineError: see `identity_for`.
    """
    data = storage.get(PATH)
    return data is not None and _read(storage, data) == said


def _identity(storage: Storage) -> str:
    if (data := storage.get(PATH)) is None:
        drawn = secrets.token_hex(12).encode()
        outcome = storage.put_if_absent(PATH, drawn)
        data = drawn if isinstance(outcome, Mine) else outcome.data
    return _read(storage, data)


def _read(storage: Storage, data: bytes) -> str:
    if not _IDENTITY.fullmatch(data):
        raise CorruptTimelineError(
            f"{PATH} in {storage.url} has no 24 hexadecimal digits, so which lake has claimed tables in its locations "
            "is not known: restore it from a backup"
        )
    return data.decode()
