"""What is wrong where a reader fails: a file that a table's version names is lost, or is not what was written.

deltalake and DuckDB say neither in a way that can be told from what they do not support. So the store is asked, once
somebody has failed: the version's log for what there has to be, and for what there is one listing of the table's
folder, and one of each folder outside of that in which files lie that a shallow clone, or a partial export, shares.
Where nothing is lost the reader's words tell whether it was the store that did not answer.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from lockstep.delta.combine.collapse import is_inside
from lockstep.delta.places import is_absolute
from lockstep.delta.snapshot import Snapshot
from lockstep.errors import CorruptTimelineError, InvalidError, LockstepError, UnavailableError, UnsupportedError
from lockstep.exports.files import Place, place_of, vector_place
from lockstep.lake.kept_states import snapshot_of
from lockstep.storage import Storage
from lockstep.timeline.entry import Table

_UNANSWERED = re.compile(r"after [1-9]\d* retries|error sending request|too many open files", re.IGNORECASE)
"""What deltalake says, and whoever passes its words on, once it has asked a store in vain, or can ask none now."""


def reason(storage: Storage, table: Table, error: BaseException) -> CorruptTimelineError | UnavailableError | None:
    """Return why a table cannot be read, if that is for a file or the store; None where it is something else.

    Args:
        error: what a reader said.

    Raises:
        UnavailableError: the store failed.
    """
    if (damaged := damage(storage, table)) is not None:
        return damaged
    if _UNANSWERED.search(str(error)) is None:
        return None
    return UnavailableError(f"the store failed while table {table.name} was read at version {table.version}: {error}")


def damage(storage: Storage, table: Table) -> CorruptTimelineError | None:
    """Return which file of a table's version is lost or damaged; None if none is, as far as sizes tell.

    Raises:
        UnavailableError: the store failed.
    """
    what = f"table {table.name} cannot be read at version {table.version} of its log"
    remedy = "Restore the file from a backup, or RESTORE the table to a version that is whole"
    try:
        snapshot = snapshot_of(storage, table)
    except UnavailableError:
        raise
    except LockstepError as error:
        return CorruptTimelineError(f"{what}: {error.message}. {remedy}")
    needed = _needed(storage, table, snapshot)
    there = _there(storage, table.location, needed)
    for path, size in sorted(needed.items()):
        if path not in there:
            return CorruptTimelineError(f"{what}: its file {path} is gone. {remedy}")
        if (found := there[path]) is not None and size is not None and size != found:
            return CorruptTimelineError(f"{what}: its file {path} has {found} bytes, and the log says {size}. {remedy}")
    return None


def _needed(storage: Storage, table: Table, snapshot: Snapshot) -> dict[str, int | None]:
    """Return the files that a version needs, with their sizes where the log says them."""
    files: dict[str, int | None] = {}
    where = {"location": table.location, "root": storage.url}
    for add in snapshot.files.values():
        if is_inside(add["path"]) or is_absolute(add["path"]):
            files[_path(place_of(add["path"], **where), storage)] = add["size"]
        vector = add.get("deletionVector")
        if vector is not None and (place := vector_place(vector, **where)) is not None:
            files[_path(place, storage)] = None
    return files


def _path(place: Place, storage: Storage) -> str:
    return place.path if place.root == storage.url else f"{place.root}/{place.path}"


def _there(storage: Storage, location: str, needed: Collection[str]) -> dict[str, int | None]:
    """Return those of some files that are there, with their sizes; None of one that nobody can look for.

    Args:
        location: of the table; what is in its folder is listed at once.
    """
    by_folder: dict[str, list[str]] = {}
    for path in needed:
        folder = location if path.startswith(f"{location}/") else path.rpartition("/")[0]
        by_folder.setdefault(folder, []).append(path)
    there: dict[str, int | None] = {}
    for folder, paths in by_folder.items():
        try:
            sizes = {found.path: found.size for found in storage.walk(folder)}
        except (InvalidError, UnsupportedError):  # of a store that this process has no access to
            there.update(dict.fromkeys(paths))
        else:
            there.update((path, sizes[path]) for path in paths if path in sizes)
    return there
