"""Where an entry may say that something lies: below the lake's root, and nowhere where something else is kept.

An entry is read by everybody, and whoever may write the root may have put it there. What it says leads nobody out of
the root: paths in it are relative, without `..`, and name no scheme. The store refuses what would leave it all the
same, links among that (`lockstep.storage`).
"""

from __future__ import annotations

import re

from lockstep.errors import InvalidError
from lockstep.storage import checked

RESERVED_FOLDERS = frozenset({"_delta_log", "_lockstep", "_symlink_format_manifest"})
"""Folders whose files are other than data, wherever they lie: what may be done to a file follows from its path."""

MAX_PATH_BYTES = 4096
"""So long may a path be: what Linux takes, and more than the thousand bytes of a key in S3."""

_FOREIGN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|.*[\x00-\x1f\x7f\\]", re.DOTALL)
"""What begins with a scheme, or has a control character or a backslash in it."""


_DOUBTFUL = re.compile(r"[\x00-\x1f\x7f\\]")


def is_table_folder(location: str) -> bool:
    """Tell whether a table may lie here: a path below the root, and in no folder that holds other than data."""
    return is_below(location) and RESERVED_FOLDERS.isdisjoint(part.lower() for part in location.split("/"))


def is_folder_outside(url: str) -> bool:
    """Tell whether an adopted table may lie here, at a whole URL: one way to write it, and in no reserved folder."""
    scheme, mark, rest = url.partition("://")
    authority, _, path = rest.partition("/")
    has_authority = bool(authority) != (scheme == "file")
    return bool(scheme and mark) and has_authority and _DOUBTFUL.search(url) is None and _is_clean(path)


def folders_above(location: str) -> list[str]:
    """Return the folders that a location lies in, outermost first."""
    parts = location.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def overlap(one: str, other: str) -> bool:
    """Tell whether two folders are one, or one of them is inside of the other."""
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _is_clean(path: str) -> bool:
    parts = path.split("/")
    is_short = len(path.encode(errors="surrogatepass")) <= MAX_PATH_BYTES
    return is_short and not {"", ".", ".."} & {*parts} and RESERVED_FOLDERS.isdisjoint(part.lower() for part in parts)


def is_below(path: str) -> bool:
    """Tell whether a path leads to something below what it is relative to, and is written so that nobody doubts it."""
    try:
        checked(path)
    except InvalidError:
        return False
    return _FOREIGN.match(path) is None and len(path.encode(errors="surrogatepass")) <= MAX_PATH_BYTES
