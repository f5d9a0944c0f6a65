"""The files of a table's version: where they are, and how the log of an export names them. Pure.

A path in a log is a URI: below the table's folder, or absolute, as in a shallow clone. A full export has every file
below its own tables' folders; a partial one names each where it is, by an absolute URI, as Delta's own clones do.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, unquote
from uuid import NAMESPACE_URL, uuid5

from lockstep.delta.combine.deletion_vectors import Descriptor, file_name, file_path, placed
from lockstep.delta.places import is_absolute, name_of
from lockstep.errors import CorruptTimelineError
from lockstep.storage.urls import is_outside, url_below

_KEPT = "/!$&'()*+,;=:@-._~"
"""What of ASCII, beside letters and digits, a path has in a URI as it is; letters of others stay as in Java's URIs."""

_SPACES = frozenset({"Zs", "Zl", "Zp"})

S3 = Literal["s3", "s3a"]
"""What a store in S3 is called: by everybody, and by Spark, which knows it as `s3a` alone."""

_S3 = re.compile("^s3a?(?=://)")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file is: in a store, by the URL of its root, at a path in it; neither is URL-encoded."""

    root: str
    path: str

    @property
    def uri(self) -> str:
        """The file's absolute URI, spelled as Hadoop does: Delta's UPDATE compares the texts of paths."""
        scheme, _, rest = self.root.partition("://")
        return f"{scheme}:{'' if scheme == 'file' else '//'}{_encoded(f'{rest}/{self.path}')}"

    @property
    def folder(self) -> tuple[str, str]:
        """Where its folder is."""
        return self.root, self.path.rpartition("/")[0]

    @property
    def name(self) -> str:
        """Its name in its folder."""
        return self.path.rpartition("/")[2]


def _encoded(path: str) -> str:
    return "".join(char if _is_as_it_is(char) else quote(char, safe=_KEPT) for char in path)


def _is_as_it_is(char: str) -> bool:
    """Tell whether Java's URIs have a character outside of ASCII as it is: all do but controls and spaces.

    So those are that nobody sees (in Persian words, between the parts of an emoji), and those that are newer than
    Python's tables.
    """
    return char >= "\xa0" and unicodedata.category(char) not in _SPACES


def place_of(path: str, *, location: str, root: str) -> Place:
    """Return where a data file is that a table's log names.

    Args:
        path: as the log has it.
        location: the table's folder, relative to the lake's root, or a whole URL.
        root: the lake's root as a URL.

    Raises:
        CorruptTimelineError: it names none.
    """
    named = name_of(unquote(path), location, root)
    if is_absolute(path) and is_outside(named) and ("?" in path or "#" in path):
        raise _no_file(path)
    place = in_table(named, root)
    if not place.name:
        raise _no_file(path)
    return place


def vector_place(descriptor: Descriptor, *, location: str, root: str) -> Place | None:
    """Return where the file of a deletion vector is; None if the vector is in the log itself.

    Raises:
        CorruptTimelineError: the descriptor is none.
    """
    match descriptor["storageType"]:
        case "i":
            return None
        case "p":
            if not is_absolute(uri := descriptor["pathOrInlineDv"]):
                raise _no_file(uri)
            return place_of(uri, location=location, root=root)
        case _:
            return in_table(file_path(descriptor, location=location, root=root), root)


def places_of(file: dict[str, Any], location: str, root: str) -> Iterator[Place]:
    """Yield where a file of a table is, and that of its deletion vector.

    Raises:
        CorruptTimelineError: it names none.
    """
    yield place_of(file["path"], location=location, root=root)
    vector = file.get("deletionVector")
    if vector is not None and (place := vector_place(vector, location=location, root=root)) is not None:
        yield place


def in_table(path: str, root: str) -> Place:
    """Return the place of a path as a lake names it: below its root, or a whole URL of what lies outside of that."""
    if not is_outside(path):
        return Place(root, path)
    folder, _, name = path.rpartition("/")
    return Place(folder, name)


def named_in(place: Place, root: str) -> str:
    """Return how a lake names what is at a place: below its root, or by a whole URL; what `in_table` reads."""
    return place.path if place.root == root else url_below(place.root, place.path)


def _no_file(path: str) -> CorruptTimelineError:
    return CorruptTimelineError(f"a table's log names {path!r}: expected the URI of a file")


# --- what an export names ---------------------------------------------------------------------------------------------


def referring(add: dict[str, Any], *, location: str, root: str, s3: S3) -> dict[str, Any]:
    """Return a file as a partial export names it: it stays where it is, and so does its deletion vector.

    Args:
        add: as the table's log has it.
        location: see `place_of`.
        root: see `place_of`.
        s3: what S3 is called in the names of files there.
    """

    def uri(place: Place) -> str:
        return _S3.sub(s3, place.uri)

    body = {**add, "path": uri(place_of(add["path"], location=location, root=root))}
    vector = add.get("deletionVector")
    place = None if vector is None else vector_place(vector, location=location, root=root)
    if vector is not None and place is not None:
        body["deletionVector"] = {**vector, "storageType": "p", "pathOrInlineDv": uri(place)}
    return body


@dataclass(frozen=True, slots=True)
class Copy:
    """A file that a full export has of its own.

    Attributes:
        source: where it is.
        path: where the export has it, relative to its root.
        size: its bytes, as the log says; None of a deletion vector's file, of which it does not.
    """

    source: Place
    path: str
    size: int | None


def copied(add: dict[str, Any], *, location: str, root: str, target: str) -> tuple[dict[str, Any], list[Copy]]:
    """Return a file as a full export names it, and what is to be copied for that, into the table's folder `target`.

    A file below the table's folder has the same path there. One from elsewhere has one that follows from where it is.
    """
    place = place_of(add["path"], location=location, root=root)
    below, folder = f"{place.root}/{place.path}", f"{url_below(root, location)}/"
    path = below.removeprefix(folder) if below.startswith(folder) else _foreign_path(place)
    is_there = not is_absolute(add["path"]) and unquote(add["path"]) == path  # and does not lead out of the folder
    body: dict[str, Any] = add if is_there else {**add, "path": _encoded(path)}
    copies = [Copy(place, f"{target}/{path}", add["size"])]
    vector = add.get("deletionVector")
    vector_file = None if vector is None else vector_place(vector, location=location, root=root)
    if vector is not None and vector_file is not None:
        if vector["storageType"] == "u":
            path = f"{vector_file.root}/{vector_file.path}".removeprefix(folder)
        else:
            id_ = uuid5(NAMESPACE_URL, vector_file.uri)
            path, body = file_name(id_), {**body, "deletionVector": placed(vector, id_)}
        copies.append(Copy(vector_file, f"{target}/{path}", None))
    return body, copies


def _foreign_path(place: Place) -> str:
    return f"copied-{hashlib.sha256(place.uri.encode()).hexdigest()[:24]}/{place.name}"
