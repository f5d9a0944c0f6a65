"""A table's `_delta_log` in the lake's storage: where things lie, and reading them.

<location>/_delta_log/<version>.json                        published commits: ordinary Delta
<location>/_delta_log/_lockstep/<transaction>/<version>.json    staged by Delta, under the overlay
<location>/_delta_log/_lockstep/<transaction>/commit-<version>-<digest>.json    ratified, too large to inline
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from lockstep.delta.actions import Action, parse
from lockstep.delta.evolution import TableState
from lockstep.errors import CorruptTimelineError, InvalidError
from lockstep.storage import Storage

LOG = "_delta_log"
_VERSIONED = re.compile(r"\d{20}\.")


def commit_path(location: str, version: int) -> str:
    """Return where a published commit lies, relative to the lake's root."""
    return f"{location}/{LOG}/{version:020d}.json"


def checksum_path(location: str, version: int) -> str:
    """Return where a published version's checksum lies."""
    return f"{location}/{LOG}/{version:020d}.crc"


def staging_folder(location: str, transaction: str) -> str:
    """Return the folder of what a transaction staged for a table: the overlay's, see `LockstepFileSystem`."""
    return f"{location}/{LOG}/_lockstep/{transaction}"


def staged_path(location: str, transaction: str, version: int) -> str:
    """Return where Delta staged a transaction's commit of a table version."""
    return f"{staging_folder(location, transaction)}/{version:020d}.json"


def ratified_path(transaction: str, version: int, digest: str) -> str:
    """Return where a large commit waits to be published, relative to its table's location."""
    return f"{LOG}/_lockstep/{transaction}/commit-{version:020d}-{digest}.json"


def read_staged(storage: Storage, location: str, transaction: str, version: int) -> list[Action]:
    """Read one staged commit.

    Raises:
        CorruptTimelineError: it is gone or is not a Delta commit, though Delta was told that it was written.
    """
    path = staged_path(location, transaction, version)
    return _parsed(path, storage.get(path))


def read_published(storage: Storage, location: str, version: int) -> list[Action]:
    """Read one published commit.

    Raises:
        CorruptTimelineError: it is not there or is not a Delta commit.
    """
    path = commit_path(location, version)
    return _parsed(path, storage.get(path))


def last_published(storage: Storage, location: str, after: int) -> int:
    """Return the last version of the unbroken run of published commits after `after`; itself if there is none."""
    version = after
    while storage.exists(commit_path(location, version + 1)):
        version += 1
    return version


def was_published(storage: Storage, location: str, version: int) -> bool:
    """Return whether a log has, or had, a commit: one that goes on after it has lost it to Delta's clean-up."""
    if storage.exists(commit_path(location, version)):
        return True
    later = storage.list(f"{location}/{LOG}", after=f"{version:020d}.z")
    return any(_VERSIONED.match(name) for name in later)


def read_checksum(storage: Storage, location: str, version: int) -> dict[str, Any] | None:
    """Return a published version's checksum; None if it has none that can be read: Delta does without, too."""
    data = storage.get(checksum_path(location, version))
    try:
        return None if data is None else msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.DecodeError:
        return None


LOOKED_BACK = 100
"""So many versions are looked through for a table's state; a checksum in between ends that, and most have one."""


def state_at(storage: Storage, location: str, version: int) -> TableState | None:
    """Return a table's metadata and protocol at a published version; None where that takes more than a short look.

    Raises:
        CorruptTimelineError: a commit is not a Delta commit.
    """
    found: dict[str, dict[str, Any]] = {}
    for each in range(version, max(version - LOOKED_BACK, -1), -1):
        said = read_checksum(storage, location, each) or {}
        if not said and (data := storage.get(commit_path(location, each))) is not None:
            said = {
                kind: body for action in _parsed(commit_path(location, each), data) for kind, body in action.items()
            }
            said["metadata"] = said.get("metaData")
        elif not said:
            return None  # cleaned up, or not published
        found = {kind: said[kind] for kind in ("metadata", "protocol") if said.get(kind)} | found
        if len(found) == 2:
            return TableState(**found)
    return None


def _parsed(path: str, data: bytes | None) -> list[Action]:
    if data is None:
        raise CorruptTimelineError(f"{path} is gone: expected a Delta commit that was written there")
    try:
        return parse(data)
    except InvalidError as error:
        raise CorruptTimelineError(f"{path}: {error.message}") from error
