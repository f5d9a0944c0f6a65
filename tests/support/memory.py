"""A store in memory: histories of thousands of versions are made and opened in it in no time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from lockstep.storage import Found, Names, Storage


class MemoryStorage(Storage):
    """A dictionary, called as it is told; not for several threads that write."""

    is_proven_by_use = True

    def __init__(self, url: str = "memory:///lake") -> None:
        self.files: dict[str, bytes] = {}
        self._url = url

    @property
    def url(self) -> str:
        return self._url

    def get(self, path: str) -> bytes | None:
        return self.files.get(path)

    def try_put(self, path: str, data: bytes) -> bool:
        return self.files.setdefault(path, data) is data

    def put(self, path: str, data: bytes) -> None:
        self.files[path] = data

    def list(self, folder: str, after: str | None = None) -> Names:
        prefix = f"{folder}/" if folder else ""
        names = sorted(path.removeprefix(prefix) for path in self.files if path.startswith(prefix))
        return [name for name in names if "/" not in name and (after is None or name > after)]

    def walk(self, folder: str) -> Iterator[Found]:
        prefix = f"{folder}/" if folder else ""
        for path in [path for path in self.files if path.startswith(prefix)]:
            yield Found(path, len(self.files[path]), datetime.fromtimestamp(0, UTC))

    def exists(self, path: str) -> bool:
        return path in self.files

    def delete(self, path: str) -> None:
        self.files.pop(path, None)

    def delete_folder(self, path: str) -> None:
        for found in [found for found in self.files if found.startswith(f"{path}/")]:
            del self.files[found]
