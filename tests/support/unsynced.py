"""A lake in a folder, for tests that make many and in which nobody dies."""

from __future__ import annotations

from lockstep.storage.local import LocalStorage


class UnsyncedStorage(LocalStorage):
    """A folder whose files are written at once: syncing them would be nearly all of the time.

    For one thread at a time, but for different files.
    """

    def try_put(self, path: str, data: bytes) -> bool:
        if self.exists(path):
            return False
        self.put(path, data)
        return True

    def put(self, path: str, data: bytes) -> None:
        file = self._file(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
