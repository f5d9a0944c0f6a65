"""The files of an export: that they are there, and that what was copied is what it was copied from."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from lockstep.errors import CorruptTimelineError, InvalidError, MissingFilesError
from lockstep.exports.files import Copy, Place
from lockstep.storage import Storage
from lockstep.storage.locations import NOT_REGISTERED
from lockstep.workers import Workers

NAMED = 5
"""So many missing files are named in a message."""

STORES = 64
"""So many stores, folders outside of the lake, are open at a time."""

Open = Callable[[str], Storage]


class Stores:
    """The stores that an export reads from: the lake's, and those of files that lie elsewhere."""

    def __init__(self, lake: Storage, open_other: Open) -> None:
        """Use the lake's own store, and open others when they are needed."""
        self._lake = lake
        self._open = lru_cache(STORES)(open_other)

    def of(self, place: Place) -> Storage:
        """Return the store that a file is in.

        Raises:
            LockstepError: there is none, see `open_storage`.
        """
        return self._lake if place.root == self._lake.url else self._open(place.root)

    def missing(self, places: Iterable[Place], workers: Workers) -> list[Place]:
        """Return those of the files that are not there, by one listing for each folder.

        Raises:
            InvalidError (42501): they lie where nothing may be looked at, see `check_reach`.
            UnavailableError: a store failed.
        """
        by_folder: dict[tuple[str, str], list[Place]] = {}
        for place in places:
            by_folder.setdefault(place.folder, []).append(place)

        def look(some: list[Place]) -> list[Place]:
            try:
                names = {*self.of(some[0]).list(some[0].folder[1])}
            except InvalidError as error:
                if error.sqlstate == NOT_REGISTERED:
                    raise
                return some  # the folder is gone
            return [place for place in some if place.name not in names]

        return sorted(itertools.chain.from_iterable(workers.map(look, by_folder.values())), key=lambda place: place.uri)


EXPORTED = (
    "the export",
    "Nothing was exported. Restore them, RESTORE the table to a whole version, or export another database version",
)
"""Who needs the files of an export, and what to do if they are gone."""


def check_there(
    stores: Stores, places: Iterable[Place], workers: Workers, *, needed: tuple[str, str] = EXPORTED
) -> None:
    """Raise MissingFilesError, which names them, if files are not there.

    Args:
        needed: who needs them, and what to do, for the message.
    """
    if gone := stores.missing(places, workers):
        named = ", ".join(place.uri for place in gone[:NAMED])
        more = f", and {len(gone) - NAMED} more" if len(gone) > NAMED else ""
        raise MissingFilesError(f"{needed[0]} needs files that are gone: {named}{more}. {needed[1]}")


def copy(stores: Stores, target: Storage, file: Copy, *, is_new: bool = False) -> int:
    """Copy a file unless the target has it, read back what is there, and return its size.

    Args:
        is_new: whether no attempt before this one can have had its name: then nobody looks whether the target has it.

    Raises:
        MissingFilesError: it is gone.
        CorruptTimelineError: it has not the size that the table's log says, or the copy is not what it was copied from.
        UnavailableError: a store failed.
    """
    pieces = stores.of(file.source).chunks(file.source.path)
    if pieces is None:
        raise MissingFilesError(f"{file.source.uri} is gone: the copy needs it, and nothing of it can be seen yet")
    original = _Digest()
    if not is_new and target.exists(file.path):
        # Of an attempt before this one, whole; that it is the same file is looked at below.
        original.take_all(pieces)
    else:
        target.put_chunks(file.path, original.passing(pieces))
    if file.size is not None and original.size != file.size:
        raise CorruptTimelineError(
            f"{file.source.uri} has {original.size} bytes, and the table's log says {file.size}: it is damaged. "
            "Restore the file"
        )
    there = _Digest().take_all(target.chunks(file.path) or ())
    if there != original:
        raise CorruptTimelineError(
            f"{target.url}/{file.path} is not what {file.source.uri} is: another file has its name, or the copy is "
            "damaged. If nothing else needs it, delete it and run the same again"
        )
    return original.size


class _Digest:
    """What is told of a file as its pieces go by: its SHA-256, and how many bytes it has."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self.size = 0

    def passing(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield pieces, and take each on the way."""
        for piece in pieces:
            self._sha256.update(piece)
            self.size += len(piece)
            yield piece

    def take_all(self, pieces: Iterable[bytes]) -> _Digest:
        """Take pieces, and return this."""
        for _ in self.passing(pieces):
            pass
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Digest) and self._sha256.digest() == other._sha256.digest()

    __hash__ = None  # type: ignore[assignment]  # it changes
