"""Folders that are not synced: lakes for tests in which nobody dies, and a disk that fails to."""

from __future__ import annotations

import os
from pathlib import Path

from lockstep.storage.local import LocalStorage


class UnsyncedFolder:
    """A folder whose list of names fails to be synced; its `fsync` stands in for `os.fsync`.

    Attributes:
        failures: how often it will fail.
        is_synced: whether it was synced since it last failed.
    """

    def __init__(self, folder: Path, failures: int) -> None:
        self._folder = folder
        self._fsync = os.fsync
        self.failures = failures
        self.is_synced = False

    def fsync(self, handle: int) -> None:
        if Path(f"/proc/self/fd/{handle}").readlink() == self._folder:
            self.is_synced = self.failures <= 0
            if not self.is_synced:
                self.failures -= 1
                raise OSError(5, "Input/output error")
        self._fsync(handle)


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
        file = Path(self._file(path))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
