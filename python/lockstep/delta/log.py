"""A table's `_delta_log` in the lake's storage: where things lie, and reading them.

<location>/_delta_log/<version>.json                        published commits: ordinary Delta
<location>/_delta_log/_lockstep/<transaction>/<version>.json    staged by Delta, under the overlay
<location>/_delta_log/_lockstep/<transaction>/commit-<version>-<digest>.json    ratified, too large to inline
"""

from __future__ import annotations

import re

from lockstep.delta.actions import Action, parse
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


def _parsed(path: str, data: bytes | None) -> list[Action]:
    if data is None:
        raise CorruptTimelineError(f"{path} is gone: expected a Delta commit that was written there")
    try:
        return parse(data)
    except InvalidError as error:
        raise CorruptTimelineError(f"{path}: {error.message}") from error
