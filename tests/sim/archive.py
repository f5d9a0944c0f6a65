"""The timeline as it was written, whatever has expired since: from all of its files that there ever were."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.timeline.database import Database
from lockstep.timeline.entry import Entry
from lockstep.timeline.files import decode_all, version_in
from lockstep.timeline.fold import apply
from tests.sim.store import Disk


def entries_of(disk: Disk) -> list[Entry]:
    """Return all entries that were ever there, oldest first."""
    return [entry for _, entry in _found(disk)]


def landed(disk: Disk) -> list[float]:
    """Return when each of these came to be there, in simulated seconds."""
    return [at for at, _ in _found(disk)]


def databases_of(entries: Sequence[Entry]) -> list[Database]:
    """Return what each database version was, as the entries up to it say: table versions may have been amended."""
    databases: list[Database] = []
    for entry in entries:
        databases.append(apply(databases[-1] if databases else None, entry))
    return databases


def _found(disk: Disk) -> list[tuple[float, Entry]]:
    found = []
    for path, (data, at) in disk.archive.items():
        if (first := version_in(path.rpartition("/")[2])) is not None:
            found += [(at, entry) for entry in decode_all(data, first)]
    found.sort(key=lambda each: each[1].version)
    versions = [entry.version for _, entry in found]
    assert versions == list(range(len(found))), f"the timeline has had the entries {versions}"
    return found
