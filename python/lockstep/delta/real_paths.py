"""A commit's paths name the real storage, never a transaction's overlay, which ends with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
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
