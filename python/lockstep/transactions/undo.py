"""What a transaction can still take back: the tables that it began to make, and what it had done at its savepoints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lockstep.errors import InvalidError
from lockstep.timeline.entry import Name, Table
from lockstep.transactions.names import Names


@dataclass(frozen=True, slots=True)
class Creation:
    """A table that is about to be created: its name is taken once its first version is staged."""

    id: str
    name: Name
    location: str
    case_sensitive: bool = True


RESERVED_FOLDERS = frozenset({"_delta_log", "_lockstep", "_symlink_format_manifest"})
"""Folders whose files are other than data, wherever they lie: what may be done to a file follows from its path."""

MAX_FOLDER_CHARACTERS = 64
MAX_FOLDERS = 8
"""What a table's folder shows of the parts of a long name, and of how many: file systems take 255 bytes a part."""


def check_root(url: str) -> None:
    """Raise InvalidError if a lake's root lies in one of `RESERVED_FOLDERS`."""
    if folders := sorted(RESERVED_FOLDERS.intersection(url.split("/"))):
        raise InvalidError(f"{url} cannot be a lake's root: tables in a folder {folders[0]} could not be written")


def new_location(name: Name, id: str) -> str:
    """Return a folder for a new table: readable, and unique because the id is."""
    parts = (*name.namespace[: MAX_FOLDERS - 1], name.table)
    return f"{'/'.join(map(_folder, parts))}-{id}"


def _folder(part: str) -> str:
    folder = re.sub(r"[^A-Za-z0-9_-]", "_", part)[:MAX_FOLDER_CHARACTERS] or "_"
    # Whatever the case: some file systems do not tell it apart.
    return folder.lstrip("_") if folder.lower() in RESERVED_FOLDERS else folder


@dataclass(frozen=True, slots=True)
class Savepoint:
    """What a transaction had done when the savepoint was set."""

    name: str
    staged: Mapping[str, tuple[int, ...]]
    names: Names
    creations: Mapping[str, Creation]
    statements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Undone:
    """What going back to a savepoint leaves in the store: nobody sees it once it is gone.

    Attributes:
        cut: tables with staged commits that were undone: the versions that are kept, and those that go.
        folders: folders of tables that were made since.
    """

    cut: list[tuple[Table, list[int], list[int]]]
    folders: list[str]
