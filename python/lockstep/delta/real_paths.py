"""Where a commit's paths lead: to the real storage, never to a transaction's overlay, which ends with it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from lockstep.delta.actions import Action, split
from lockstep.errors import InvalidError

_FILES = frozenset({"add", "remove", "cdc", "sidecar"})
_OVERLAY = "lockstep://"
_OVERLAY_URI = re.compile(r"lockstep://[^\s./]+\.([A-Za-z][A-Za-z0-9+-]*)(?:\.([\w.~%@:\[\]+-]+))?")


def real_paths(actions: Iterable[Action]) -> list[Action]:
    """Rewrite the overlay's URIs to those of the storage below.

    `lockstep://<txn>.<scheme>[.<authority>]/path` becomes `<scheme>://<authority>/path`, or `file:/path`, in every
    path, table property and operation parameter. Only the part before the path changes, so what is URL-encoded stays
    so. It is spelled as Hadoop does: Delta's UPDATE of a file with a deletion vector compares the texts of paths.
    """
    return [_map_paths(action, lambda text: _OVERLAY_URI.sub(_storage_uri, text)) for action in actions]


def _storage_uri(match: re.Match[str]) -> str:
    return f"{match[1]}://{match[2]}" if match[2] else f"{match[1]}:"


def assert_real(actions: Iterable[Action]) -> None:
    """Check that no path and no table property names the overlay, which ends with its transaction.

    `commitInfo` is not checked: it is history, and a statement's text may say anything.

    Raises:
        InvalidError: one does; the message gives it.
    """

    def check(text: str) -> str:
        if _OVERLAY in text:
            raise InvalidError(
                "please report this; nothing was committed. A path or a table property of the commit still names an "
                f"uncommitted transaction: {text}"
            )
        return text

    for action in actions:
        if "commitInfo" not in action:
            _map_paths(action, check)


def _map_paths(action: Action, change: Callable[[str], str]) -> Action:
    """Return the action with `change` applied to every text in it that is or may hold a location."""
    kind, body = split(action)
    new: dict[str, Any] = {}
    if kind in _FILES:
        new["path"] = change(body["path"])
        descriptor = body.get("deletionVector")
        if descriptor and descriptor["storageType"] == "p":
            new["deletionVector"] = {**descriptor, "pathOrInlineDv": change(descriptor["pathOrInlineDv"])}
    for name in {"metaData": ("configuration",), "commitInfo": ("operationParameters",)}.get(kind, ()):
        if values := body.get(name):
            new[name] = {key: change(v) if isinstance(v, str) else v for key, v in values.items()}
    return {kind: {**body, **new}} if any(body[name] != value for name, value in new.items()) else action


def below_root(path: str, location: str, root: str) -> str | None:
    """Return a path of a table's log as one relative to the lake's root; None if it leads out of the lake.

    Args:
        path: relative to the table's folder, absolute, or a URL, without percent-encoding.
        location: the table's folder, relative to the lake's root.
        root: the lake's root as a URL, `Storage.url`.
    """
    scheme, _, below = root.partition("://")
    if (match := _URL.match(path)) is not None:
        if {match[1], scheme} & _SCHEMES_OF_S3 != {match[1], scheme} and match[1] != scheme:
            return None
        path = path[match.end() :].lstrip("/") if match[1] != "file" else "/" + path[match.end() :].lstrip("/")
    elif not path.startswith("/"):
        return f"{location}/{path}"
    if path.startswith(f"{below}/"):
        return path.removeprefix(f"{below}/")
    if scheme != "file":
        return None
    # The lake may have several names: whoever deletes may have come by a link, and whoever cloned may not.
    folder, _, name = path.rpartition("/")
    real, inside = f"{_real(folder)}/{name}", f"{_real(below)}/"
    return real.removeprefix(inside) if real.startswith(inside) else None


def place_of(path: str, location: str, root: str) -> str:
    """Return a path of a table's log as the lake calls that place, so that one that several tables name has one name.

    Args:
        path, location, root: as in `below_root`; the location may be a whole URL, of a table outside of the root.

    Returns:
        A path relative to the lake's root, or a whole URL of what lies outside; links on a local disk are followed.
    """
    if (below := below_root(path, location, root)) is not None:
        return below
    match = _URL.match(path)
    rest = (path if match is None else path[match.end() :]).lstrip("/")
    if match is not None and match[1] != "file":
        return f"{'s3' if match[1] in _SCHEMES_OF_S3 else match[1]}://{rest}"
    folder, _, name = f"/{rest}".rpartition("/")
    return f"file://{_real(folder)}/{name}"


_real = lru_cache(1024)(os.path.realpath)  # of a local folder: links are followed


_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_SCHEMES_OF_S3 = frozenset({"s3", "s3a"})
