"""Which files of others a table names: those that a shallow clone shares with its source."""

from __future__ import annotations

from lockstep.delta.combine.deletion_vectors import may_mean_of
from lockstep.delta.snapshot import read_snapshot
from lockstep.storage import Storage


def files_elsewhere(storage: Storage, location: str, version: int) -> frozenset[str]:
    """Return the files outside of its own folder that a version of a table names, relative to the lake's root.

    They are those that a shallow clone shares; what lies outside of the root is a whole URL.

    Raises:
        LockstepError: the log cannot be read, so nobody knows.
    """
    found: set[str] = set()
    for add in read_snapshot(storage, location, version).files.values():
        found.update(may_mean_of(add, location, storage.url))
    return frozenset(path for path in found if not path.startswith(f"{location}/"))
