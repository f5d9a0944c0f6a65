"""Where a table may lie: folders that are readable, unique, and none of those that are other than data."""

from __future__ import annotations

import re
from collections.abc import Callable

from lockstep.errors import InvalidError
from lockstep.timeline.entry import Name
from lockstep.timeline.places import RESERVED_FOLDERS, folders_above

MAX_FOLDER_CHARACTERS = 64
MAX_FOLDERS = 8
"""What a table's folder shows of the parts of a long name, and of how many: file systems take 255 bytes a part."""


def check_root(url: str) -> None:
    """Raise InvalidError if a lake's root lies in one of `RESERVED_FOLDERS`."""
    if folders := sorted(RESERVED_FOLDERS.intersection(url.split("/"))):
        raise InvalidError(f"{url} cannot be a lake's root: tables in a folder {folders[0]} could not be written")


def _nowhere(_: str) -> bool:
    return False


def new_location(name: Name, id: str, is_table: Callable[[str], bool] = _nowhere) -> str:
    """Return a folder for a new table: readable, unique because the id is, and in the folder of no other table.

    Args:
        is_table: whether a table lies in a folder, as one may that somebody put where a namespace has its tables.
    """
    folders = [_folder(part) for part in (*name.namespace[: MAX_FOLDERS - 1], name.table)]
    if any(map(is_table, folders_above("/".join(folders)))):
        folders = folders[-1:]
    return f"{'/'.join(folders)}-{id}"


def is_own(location: str, id: str) -> bool:
    """Tell whether a lake made the folder of a table: only those end in the table's id, see `new_location`."""
    return location.endswith(f"-{id}")


def _folder(part: str) -> str:
    folder = re.sub(r"[^A-Za-z0-9_-]", "_", part)[:MAX_FOLDER_CHARACTERS] or "_"
    # Whatever the case: some file systems do not tell it apart.
    return folder.lstrip("_") if folder.lower() in RESERVED_FOLDERS else folder
