"""URLs of stores and of folders in them: which spellings are of one, and what a path of a lake names.

A path of a lake is relative to its root, or, of something outside, a whole URL (`lockstep.storage.outside`).
"""

from __future__ import annotations

import os
import re

from lockstep.storage import HDFS, is_hdfs

MARK = "://"

_ALIASES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss"}
"""Schemes of the same store."""

OTHER_DOORS = {"webhdfs": "hdfs", "swebhdfs": "hdfs", "viewfs": "hdfs", "wasb": "abfss", "wasbs": "abfss"}
"""Schemes in which no lake lies, by which Hadoop reaches a store that one may lie in."""

_BUCKETS = frozenset({"s3", "gs"})
"""Schemes of URLs whose authority is a bucket, in whose name case counts, and not a host."""

_PORT_OF_HDFS = ":8020"
"""Of a name node, where a URL says none."""


def is_outside(path: str) -> bool:
    """Tell whether a path of a lake is a whole URL: what it names lies outside of the lake's root."""
    return MARK in path


def url_below(root: str, path: str) -> str:
    """Return the URL of what a path of a lake names.

    Args:
        root: the lake's, as `Storage.url` gives it.
        path: relative to that, or a whole URL.
    """
    return path if is_outside(path) else f"{root}/{path}"


def store_of(scheme: str, authority: str) -> str:
    """Return the URL of a store as a whole, such that two spellings of one store are equal.

    One store is `s3` and `s3a`, `abfs` and `abfss`, a name node with and without the port 8020, a host in capitals, and
    a bucket or a name node with a user in front of it.

    Args:
        scheme: of a URL.
        authority: of a URL; a local disk has none.
    """
    scheme = _ALIASES.get(scheme.lower(), scheme.lower())
    if scheme == "file":
        return f"{scheme}{MARK}"
    if scheme in _BUCKETS:
        return f"{scheme}{MARK}{authority.rpartition('@')[2]}"
    authority = authority.lower()  # Hadoop finds a file system by it without regard to case
    if f"{scheme}{MARK}" == HDFS:
        authority = authority.rpartition("@")[2].removesuffix(_PORT_OF_HDFS)
    return f"{scheme}{MARK}{authority}"


def kind_of_store(scheme: str) -> str:
    """Return which kind of store a scheme is of: the scheme of lakes' roots there, as `store_of` spells it."""
    scheme = _ALIASES.get(scheme.lower(), scheme.lower())
    return OTHER_DOORS.get(scheme, scheme)


def comparable(url: str) -> str:
    """Return a URL such that two of the same folder are equal, with links followed."""
    scheme, mark, rest = url.partition(MARK)
    if scheme.lower() == "file":
        return f"file://{os.path.realpath(rest)}"
    authority, slash, path = rest.partition("/")
    return f"{store_of(scheme, authority)}{slash}{path}".rstrip("/") if mark else url.rstrip("/")


def name_node(url: str) -> str | None:
    """Return how a URL of HDFS names its name node, None for a URL of anything else.

    Two names may be of one name node, as a host's short and its full one are, and nobody can tell that from the names.
    """
    return comparable(url).removeprefix(HDFS).partition("/")[0] if is_hdfs(url) else None


def written(url: str) -> str:
    """Return a whole URL with its store as `comparable` has it, and its path as it is written."""
    scheme, mark, rest = url.partition(MARK)
    authority, slash, inside = rest.partition("/")
    return f"{store_of(scheme, authority)}{slash}{inside}" if mark else url


def kind_of(url: str) -> str:
    """Return which kind of store a URL is in, see `kind_of_store`."""
    return kind_of_store(url.partition(MARK)[0])


def shown(url: str) -> str:
    """Return a URL, or what was to be one, for a message: without what stands where a key might.

    That is what is in front of a host, but for Azure's container, and what is behind a `?`, as a signature is.
    """
    scheme, mark, rest = url.partition(MARK) if MARK in url else ("", "", url)
    place, query, _ = rest.partition("?")
    authority, slash, path = place.partition("/")
    who, at, host = authority.rpartition("@")
    if at and (kind_of(url) != "abfss" or ":" in who):
        authority = f"…@{host}"
    return f"{scheme}{mark}{authority}{slash}{path}{'?…' if query else ''}"


_PASSWORD = re.compile(r"//[^\s/@:]*:[^\s/@]*@")


def without_password(text: str) -> str:
    """Return a text without the users and passwords of the URLs in it."""
    return _PASSWORD.sub("//…@", text)
