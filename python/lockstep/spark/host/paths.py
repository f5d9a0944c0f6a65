"""Which table of a lake is meant by a path that a query reads, and not by its name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from lockstep.errors import LockstepError, UnsupportedError
from lockstep.spark.host.uris import Uris
from lockstep.storage import url_of
from lockstep.storage.outside import name_node
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
    uris = Uris(_resolved(root_url))
    folders = {f"{_lower(uris.real(table.location))}/": table for table in sorted(tables, key=lambda table: table.name)}
    name_nodes = {named for url in (root_url, *folders) if (named := name_node(url)) is not None}
    for path in paths:
        try:
            meant = _lower(Uris(_resolved(url_of(_lower(path)))).real(""))
        except LockstepError:  # of a kind of store that no lake lies in
            continue
        if name_nodes and name_node(meant) not in {None, *name_nodes}:
            raise UnsupportedError(
                f"{path} may be of a table of this lake, for its name node may be {' or '.join(sorted(name_nodes))} under "
                "another name, and by its path nobody judges what is read. Read it outside of a transaction, or write "
                "the name node as the lake's root does"
            )
        for folder, table in folders.items():
            if meant.startswith(folder) or folder.startswith(meant):
                raise UnsupportedError(
                    f"{path} is of table {table.name}: by its path it is read as it is published just now, which is "
                    "not the snapshot, and which nobody judges. Read the table by its name"
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


def _resolved(url: str) -> str:
    """Return a URL without symbolic links on its way, as far as its store has such."""
    parts = urlsplit(url)
    return f"file://{os.path.realpath(url.removeprefix('file://'))}" if parts.scheme == "file" else url
