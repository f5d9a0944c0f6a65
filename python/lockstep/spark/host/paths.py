"""Which table of a lake is meant by a path that a query reads, and not by its name."""

from __future__ import annotations

import re
from collections.abc import Iterable

from lockstep.errors import LockstepError, UnsupportedError
from lockstep.storage import url_of
from lockstep.storage.urls import OTHER_DOORS, comparable, name_node, url_below
from lockstep.timeline.entry import Table

_SCHEME = re.compile("[A-Za-z][A-Za-z0-9+.-]*:")


def refuse_paths(paths: Iterable[str], root_url: str, tables: Iterable[Table]) -> None:
    """Raise unless none of these paths is a table's folder, or in one, or has one below it.

    By its path a table is as it is published just now: nothing of a transaction's own, no snapshot, and no read that
    anybody could judge. Two names may be of one name node of HDFS: so no path there is read whose name node is written
    as no table's is.

    Raises:
        UnsupportedError: one is; the message names it and the table, of several the first by name.
    """
    folders = {
        f"{comparable(_lower(url_below(root_url, table.location)))}/": table
        for table in sorted(tables, key=lambda table: table.name)
    }
    places = [comparable(root_url), *folders]
    name_nodes = {name_node(url) for url in places} - {None}
    schemes = {url.partition("://")[0] for url in places}
    for path in paths:
        if OTHER_DOORS.get(_lower(path).partition(":")[0]) in schemes:
            raise _unclear(path)
        try:
            meant = f"{comparable(url_of(_lower(path))).rstrip('/')}/"
        except LockstepError:  # of a kind of store that no lake lies in
            continue
        if name_nodes and name_node(meant) not in {None, *name_nodes}:
            raise _unclear(path)
        for folder, table in folders.items():
            if meant.startswith(folder) or folder.startswith(meant):
                raise UnsupportedError(
                    f"{path} is of table {table.name}: by its path it is read as it is published just now, which is "
                    "not the snapshot, and which nobody judges. Read the table by its name"
                )


def _unclear(path: str) -> UnsupportedError:
    return UnsupportedError(
        f"{path} may be of a table of this lake under another name of its store, and by its path nobody judges what is "
        "read. Read it outside of a transaction, or write it as the lake's root is written"
    )


def _lower(url: str) -> str:
    """Return a URL whose scheme, host or bucket are in lower case, for case counts in none of them (RFC 3986, 6.2.2.1).

    Hadoop finds a file system by them without regard to case, and so `FILE:/data` is read like `file:/data`.
    """
    if (scheme := _SCHEME.match(url)) is None:
        return url
    rest = url[scheme.end() :]
    authority, slash, path = rest[2:].partition("/") if rest.startswith("//") else ("", "", "")
    return scheme[0].lower() + (f"//{authority.lower()}{slash}{path}" if authority else rest)
