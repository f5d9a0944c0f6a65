"""Where a new lake may be: in no other lake, in no Delta table, and not where the tables of a lost one lie."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from lockstep.delta.log import LOG
from lockstep.errors import InvalidError, UnavailableError
from lockstep.storage import Storage, open_storage
from lockstep.timeline.files import FOLDER
from lockstep.timeline.hint import CHECKPOINTS
from lockstep.transactions.folders import MAX_FOLDERS, check_root

_OF_A_LAKE = re.compile(r".+-[0-9a-f]{24}")
"""The name of a table's folder, with the id that Lockstep gave the table."""

_CLAIMS = f"{LOG}/_lockstep"
"""Directly in it are only claims: what transactions stage is in folders of their own below."""

_FOLDERS_AT_MOST = 10_000
"""Below a new lake's root, folders that are looked at: it may be any folder, with any number of files in it."""


Open = Callable[[str], Storage]
"""Opens the store of a URL; a local folder that is not there is an InvalidError."""


def refuse_unless_free(url: str, open_at: Open | None = None) -> None:
    """Refuse to make a lake in another lake or in a Delta table, unless there is a lake already.

    What such a folder holds is its owner's to delete: VACUUM of a table removes every file below its folder that the
    table does not name. A folder above that cannot be read is passed over, for nobody can tell what it is. Nor is one
    made where a lake has been whose timeline is gone: the backup of that belongs there. That is looked at of a local
    root alone, for elsewhere it would be a listing of all that lies under the root.

    Args:
        url: of the root to be, as `lockstep.storage.url_of` gives it; nothing need be there yet.
        open_at: opens the folders that are looked at; by what the environment says by default.

    Raises:
        InvalidError: the root is in a lake or in a table, or is a table's folder; or tables of a lost lake are in it.
    """
    check_root(url)
    open_at = open_at or open_storage
    if _has_files(url, FOLDER, open_at):
        return
    if _has_table(url, open_at):
        raise InvalidError(
            f"{url} is the folder of a Delta table: VACUUM of that table would delete the lake, choose a folder of its "
            "own"
        )
    if (what := what_is_around(url, open_at)) is not None:
        why = (
            "a lake cannot be in another one"
            if what.startswith("the lake")
            else "VACUUM of that table would delete the lake"
        )
        raise InvalidError(f"{url} is inside {what}: {why}, choose a folder of its own")
    table = _lost_table(url)
    # Another process may have made the lake and the table meanwhile. Checkpoints say which entries are lost, and who
    # opens the lake is told.
    if table is not None and not _has_files(url, FOLDER, open_at) and not _has_files(url, CHECKPOINTS, open_at):
        raise InvalidError(
            f"{url} was a lake whose timeline is gone: {table} is a table of it, and there may be more. Restore the "
            "folder _lockstep from a backup. If there is none, make a lake in another folder, and adopt the tables "
            "where they are: lockstep adopt"
        )


def what_is_around(url: str, open_at: Open) -> str | None:
    """Return which lake, or which Delta table, a folder or a file lies in, the nearest one; None if it is in none.

    Args:
        url: as `lockstep.storage.url_of` gives it; nothing need be there.
        open_at: opens the folders above it.
    """
    for folder in _above(url):
        if _has_files(folder, FOLDER, open_at):
            return f"the lake {folder}"
        if _has_table(folder, open_at):
            return f"the Delta table {folder}"
    return None


def _has_table(folder: str, open_at: Open) -> bool:
    """Tell whether a Delta table lies in a folder, or a lake has claimed it for one, see `lockstep.lake.claims`."""
    return _has_files(folder, LOG, open_at) or _has_files(folder, _CLAIMS, open_at)


def _lost_table(url: str) -> str | None:
    """Return the path, below a local root without a timeline, of a table's folder that a lake has made; None: none."""
    if not url.startswith("file://"):
        return None
    root = url.removeprefix("file://")
    for number, (folder, names, _) in enumerate(os.walk(root)):  # what cannot be read is passed over
        if number >= _FOLDERS_AT_MOST:
            return None
        below = os.path.relpath(folder, root)
        if LOG in names:
            if _OF_A_LAKE.fullmatch(Path(folder).name):
                return below
            names.clear()
        elif Path(folder, FOLDER).is_dir() or below.count(os.sep) + 2 > MAX_FOLDERS:
            names.clear()  # another lake's, or deeper than tables lie
        names[:] = sorted(name for name in names if not name.startswith((".", "_lockstep")))
    return None


def _above(url: str) -> Iterator[str]:
    """Yield the folders above one, nearest first; of a local one also those above what its links lead to."""
    if url.startswith("file://"):
        path = Path(url.removeprefix("file://"))
        yield from dict.fromkeys(f"file://{folder}" for folder in (*path.parents, *path.resolve().parents))
        return
    scheme, _, rest = url.partition("://")
    parts = rest.split("/")
    yield from (f"{scheme}://{'/'.join(parts[:count])}" for count in range(len(parts) - 1, 0, -1))


def _has_files(folder: str, name: str, open_at: Open) -> bool:
    try:
        return bool(open_at(folder).list(name))
    except InvalidError:  # not there
        return False
    except UnavailableError:  # not ours to read; that it is there may be told all the same
        return folder.startswith("file://") and _is_folder(folder.removeprefix("file://"), name)


def _is_folder(folder: str, name: str) -> bool:
    try:
        return Path(folder, name).is_dir()
    except OSError:
        return False
