"""The Delta tables below a folder, and what a lake would call them."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.adoption.adopt import Wanted
from lockstep.arguments import check_text
from lockstep.delta.log import LOG
from lockstep.errors import InvalidError
from lockstep.storage import Storage, url_of
from lockstep.storage.urls import comparable
from lockstep.timeline.entry import Name, Namespace

MAX_TABLES = 10_000
"""So many tables are adopted in one transaction: each is a line of one entry of the timeline."""

WAREHOUSE_SUFFIX = ".db"
"""What Spark's warehouse puts behind the name of a schema."""


def tables_below(storage: Storage, folder: str, namespace: Namespace | None = None) -> list[Wanted]:
    """Return the Delta tables below a folder, in the order of their paths, each under a name that follows from its own.

    A table's last folder is its name, and the folders between are namespaces; `.db`, as Spark's warehouse has it, is
    cut off. What lies in the folder itself is in the namespace that is given, or in `default`. Folders inside of a
    table are not looked at, and none whose name begins with `_` or `.`.

    Args:
        storage: the lake's; the folder may be outside of its root.
        namespace: what the names begin with.

    Raises:
        InvalidError: there are none, or more than `MAX_TABLES`; or the folder is a table itself; or (22021) the name of
            a folder is no UTF-8.
        UnavailableError, UnsupportedError: the store failed, or has no listing.
    """
    url = comparable(url_of(folder))
    found: dict[str, None] = {}
    for path in _logs(storage, url):
        found[path] = None
        if len(found) > MAX_TABLES:
            raise InvalidError(f"{folder} has more than {MAX_TABLES} tables: adopt the folders in it one by one")
    paths = sorted(found)
    if not paths:
        raise InvalidError(f"{folder} has no Delta tables below it")
    if "" in found:
        raise InvalidError(f"{folder} is a Delta table itself: give its name as table, and the folder as location")
    for path in paths:
        check_text(path, f"the folder of a Delta table below {folder}, {path!a},")
    outer = [path for path in paths if not any(path.startswith(f"{other}/") for other in _prefixes(path, found))]
    return [Wanted(_name(path, namespace), f"{url}/{path}") for path in outer]


def _logs(storage: Storage, url: str) -> Iterator[str]:
    """Yield the paths of folders that have a log, below a folder; the same one often."""
    for each in storage.walk(url):
        parts = each.path.removeprefix(f"{url}/").split("/")
        if LOG in parts:
            folders = parts[: parts.index(LOG)]
            if not any(part.startswith(("_", ".")) for part in folders):
                yield "/".join(folders)


def _prefixes(path: str, found: dict[str, None]) -> list[str]:
    parts = path.split("/")
    return [prefix for length in range(1, len(parts)) if (prefix := "/".join(parts[:length])) in found]


def _name(path: str, namespace: Namespace | None) -> Name:
    *folders, table = path.split("/")
    spaces = tuple(folder.removesuffix(WAREHOUSE_SUFFIX) for folder in folders)
    return Name(namespace=((namespace or ()) + spaces) or ("default",), table=table)
