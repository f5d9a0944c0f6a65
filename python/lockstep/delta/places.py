"""Where the paths of a table's log lead: to which file of the lake, or of what lies outside of it.

    in the log of `t`, of the lake s3://bucket/lake    what the lake calls that file
    a%20b.parquet                                      t/a b.parquet
    s3a://bucket/lake/u/a.parquet                      u/a.parquet
    s3a://other/u/a.parquet                            s3://other/u/a.parquet

Everybody who follows such a path asks here: who deletes what no path leads to, who writes what is about to need a file,
who reads one. Were their answers two, a file that a table needs would be deleted. A store has several spellings, see
`lockstep.storage.urls.store_of`; a folder of a local disk has those that links make.
"""

from __future__ import annotations

import os
import posixpath
import re
import time
from functools import lru_cache
from urllib.parse import unquote

from lockstep.storage.urls import is_outside, kind_of_store, store_of

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(?=/|$)")
_LOCAL = store_of("file", "")


def is_absolute(path: str) -> bool:
    """Tell whether a path of a log is a URI by itself, and not below the table's folder."""
    return path.startswith("/") or (":/" in path and _URL.match(path) is not None)


def below_root(path: str, location: str, root: str) -> str | None:
    """Return a path of a table's log as one relative to the lake's root; None if it leads out of the lake.

    Args:
        path: relative to the table's folder, absolute, or a URL, without percent-encoding.
        location: the table's folder, relative to the lake's root; or a whole URL, of a table outside of the root, whose
            own files are named by whole URLs, too.
        root: the lake's root as a URL, `Storage.url`.
    """
    if not is_absolute(path):
        named = _joined(location, path)
        if not named.startswith("../"):
            return named
        path = f"{root}/{named}"
    store, above = _of_root(root)
    its, place = _parted(path)
    if its != store:
        return None
    if place.startswith(above):
        return place.removeprefix(above)
    if store != _LOCAL:
        return None
    # The lake may have several names: whoever deletes may have come by a link, and whoever cloned may not.
    folder, _, name = place.rpartition("/")
    real, inside = f"{_real(folder)}/{name}", f"{_real(above).rstrip('/')}/"
    return real.removeprefix(inside) if real.startswith(inside) else None


def place_of(path: str, location: str, root: str) -> str:
    """Return a path of a table's log as the lake calls that place, so that one that several tables name has one name.

    Args:
        path: as in `below_root`.
        location: as in `below_root`.
        root: as in `below_root`.

    Returns:
        A path relative to the lake's root, or a whole URL of what lies outside; links on a local disk are followed.
    """
    named = name_of(path, location, root)
    if not (named.startswith(_LOCAL) and is_absolute(path)):
        return named
    folder, _, name = named.removeprefix(_LOCAL).rpartition("/")
    return f"{_LOCAL}{_real(folder)}/{name}"


def name_of(path: str, location: str, root: str) -> str:
    """Return a path of a table's log as `place_of` does, but of what lies outside as the log names it: by its links.

    For who names a file to others, or reads it: whoever made a link may want it to be found by that.
    """
    if (below := below_root(path, location, root)) is not None:
        return below
    return "".join(_parted(path if is_absolute(path) else f"{root}/{location}/{path}"))


def may_mean(path: str, location: str, root: str) -> list[str]:
    """Return all that a path of a table's log may mean, as `place_of` names places, for who has to keep it.

    More than one where it may be percent-encoded or not, which writers of tables have not always got right, and where
    nobody can tell from it which store it is of: without a scheme, or without the store's name, it is the default one
    of who wrote it; one name node may have two names, and there are other ways to a store than the lake's.

    Args:
        path: as the log has it.
        location: as in `below_root`.
        root: as in `below_root`.
    """
    if "%" not in path and ":" not in path and not _is_odd(f"/{path}"):
        return [f"{location}/{path}"]
    found: dict[str, None] = {}
    for each in dict.fromkeys((path, unquote(path))):
        found[place_of(each, location, root)] = None
        if is_absolute(each) and (below := _below_any(each, root)) is not None:
            found[below] = None
    if not is_absolute(path):
        found[_joined(location, unquote(path).lstrip("/"))] = None
    return [*found]


def _below_any(path: str, root: str) -> str | None:
    """Return where in the lake an absolute path leads if it is of the root's store, where nobody can tell that."""
    store, above = _of_root(root)
    its, place = _parted(path)
    if (match := _URL.match(path)) is not None:
        scheme, ours = its.partition(":")[0], store.partition(":")[0]
        if kind_of_store(scheme) != ours or (match[2] and scheme == ours != "hdfs"):
            return None  # another kind of store, or another bucket
    return place.removeprefix(above) if place.startswith(above) else None


def _joined(folder: str, path: str) -> str:
    """Return a path below a folder, which may be a whole URL, without '.', '..' and empty parts."""
    if is_outside(folder):
        return "".join(_parted(f"{folder}/{path}"))
    joined = f"{folder}/{path}"
    return posixpath.normpath(joined) if _is_odd(joined) else joined


def _parted(path: str) -> tuple[str, str]:
    """Return the store that an absolute path is in, and the path there, without '.', '..' and empty parts."""
    match = _URL.match(path)
    store = _LOCAL if match is None else store_of(match[1], match[2] or "")
    place = path if match is None else path[match.end() :]
    return store, f"/{posixpath.normpath(place).lstrip('/')}" if _is_odd(place) else place


def _is_odd(path: str) -> bool:
    return "//" in path or "/." in path


@lru_cache(64)
def _of_root(root: str) -> tuple[str, str]:
    """Return the store that a lake's root is in, and its path there with a slash at its end."""
    store, place = _parted(root)
    return store, f"{place.rstrip('/')}/"


def _real(folder: str) -> str:
    """Return a local folder with its links followed: as they are now, for a process outlives what they lead to."""
    return _followed(folder, int(time.monotonic()))


@lru_cache(1024)
def _followed(folder: str, _second: int) -> str:
    return os.path.realpath(folder)
