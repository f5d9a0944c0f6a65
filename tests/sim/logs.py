"""The published logs of tables, as whoever reads the store finds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lockstep.delta.actions import LogicalFile, parse
from lockstep.delta.combine.deletion_vectors import decode
from lockstep.delta.log import commit_path
from tests.sim.store import URL, Disk
from tests.support.replay import Replayed


class Logs:
    """Reads each commit once, from a store that does not change meanwhile."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self._found: dict[str, tuple[Replayed, list[Mapping[LogicalFile, dict[str, Any]]]]] = {}
        self._vectors: dict[tuple[str, str], frozenset[int]] = {}

    def files(self, location: str, version: int) -> Mapping[LogicalFile, dict[str, Any]]:
        """Return the files of a version of a table.

        Raises:
            AssertionError: its log does not tell.
        """
        table, versions = self._found.setdefault(location, (Replayed(), []))
        while len(versions) <= version:
            data = self.disk.get(commit_path(location, len(versions)))
            assert data is not None, f"version {len(versions)} of {location} is not in its log"
            table.take(parse(data))
            versions.append(dict(table.files))
        return versions[version]

    def rows(self, location: str, version: int) -> dict[str, frozenset[int]]:
        """Return the paths of these files, each with the rows that its deletion vector takes out.

        Raises:
            AssertionError: its log does not tell, or a vector is gone.
        """
        return {path: self._rows(location, body) for (path, _), body in self.files(location, version).items()}

    def newest(self, location: str) -> int:
        """Return the newest version of a log; -1 if there is none."""
        version = -1
        while self.disk.get(commit_path(location, version + 1)) is not None:
            version += 1
        return version

    def _rows(self, location: str, body: dict[str, Any]) -> frozenset[int]:
        if (vector := body.get("deletionVector")) is None:
            return frozenset()
        key = location, str(vector)
        if key not in self._vectors:
            self._vectors[key] = frozenset(decode(vector, self._read, location=location, root=URL))
        return self._vectors[key]

    def _read(self, path: str) -> bytes:
        data = self.disk.get(path)
        assert data is not None, f"deletion vector {path} is gone"
        return data
