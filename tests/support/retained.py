"""A lake that lives for years, in a moment: a store and a clock of its own, and what each database version has.

The clock is moved by whoever asks; files are as old as it says. What is read back is read by nothing of Lockstep's:
checkpoints by pyarrow, commits by `tests.support.replay`.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from pyarrow import parquet

from lockstep.delta.combine.deletion_vectors import file_name, file_path
from lockstep.storage import Found, Names, Storage
from tests.support.around import Around

BEGAN = datetime(2030, 1, 1, tzinfo=UTC)


class Killed(Exception):  # noqa: N818 (no error: what happens to a process)
    """The process that asked the store is dead."""


class Ticking:
    """A clock that goes on by a millisecond at each look, and by as much as it is told."""

    def __init__(self, now: datetime = BEGAN) -> None:
        self.now = now

    def __call__(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now

    @property
    def ms(self) -> int:
        return int(self.now.timestamp() * 1000)


class AgedStorage(Around):
    """Another store whose files are as old as the clock says, and whose callers die at the call that they are told.

    Attributes:
        times: when each file was written.
        dies_at: after so many more calls; None for never.
        deleted: what was deleted, oldest first.
        calls: how many there were.
    """

    def __init__(self, inner: Storage, clock: Ticking) -> None:
        self.inner, self.clock = inner, clock
        self.times: dict[str, datetime] = {}
        self.dies_at: int | None = None
        self.deleted: list[str] = []
        self.calls = 0

    @property
    def is_dead(self) -> bool:
        """Whether the process that asks was killed."""
        return self.dies_at is not None and self.dies_at < 0

    def _step(self) -> None:
        self.calls += 1
        if self.dies_at is not None:
            self.dies_at -= 1
            if self.dies_at < 0:
                raise Killed

    def get(self, path: str) -> bytes | None:
        self._step()
        return self.inner.get(path)

    def try_put(self, path: str, data: bytes) -> bool:
        self._step()
        self.times.setdefault(path, self.clock.now)
        return self.inner.try_put(path, data)

    def put(self, path: str, data: bytes) -> None:
        self._step()
        self.times[path] = self.clock.now
        self.inner.put(path, data)

    def list(self, folder: str, after: str | None = None) -> Names:
        self._step()
        return self.inner.list(folder, after)

    def walk(self, folder: str) -> Iterator[Found]:
        self._step()
        for found in [*self.inner.walk(folder)]:
            yield Found(found.path, found.size, self.times.setdefault(found.path, self.clock.now))

    def exists(self, path: str) -> bool:
        self._step()
        return self.inner.exists(path)

    def delete(self, path: str) -> None:
        self._step()
        self.deleted.append(path)
        self.times.pop(path, None)
        self.inner.delete(path)

    def delete_folder(self, path: str) -> None:
        self._step()
        self.deleted.append(path)
        self.inner.delete_folder(path)


@dataclass(frozen=True)
class Content:
    """A table's files: each path with the id of its deletion vector, if it has one."""

    files: frozenset[tuple[str, str | None]]

    def paths(self, location: str) -> set[str]:
        """Return all that has to be there, relative to the lake's root."""
        vectors = {file_name(UUID(vector)) for _, vector in self.files if vector is not None}
        return {f"{location}/{name}" for name in {path for path, _ in self.files} | vectors}


def read_back(root: Path, location: str, version: int) -> Content:
    """Return what a table's log says of a version, and see that its files are there.

    Raises:
        AssertionError: the log does not tell, or a file is gone.
    """
    log = root / location / "_delta_log"
    checkpoints = [int(path.name[:20]) for path in log.glob("*.checkpoint.parquet")]
    begin = max((each for each in checkpoints if each <= version), default=-1)
    live: dict[tuple[str, str | None], None] = {}
    if begin >= 0:
        live = {_key(action["add"]): None for action in _checkpoint(log / f"{begin:020d}.checkpoint.parquet")}
    for number in range(begin + 1, version + 1):
        actions = _commit(log / f"{number:020d}.json")
        for action in actions:
            if "remove" in action:
                live.pop(_key(action["remove"]), None)
        live |= {_key(action["add"]): None for action in actions if "add" in action}
    content = Content(frozenset(live))
    for path in content.paths(location):
        assert (root / path).is_file(), f"{path} is gone, and version {version} of {location} needs it"
    return content


def _checkpoint(path: Path) -> list[dict[str, Any]]:
    rows = parquet.ParquetFile(io.BytesIO(path.read_bytes())).read().to_pylist()
    return [row for row in rows if row.get("add") is not None]


def _commit(path: Path) -> list[dict[str, Any]]:
    assert path.is_file(), f"{path} is gone, and a version that can be read needs it"
    return [json.loads(line) for line in path.read_text().splitlines()]


def _key(body: dict[str, Any]) -> tuple[str, str | None]:
    vector = body.get("deletionVector")
    return body["path"], None if vector is None else vector_id(vector)


def vector_id(descriptor: dict[str, Any]) -> str:
    """Return the UUID of a stored vector."""
    name = file_path(descriptor, location="t", root="file:///")
    match = re.fullmatch(r"t/deletion_vector_(.+)\.bin", name)
    assert match is not None
    return match[1]
